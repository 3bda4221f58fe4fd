"""What launching containers costs the machine that asks for it, beside lxd-benchmark and pylxd, in one run.

    .venv/bin/python tests/benchmarks/bench_lxd.py [--members N] [--count N] [--at N ...] [--rounds N] [--socket]

As root. A real LXD of the lab's (lab/lxd/cluster.py), a single server or with --members a cluster, is the same for all
sides, and so is the image, which is on it. Each side in its turn makes and starts COUNT containers in the project
default, so many at a time; they are deleted, uncounted, before the next one's turn, which begins when LXD is idle. A
side is a process of its own:

lxd-benchmark  `lxd-benchmark launch` (Debian: lxd-tools), which knows LXD's unix socket only, and works in batches;
               left out where the machine has none
pylxd          a thread and a pylxd client each for so many at a time: instances.create(wait=True), start(wait=True)
ours           LxdClient on uvloop, as a worker of a run has it
run            with --run: a whole `tippingpoint run` with one worker, in a project of its own, to its finished
               report, removal included; "alone" is its worker while it launches
A/A            the last peer again, as a side of its own: what it differs by from itself, no difference between other
               sides means more than

pylxd and ours connect over HTTPS with a client certificate, with --socket over the unix socket as well. CPU is user
and system time for each container; "alone" leaves out what interpreters and their imports take before the first call
and after the last. Bytecode is cached in a directory of this benchmark's, as the first use of any installation does.
Rates are containers a second, from the first call to the last answer. An LXD slows down with all that it has made
before: each side has one turn that does not count first, and the order of the turns is another in each round, so that
each side comes in each place as often as the rounds allow. Figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from tests.benchmarks.sides import cpu_seconds, ran_seconds, timed, worker_cpu  # noqa: E402

if TYPE_CHECKING:  # the sides, which are processes of this file too, have no use for it
    from lab.lxd.cluster import LxdLab

GOAL = 0.5
"""At most this share of pylxd's CPU."""
AGAIN = "A/A"
_PREFIX = "bench"
_IDLE_CORES = 0.05
_IDLE_FOR_S = 1.0
_IDLE_WITHIN_S = 60.0
# requests, which pylxd is made of, would prefer these to the certificate that it is given.
_OWN_AUTHORITY = {"REQUESTS_CA_BUNDLE": "", "CURL_CA_BUNDLE": ""}


@dataclass(frozen=True)
class Turn:
    """One side's task: so many containers of this image, so many at a time."""

    lab: LxdLab
    image: str
    count: int
    at: int
    socket: bool


@dataclass(frozen=True)
class Cost:
    """What a side took: containers a second, and CPU-seconds a container, as a whole and for the calls alone."""

    rate: float
    cpu: float
    alone: float


Side = Callable[[Turn], Cost]


def lxd_benchmark(turn: Turn) -> Cost:
    """The tool that comes with LXD."""
    environment = os.environ | {"LXD_DIR": str(turn.lab.unix_socket().parent)}
    command = ["lxd-benchmark", "launch", turn.image, f"--count={turn.count}", f"--parallel={turn.at}"]
    told, cpu = timed(command, environment)
    if "Failed" in told:
        raise SystemExit(f"lxd-benchmark: {told}")
    seconds = re.search(r"processing completed in ([\d.]+)s", told)
    if seconds is None:
        raise SystemExit(f"lxd-benchmark: {told}")
    return Cost(turn.count / float(seconds[1]), cpu / turn.count, cpu / turn.count)


def python_side(side: str) -> Side:
    """This file again, as a process that does nothing but launch."""

    def run(turn: Turn) -> Cost:
        where = turn.lab.unix_socket() if turn.socket else turn.lab.credentials
        command = [sys.executable, __file__, "--side", side, str(where), turn.image]
        told, cpu = timed([*command, str(turn.count), str(turn.at)], os.environ | _OWN_AUTHORITY)
        seconds, alone = json.loads(told.splitlines()[-1])
        return Cost(turn.count / seconds, cpu / turn.count, alone / turn.count)

    return run


