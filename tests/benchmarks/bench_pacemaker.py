"""What an update of a CIB costs the machine that asks for it: ours beside cibadmin and crm_attribute, in one run.

    .venv/bin/python tests/benchmarks/bench_pacemaker.py [--nodes N] [--count N] [--depth N] [--rounds N]

As root. A real cluster of the lab's (lab/pacemaker/cluster.py) is the same for all sides:

ours            the client of a worker, on uvloop, in a process of its own: a connection to each node, DEPTH updates of
                tickets under way at once. CPU is that of the whole process after its log-in.
cibadmin        `cibadmin --modify` of the same ticket on a node, one process an update, as all scripts do it
crm_attribute   `crm_attribute` of a node's transient attribute, likewise
A/A             ours once more: what it differs by from itself

CPU is user and system time. That of the programs is without what entering the node's namespaces takes, which is
measured with `true`. The order of the sides is another in each round; figures are medians of the rounds.

The last line is about the rate: a whole run with one worker, which holds 1,000 tickets that are due each second. Its
target is the small CIB daemon of the tests, in a process of its own, as real nodes on the same machine would take the
processors that the worker is to be measured by.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from tests.benchmarks.sides import cpu_seconds, worker_cpu  # noqa: E402

GOAL_MS, TIMES, RATE = 0.15, 10.0, 1000
"""At most so many milliseconds of CPU an update, so many times less than cibadmin's, and so many updates a second."""
_PROGRAMS = 20
"""Updates by programs in a round: each takes about as long as a hundred of ours."""
_HOLD_S = 10


async def update(credentials: Path, count: int, depth: int) -> tuple[float, float]:
    """Update tickets so often; returns updates a second, and CPU-seconds of this process."""
    from tippingpoint.targets.pacemaker.access import access
    from tippingpoint.targets.pacemaker.nodes import Nodes
    from tippingpoint.targets.pacemaker.plan import PacemakerTarget
    from tippingpoint.targets.pacemaker.stores import TICKET
    from tippingpoint.targets.pacemaker.wire import CAN_CREATE, SYNC, XPATH

    nodes = Nodes(access(PacemakerTarget(kind="pacemaker", credentials=credentials, tls="anonymous")), 1)
    await nodes.open()
    await asyncio.gather(*(link.connect() for link in nodes.links if not link.up))
    names = [f"bench-{number}" for number in range(depth)]
    for name in names:
        await nodes.links[0].call("cib_modify", TICKET.section, TICKET.create(name, "0:0"), SYNC | CAN_CREATE)
    numbers = iter(range(1, count + 1))

    async def one(place: int) -> None:
        link, name, held = nodes.links[place % len(nodes.links)], names[place], "0:0"
        for number in numbers:
            where, held = TICKET.where(name, [held]), f"0:{number}"
            answer = await link.call("cib_modify", where, TICKET.change(name, held), SYNC | XPATH)
            if answer.code != 0:
                raise SystemExit(f"{link.name}: rc {answer.code}")

    before, began = cpu_seconds(), time.perf_counter()
    await asyncio.gather(*map(one, range(depth)))
    took, used = time.perf_counter() - began, cpu_seconds() - before
    every = TICKET.all_of("bench-")
    await nodes.links[0].call("cib_delete", every, None, SYNC | XPATH | 4)
    nodes.close("done")
    return count / took, used


def ours(credentials: Path, count: int, depth: int) -> tuple[float, float]:
    """Updates a second, and milliseconds of CPU an update."""
    command = [
        sys.executable,
        __file__,
        "--side",
        str(credentials),
        "--count",
        str(count),
        "--depth",
        str(depth),
    ]
    told = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY).stdout
    rate, used = json.loads(told)
    return rate, used / count * 1e3


def program(pid: int, *command: str) -> tuple[float, float]:
    """Run a program on a node, whose first process this is; the same as of `ours`."""
    entered = ["nsenter", f"--target={pid}", "--mount", "--uts", "--ipc", "--net", "--pid", "--"]
    began, used = time.perf_counter(), 0.0
    for number in range(_PROGRAMS):
        filled = [word.replace("NUMBER", str(number)) for word in command]
        process = subprocess.Popen([*entered, *filled], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(filled)}: exit {process.returncode}")
        used += usage.ru_utime + usage.ru_stime
    return _PROGRAMS / (time.perf_counter() - began), used / _PROGRAMS * 1e3


