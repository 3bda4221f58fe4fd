"""What registering machines in a MAAS costs its client, beside python-libmaas, in one run.

    .venv/bin/python tests/benchmarks/bench_maas.py [--count 5000] [--few 100] [--at 32] [--sides libmaas,few,many,run]

python-libmaas 0.6.8 (its last, of 2022) is in an environment of its own, without which its side is left out:

    UV_PROJECT_ENVIRONMENT=.cache/libmaas .cache/uv/bin/uv sync --frozen --only-group libmaas

All sides ask the same simulated region (lab/maas), which answers with machines of the length of a real one's, in turn:
machines are enlisted, so many at a time, listed, and deleted. A side is a process of its own:

libmaas  FEW machines by python-libmaas, on one event loop: create, one list of all, delete. It cannot leave out the
         commissioning that an administrator's machine has, which costs its client nothing
few      the same FEW by MaasMachines, as a worker of a run has them: each step lasts until a list shows it
many     COUNT machines in the same way, ten times as many at a time
run      a whole `tippingpoint run maas-register` of COUNT machines with one worker, to its report, removal included;
         its figures are its worker's until the hold begins, what users ask for meanwhile included

CPU is user and system time for each machine, from the login on, without what interpreters and their imports take.
Memory is the most that the process held. Polls are the lists of machines that the region answered, by its own metrics;
of a run they are those that its worker polled, until the hold has ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from tests.benchmarks.sides import cpu_seconds, timed, worker_cpu  # noqa: E402

if TYPE_CHECKING:  # the sides, which are processes of this file too, have no use for it
    from lab.maas.simulator import MaasLab

PEER = REPOSITORY / ".cache" / "libmaas" / "bin" / "python"
GOAL_MS, GOAL_MIB, GOAL_POLLS = 3.0, 150.0, 1.0
"""At most this for each of many machines: CPU, memory of the worker, and lists a second."""
_LISTS = "/MAAS/api/2.0/machines/"
_POLL_S = 1.0
_RUN, _PREFIX = "bench", "tp00beef00"


@dataclass
class Cost:
    """What a side took: CPU-seconds of its client, the seconds, and the most memory in MiB."""

    machines: int
    cpu: float
    seconds: float
    memory: float
    polls: int = 0
    polled: float = 0.0
    """The seconds in which lists were polled; 0 for all."""
    region: float = 0.0


async def libmaas(credentials: Path, count: int, at: int) -> Cost:
    """Enlist, list and delete machines as python-libmaas does."""
    from maas.client import connect

    login = json.loads(credentials.read_text())
    cpu, began = cpu_seconds(), time.monotonic()
    client = await connect(login["url"], apikey=login["api_key"])

    async def create(number: int) -> None:
        await client.machines.create("amd64/generic", [_mac(number)], "manual", hostname=f"libmaas-{number}")

    await _at_once(at, [lambda number=number: create(number) for number in range(count)])
    machines = await client.machines.list()
    assert len(machines) == count
    await _at_once(at, [machine.delete for machine in machines])
    return Cost(count, cpu_seconds() - cpu, time.monotonic() - began, _peak_mib())


async def ours(credentials: Path, count: int, at: int) -> Cost:
    """Enlist, list and delete machines as a worker of a run does."""
    from tippingpoint.targets.maas.plan import MaasTarget
    from tippingpoint.targets.maas.spawn import MaasMachines
    from tippingpoint.targets.maas.workspace import MaasWorkspace
    from tippingpoint.workloads.load import untold
    from tippingpoint.workloads.spawn.target import Item

    target = MaasTarget(kind="maas", credentials=credentials)
    workspace = MaasWorkspace(run=_RUN, prefix=_PREFIX, target=target)
    cpu, began = cpu_seconds(), time.monotonic()
    machines = MaasMachines(workspace, _POLL_S)
    await machines.open()
    await machines.prepare(range(1), untold)
    items = [Item(0, number) for number in range(count)]

    async def poll() -> None:
        while True:
            await asyncio.sleep(_POLL_S)
            await machines.list_group(0, addresses=False)

    polling = asyncio.create_task(poll())  # as a run's workload does
    await _at_once(at, [lambda item=item: machines.create(item, None) for item in items])
    assert len(await machines.list_group(0, addresses=False)) == count
    await _at_once(at, [lambda item=item: machines.delete(item) for item in items])
    cost = Cost(count, cpu_seconds() - cpu, time.monotonic() - began, _peak_mib())
    polling.cancel()
    await machines.close()
    return cost


def in_process(python: Path, name: str, lab: MaasLab, count: int, at: int) -> Cost:
    """A side as a process of its own."""
    command = [str(python), __file__, "--side", name, str(lab.credentials), str(count), str(at)]
    told, _ = timed(command, {**os.environ, "PYTHONPATH": str(REPOSITORY)})
    return Cost(**json.loads(told.splitlines()[-1]))


def run(lab: MaasLab, count: int, at: int) -> Cost:
    """A whole run of the shipped plan with this many machines."""
    from tippingpoint.rundir.results import load_run

    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "tippingpoint", "run", "maas-register", "--out", out]
        for setting in (
            *lab.settings(),
            f"stages=[{{instances: {count}, hold: 5s}}]",
            f"workload.concurrency={at}",
            "workers=1",
        ):
            command += ["--set", setting]
        timed(command, os.environ)
        (directory,) = (path for path in Path(out).iterdir() if path.is_dir())
        (stage,) = load_run(directory).stages
        until = stage.hold_begin or stage.end
        cpu = worker_cpu(directory, stage.begin, until)
        ticks = [json.loads(line) for line in (directory / "worker-0.jsonl").read_text().splitlines()]
        memory = max(tick["rss"] for tick in ticks if tick["event"] == "tick")
    # Every second poll is of rack controllers. Users' lists, and those of the removal, are not the worker's.
    polls, polled = stage.count("poll") // 2, stage.end - stage.begin
    return Cost(count, cpu, until - stage.begin, memory, polls, polled)


def lists_answered(lab: MaasLab) -> int:
    """The lists of machines that the region has answered."""
    from prometheus_client.parser import text_string_to_metric_families

    with urllib.request.urlopen(lab.metrics_url) as answer:
        text = answer.read().decode()
    return round(
        sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "maas_http_request_latency_count"
            and (sample.labels["method"], sample.labels["path"], sample.labels["op"]) == ("GET", _LISTS, "")
        )
    )


async def _at_once(at: int, acts: Sequence[Callable[[], Awaitable[Any]]]) -> None:
    """Do all, so many at a time."""
    left = iter(acts)

    async def work() -> None:
        for act in left:
            await act()

    await asyncio.gather(*(work() for _ in range(at)))


def _mac(number: int) -> str:
    return "02:00:00:" + ":".join(f"{byte:02x}" for byte in number.to_bytes(3, "big"))


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--few", type=int, default=100)
    parser.add_argument("--at", type=int, default=32)
    parser.add_argument("--sides", default="libmaas,few,many,run", help="those to run (%(default)s)")
    options = parser.parse_args()
    from lab.maas.simulator import MaasLab
    from tests.benchmarks.sides import ran_seconds

    own = Path(sys.executable)
    sides: dict[str, Callable[[MaasLab], Cost]] = {
        "libmaas": lambda lab: in_process(PEER, "libmaas", lab, options.few, options.at),
        "few": lambda lab: in_process(own, "ours", lab, options.few, options.at),
        "many": lambda lab: in_process(own, "ours", lab, options.count, 10 * options.at),
        "run": lambda lab: run(lab, options.count, 10 * options.at),
    }
    named = [side for side in options.sides.split(",") if side != "libmaas" or PEER.exists()]
    if "libmaas" in options.sides and not PEER.exists():
        print(f"libmaas is left out: {PEER} is not there; see --help")
    costs: dict[str, Cost] = {}
    for side in named:
        with MaasLab() as lab:  # a region of its own: none pays for what another has left
            before = ran_seconds(lab.pid)
            cost = costs[side] = sides[side](lab)
            cost.polls = cost.polls or lists_answered(lab)
            cost.region = ran_seconds(lab.pid) - before
    print(
        f"{'side':8} {'machines':>8} {'CPU/machine':>12} {'memory':>9} {'polls':>6} {'a second':>9}", end=""
    )
    print(f" {'seconds':>8} {'region/machine':>15}")
    for side, cost in costs.items():
        each, polled = 1000 * cost.cpu / cost.machines, cost.polls / (cost.polled or cost.seconds)
        print(f"{side:8} {cost.machines:8d} {each:9.2f} ms {cost.memory:5.0f} MiB {cost.polls:6d}", end="")
        print(f" {polled:9.2f} {cost.seconds:8.1f} {1000 * cost.region / cost.machines:12.2f} ms")
    if "libmaas" in costs:
        theirs = costs["libmaas"]
        for side in ("few", "many"):
            if side in costs:
                share = (costs[side].cpu / costs[side].machines) / (theirs.cpu / theirs.machines)
                print(f"CPU for each machine, {side} to libmaas: {share:.3f}")
    for side in ("many", "run"):
        if side in costs:
            print(f"{side}: the goals are {GOAL_MS:g} ms, {GOAL_MIB:g} MiB and {GOAL_POLLS:g} list a second")


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "--side":
        _, _, which, where, many, together = sys.argv
        side_of = {"libmaas": libmaas, "ours": ours}[which](Path(where), int(many), int(together))
        if which == "ours":
            import uvloop

            cost_of = uvloop.run(side_of)
        else:
            cost_of = asyncio.run(side_of)
        print(json.dumps(vars(cost_of)))
    else:
        main()