def whole_run(turn: Turn) -> Cost:
    """This suite, by its command line."""
    from tippingpoint.rundir.results import load_run

    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "tippingpoint", "run", "lxd-cluster-small", f"--out={out}"]
        for setting in (
            f"target.socket={turn.lab.unix_socket()}"
            if turn.socket
            else f"target.credentials={turn.lab.credentials}",
            f"target.image={turn.image}",
            f"stages=[{{groups: 1, instances: {turn.count}, hold: 1s}}]",
            "thresholds=[]",
            "workload.until=started",
            f"workload.concurrency={turn.at}",
            "workload.observe_every=0s",
            "workers=1",
        ):
            command += ["--set", setting]
        told, cpu = timed(command, os.environ)
        directory = next(path for path in Path(out).iterdir() if path.is_dir())
        stage = load_run(directory).stages[0]
        rate = stage.throughput("launch")
        if rate is None or stage.hold_begin is None:
            raise SystemExit(f"tippingpoint: {told}")
        alone = worker_cpu(directory, stage.begin, stage.hold_begin)
    return Cost(rate, cpu / turn.count, alone / turn.count)


def launch_with_pylxd(where: Path, image: str, count: int, at: int) -> tuple[float, float]:
    """Seconds, and CPU-seconds, that pylxd takes."""
    import pylxd
    import yaml

    with tempfile.TemporaryDirectory() as directory:
        if where.is_socket():
            options: dict[str, Any] = {"endpoint": f"http+unix://{str(where).replace('/', '%2F')}"}
        else:
            known = yaml.safe_load(where.read_text())
            files = {
                name: Path(directory) / name for name in ("certificate", "client_certificate", "client_key")
            }
            for name, file in files.items():
                file.write_text(known[name])
            options = {
                "endpoint": known["addresses"][0],
                "cert": (str(files["client_certificate"]), str(files["client_key"])),
                "verify": str(files["certificate"]),
            }
        source = {"type": "image", "fingerprint": image}

        def launch(numbers: range) -> None:
            client = pylxd.Client(**options)
            for number in numbers:
                wanted = {"name": f"{_PREFIX}-{number:04d}", "source": source}
                client.instances.create(wanted, wait=True).start(wait=True)

        with ThreadPoolExecutor(at) as threads:
            began, before = time.monotonic(), cpu_seconds()
            for ended in [threads.submit(launch, range(first, count, at)) for first in range(at)]:
                ended.result()
            return time.monotonic() - began, cpu_seconds() - before


def launch_with_ours(where: Path, image: str, count: int, at: int) -> tuple[float, float]:
    """Seconds, and CPU-seconds, that the client of this suite takes."""
    import uvloop

    from tippingpoint.targets.lxd.access import from_file, from_socket
    from tippingpoint.targets.lxd.client import LxdClient

    source = {"type": "image", "fingerprint": image}
    access = from_socket(where) if where.is_socket() else from_file(where)

    async def launch_all() -> tuple[float, float]:
        began, before = time.monotonic(), cpu_seconds()
        client = LxdClient(access)

        async def launch(numbers: range) -> None:
            for number in numbers:
                name = f"{_PREFIX}-{number:04d}"
                await client.operate("POST", "/1.0/instances", {"name": name, "source": source})
                await client.operate("PUT", f"/1.0/instances/{name}/state", {"action": "start"})

        await client.server()
        await asyncio.gather(*(launch(range(first, count, at)) for first in range(at)))
        await client.close()
        return time.monotonic() - began, cpu_seconds() - before

    return uvloop.run(launch_all())


def remove_containers(lab: LxdLab) -> None:
    """Delete what a turn left on the lab's LXD, which has nothing else."""
    from tippingpoint.targets.lxd.access import from_socket
    from tippingpoint.targets.lxd.client import LxdClient

    async def remove() -> None:
        client = LxdClient(from_socket(lab.unix_socket()))
        paths = iter(await client.get("/1.0/instances"))

        async def each() -> None:
            for path in paths:
                await client.operate("PUT", f"{path}/state", {"action": "stop", "force": True})
                await client.operate("DELETE", path)

        await asyncio.gather(*(each() for _ in range(6)))
        await client.close()

    asyncio.run(remove())


SIDES: dict[str, Side] = {
    "lxd-benchmark": lxd_benchmark,
    "pylxd": python_side("pylxd"),
    "ours": python_side("ours"),
    "run": whole_run,
}
SIDES[AGAIN] = SIDES["pylxd"]
_LAUNCH = {"pylxd": launch_with_pylxd, "ours": launch_with_ours}