def held_rate() -> tuple[float, float]:
    """Hold 1,000 tickets that are due each second with one worker: extends a second, and CPU-milliseconds of each."""
    from tippingpoint.rundir.results import load_run

    with tempfile.TemporaryDirectory() as out:
        daemon = subprocess.Popen(
            [sys.executable, __file__, "--daemon", out], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
        )
        try:
            assert daemon.stdout is not None
            credentials = daemon.stdout.readline().strip()
            plan = Path(out, "plan.yaml")
            plan.write_text(
                f"name: rate\ntarget: {{kind: pacemaker, tls: anonymous, credentials: {credentials}}}\nworkers: 1\n"
                "workload: {units: 1, claim_time: 60s, renew_time: 1s}\n"
                f"stages: [{{leases: {RATE}, over: 2s, hold: {_HOLD_S}s}}]\n"
            )
            runs = Path(out, "runs")
            command = [sys.executable, "-m", "tippingpoint", "run", str(plan), "--out", str(runs)]
            subprocess.run(
                command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=REPOSITORY
            )
            (directory,) = runs.iterdir()
            (stage,) = load_run(directory).stages
            assert stage.hold_begin is not None
            assert stage.end is not None
            rate = stage.throughput("extend") or 0.0
            used = worker_cpu(directory, stage.hold_begin, stage.end)
            return rate, used / (rate * (stage.end - stage.hold_begin)) * 1e3
        finally:
            daemon.kill()


async def serve(directory: Path) -> None:
    """Be the daemon of `held_rate`: three nodes with one store."""
    from tests.unit.targets.pacemaker.small_cib import SmallCib, section, serving

    tickets: dict[str, str] = {}
    nodes = [SmallCib(tickets) for _ in range(3)]
    async with serving(*nodes):
        print(section(directory, *nodes).credentials, flush=True)
        await asyncio.Event().wait()


def main() -> int:
    """Print every side's figures; returns 0 if the goals are met."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--daemon", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is not None:
        import uvloop

        print(json.dumps(uvloop.run(update(options.side, options.count, options.depth))))
        return 0
    if options.daemon is not None:
        asyncio.run(serve(options.daemon))
        return 0
    from lab.pacemaker.cluster import PacemakerLab

    found: dict[str, list[tuple[float, float]]] = {}
    with PacemakerLab(options.nodes) as lab:
        pid = lab.pids[lab.names[0]]
        lab.run_on(
            lab.names[0],
            *("cibadmin", "--modify", "--allow-create", "--scope=status"),
            "--xml-text=<status><tickets><ticket_state id='program' held=''/></tickets></status>",
        )
        ticket = "--xml-text=<ticket_state id='program' held='0:NUMBER'/>"
        attribute = ("crm_attribute", "--node=node1", "--name=bench", "--update=NUMBER", "--lifetime=reboot")
        sides: dict[str, Callable[[], tuple[float, float]]] = {
            "ours": lambda: ours(lab.credentials, options.count, options.depth),
            "cibadmin": lambda: program(
                pid, "cibadmin", "--modify", "--xpath=/cib/status/tickets/ticket_state[@id='program']", ticket
            ),
            "crm_attribute": lambda: program(pid, *attribute),
            "true": lambda: program(pid, "true"),
            "A/A": lambda: ours(lab.credentials, options.count, options.depth),
        }
        order = list(sides)
        for _ in range(options.rounds):
            for side in order:
                found.setdefault(side, []).append(sides[side]())
            order = [*order[1:], order[0]]
    rates = {side: statistics.median(rate for rate, _ in turns) for side, turns in found.items()}
    costs = {side: statistics.median(cost for _, cost in turns) for side, turns in found.items()}
    entering = costs.pop("true")
    for side, cost in costs.items():
        own = cost - entering if side in ("cibadmin", "crm_attribute") else cost
        costs[side] = own
        print(
            f"{side:14} {rates[side]:8.0f} updates/s  {own:7.3f} ms CPU an update  {own / costs['ours']:6.1f} x ours"
        )
    rate, cost = held_rate()
    print(f"one worker, {RATE} tickets due a second: {rate:.0f}/s, {cost:.3f} ms CPU each, reports and all")
    ratio = costs["cibadmin"] / costs["ours"]
    met = costs["ours"] <= GOAL_MS and ratio >= TIMES and rate >= 0.98 * RATE
    print(f"goals: {GOAL_MS} ms, {TIMES:g} x less than cibadmin, {RATE}/s: {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