def await_idle(lab: LxdLab) -> None:
    """Wait until the daemons have done what a removal leaves them to do; at most _IDLE_WITHIN_S seconds."""
    until = time.monotonic() + _IDLE_WITHIN_S
    while time.monotonic() < until:
        before = [ran_seconds(pid) for pid in lab.pids.values()]
        time.sleep(_IDLE_FOR_S)
        after = [ran_seconds(pid) for pid in lab.pids.values()]
        if sum(after) - sum(before) < _IDLE_CORES * _IDLE_FOR_S:
            return


def order(sides: list[str], number: int) -> list[str]:
    """The sides in the order of a round: each begins one, and every second round goes backwards."""
    first = (number // 2) % len(sides)
    turned = sides[first:] + sides[:first]
    return turned if number % 2 == 0 else turned[::-1]


def compare(lab: LxdLab, sides: list[str], rounds: int, count: int, at: list[int], socket: bool) -> None:
    """Print each side's medians, and what ours are of theirs."""
    image = lab.image("bench")
    figures: dict[tuple[int, str], list[Cost]] = {}

    def take(name: str, many: int) -> Cost:
        await_idle(lab)
        cost = SIDES[name](Turn(lab, image, count, many, socket))
        remove_containers(lab)
        return cost

    for name in sides:  # the image is unpacked for the first time, bytecode is made
        print(f"uncounted, at {at[-1]}, {name}: {take(name, at[-1])}", file=sys.stderr, flush=True)
    for number in range(rounds):
        for many in at:
            for name in order(sides, number):
                cost = take(name, many)
                figures.setdefault((many, name), []).append(cost)
                print(f"round {number + 1}, at {many}, {name}: {cost}", file=sys.stderr, flush=True)
    way = "the unix socket" if socket else "HTTPS, lxd-benchmark the unix socket"
    print(f"{count} containers, {len(lab.addresses)} member(s), over {way}; medians of {rounds}")
    print(f"{'at':>3} {'':15}{'per s':>8}{'ratio':>7}{'CPU ms':>9}{'ratio':>7}{'alone':>9}{'ratio':>7}")
    for many in at:
        of = {name: _medians(figures[many, name]) for name in sides}
        peer = of["pylxd"]
        best = max(of[name].rate for name in ("lxd-benchmark", "pylxd") if name in of)
        for name, cost in of.items():
            print(
                f"{many:3} {name:15}{cost.rate:8.2f}{cost.rate / best:7.2f}{1000 * cost.cpu:9.2f}"
                f"{cost.cpu / peer.cpu:7.2f}{1000 * cost.alone:9.2f}{cost.alone / peer.alone:7.2f}"
            )
    print(f"goal: ours at least 1.0 of the better rate, at most {GOAL} of pylxd's CPU")
    print(f"{AGAIN} is pylxd again: no smaller difference of rates than between these two says anything")


def _medians(costs: list[Cost]) -> Cost:
    names = Cost.__dataclass_fields__
    return Cost(**{name: statistics.median(getattr(cost, name) for cost in costs) for name in names})


def main() -> None:
    if sys.argv[1:2] == ["--side"]:
        side, where, image, count, at = sys.argv[2:]
        print(json.dumps(_LAUNCH[side](Path(where), image, int(count), int(at))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--members", type=int, default=0, help="a cluster of so many, instead of one server")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--at", type=int, nargs="+", default=[1, 4, 8], help="how many at a time")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--socket", action="store_true", help="over the unix socket instead of HTTPS")
    parser.add_argument("--run", action="store_true", help="a whole run as well")
    options = parser.parse_args()
    sides = [name for name in SIDES if name != "run" or options.run]
    if shutil.which("lxd-benchmark") is None:
        sides.remove("lxd-benchmark")
        print("lxd-benchmark is left out: expected it on PATH (Debian: lxd-tools)")
    from lab.lxd.cluster import LxdLab

    with (
        tempfile.TemporaryDirectory() as bytecode,
        LxdLab(max(options.members, 1), clustered=options.members > 0) as lab,
    ):
        os.environ["PYTHONPYCACHEPREFIX"] = bytecode
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        compare(lab, sides, options.rounds, options.count, options.at, options.socket)


if __name__ == "__main__":
    main()
