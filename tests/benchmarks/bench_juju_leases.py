"""What a lease test on Juju costs the machine that runs it, beside the published test's own tool, in one run.

    LEADERSHIPCLAIMER=PATH .venv/bin/python tests/benchmarks/bench_juju_leases.py [--rounds N] [--seconds S]

The peer is `leadershipclaimer`, which Juju's developers run on a controller they patched: in Juju's source, built
with `go build ./scripts/leadershipclaimer`. Every side runs in its turn against a fresh SIMULATED controller
(lab/juju/simulator.py, patched as that tool needs it, its store instant) for the same time: LEASES leases that UNITS
units each want over a connection of their own, claims of 10 s, renewals each 5 s. The simulator's own cost is not
counted. Ours is a whole run, `tippingpoint run` to its finished report, as `agent` (as the tool: one agent's login
for all), with the workers that its load needs (one worker) and with one per core, and as `hollow` (which makes its
units first, and removes them; the tool cannot do this).

CPU is user and system time. Memory is the sum of every process's own peak of resident memory; "at once" is the
greatest sum of the processes' proportional shares (PSS) seen at one time, four times a second: what the machine has
to have. Python's bytecode is cached in a directory of this benchmark's, which a first short run fills, as the first
run of any installation does. "Its engine" is the worker processes alone, which make the load; the rest is the command
line, which begins and watches the run and writes its report. Figures are medians of the rounds; ratios are to the
tool's.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from lab.juju.simulator import JujuLab  # noqa: E402
from tests.benchmarks.juju_side import agent_conf, make_agent  # noqa: E402
from tippingpoint.rundir.results import load_run  # noqa: E402
from tippingpoint.targets.juju.api.access import from_store  # noqa: E402
from tippingpoint.targets.juju.api.login import Identity  # noqa: E402
from tippingpoint.util.open_files import allow_connections  # noqa: E402

GOAL = 0.6
CLAIM, RENEW = 10, 5
CLAIMER_SLEEPS = 1
"""Seconds the tool sleeps before it begins (its --sleep); ours spends them starting its interpreters."""
WATCH_EVERY = 0.25
_TICKS = os.sysconf("SC_CLK_TCK")
_ENGINE = b"tippingpoint.play.worker"


@dataclass
class Cost:
    """What one side took in one round."""

    cpu: float
    engine_cpu: float
    peak: float
    """MiB: the sum of all processes' peaks."""
    engine_peak: float
    at_once: float
    """MiB: the most of all processes together."""
    connections: int
    extensions: int


@dataclass
class _Seen:
    cpu: float = 0.0
    peak: float = 0.0
    engine: bool = False


class Watch:
    """Follows a process and its descendants until it ends."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._seen: dict[int, _Seen] = {}
        self.at_once = 0.0
        self.cpu = 0.0

    def until_end(self, stop_after: float | None) -> None:
        """Look four times a second; after so many seconds the process is told to end (SIGTERM)."""
        deadline = None if stop_after is None else time.monotonic() + stop_after
        while True:
            self._look()
            ended, _, used = os.wait4(self._process.pid, os.WNOHANG)
            if ended:
                self._process.returncode = 0  # reaped here, so that its resource usage is known
                self.cpu = used.ru_utime + used.ru_stime
                return
            if deadline is not None and time.monotonic() > deadline:
                self._process.terminate()
                deadline = None
            time.sleep(WATCH_EVERY)

    def _look(self) -> None:
        shares = 0.0
        for pid in _tree(self._process.pid):
            with contextlib.suppress(OSError, IndexError):  # it ended while we looked
                seen = self._seen.setdefault(pid, _Seen())
                seen.engine |= _ENGINE in Path(f"/proc/{pid}/cmdline").read_bytes()
                times = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                seen.cpu = (int(times[11]) + int(times[12])) / _TICKS
                seen.peak = max(seen.peak, _mib(f"/proc/{pid}/status", "VmHWM"))
                shares += _mib(f"/proc/{pid}/smaps_rollup", "Pss")
        self.at_once = max(self.at_once, shares)

    def peak(self, engine: bool) -> float:
        """MiB: the sum of the peaks of all processes, or of the workers alone."""
        return sum(seen.peak for seen in self._seen.values() if seen.engine or not engine)

    @property
    def engine_cpu(self) -> float:
        """Seconds of the workers, when they were last seen."""
        return sum(seen.cpu for seen in self._seen.values() if seen.engine)


def _tree(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for children in Path(f"/proc/{parent}/task").glob("*/children"):
                found += map(int, children.read_text().split())
    return found


def _mib(path: str, field: str) -> float:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path(path).read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


@dataclass(frozen=True)
class Scene:
    """A fresh simulator with one agent, and the load to put on it."""

    lab: JujuLab
    model: str
    agent: Identity
    directory: Path
    bytecode: Path
    leases: int
    units: int
    seconds: float


Side = Callable[[Scene], Cost]


def claimer(tool: str) -> Side:
    """The published test's tool."""

    def run(scene: Scene) -> Cost:
        host, _, port = scene.lab.addresses[0].rpartition(":")
        command = [tool, "--quiet", f"--hosts={host}", f"--port={port}", f"--uuid={scene.model}",
                   f"--unit={_unit_name(scene.agent)}", f"--password={scene.agent.password}",
                   f"--claimtime={CLAIM}s", f"--renewtime={RENEW}s", f"--sleep={CLAIMER_SLEEPS}s"]  # fmt: skip
        # Its own script shuffles the units of each lease, in turn over the leases (run.sh beside it).
        command += [f"tool-a{lease}x/{unit}" for lease in range(scene.leases) for unit in range(scene.units)]
        output = scene.directory / "claimer.log"
        with output.open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
            watch = Watch(process)
            watch.until_end(CLAIMER_SLEEPS + scene.seconds)
        said = output.read_text()
        if " failed " in said:
            raise SystemExit(f"leadershipclaimer: {said[: said.index(' failed ') + 200].splitlines()[-1]}")
        return Cost(
            watch.cpu,
            watch.cpu,
            watch.peak(engine=False),
            watch.peak(engine=False),
            watch.at_once,
            said.count("s connected ["),
            said.count("s extended "),
        )

    return run


def ours(identity: str, workers: int | None) -> Side:
    """This suite, by its command line."""

    def run(scene: Scene) -> Cost:
        over = min(5.0, scene.seconds / 2)
        settings = [
            f"stages=[{{leases: {scene.leases}, over: {over}, hold: {scene.seconds - over}}}]",
            f"workload={{units: {scene.units}, claim_time: {CLAIM}, renew_time: {RENEW}, timeout: 10}}",
            "thresholds=[]",
            *([f"workers={workers}"] if workers else []),
        ]
        if identity == "agent":
            settings += [
                "target.identity=agent",
                f"target.agent={agent_conf(scene.directory, scene.lab, scene.model, scene.agent)}",
            ]
        else:
            settings += scene.lab.settings()
        command = [sys.executable, "-m", "tippingpoint", "run", "juju-leases-small",
                   "--out", str(scene.directory / "runs")]  # fmt: skip
        for setting in settings:
            command += ["--set", setting]
        output = scene.directory / "ours.log"
        environment = os.environ | scene.lab.environment | {"PYTHONPYCACHEPREFIX": str(scene.bytecode)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with output.open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=REPOSITORY)
            with process:
                watch = Watch(process)
                watch.until_end(None)
        runs = [path for path in (scene.directory / "runs").glob("*") if path.is_dir()]
        if len(runs) != 1:
            raise SystemExit(f"tippingpoint: {output.read_text()}")
        measured = load_run(runs[0])
        if measured.manifest.status != "complete":
            raise SystemExit(f"tippingpoint: {measured.manifest.status}: {measured.manifest.reason}")
        return Cost(
            watch.cpu,
            watch.engine_cpu,
            watch.peak(engine=False),
            watch.peak(engine=True),
            watch.at_once,
            sum(stage.count("connect", "ok") for stage in measured.stages),
            sum(stage.count("extend", "ok") for stage in measured.stages),
        )

    return run


def _unit_name(agent: Identity) -> str:
    application, _, number = agent.tag.removeprefix("unit-").rpartition("-")
    return f"{application}/{number}"


def one_turn(side: Side, bytecode: Path, leases: int, units: int, seconds: float) -> Cost:
    """One side on a simulator of its own."""
    with tempfile.TemporaryDirectory() as made, JujuLab(patched=True) as lab:
        model, agent = asyncio.run(make_agent(from_store(lab.controller, lab.data)))
        return side(Scene(lab, model, agent, Path(made), bytecode, leases, units, seconds))


def take_turns(sides: dict[str, Side], rounds: int, *load: Any) -> dict[str, list[Cost]]:
    """Every side in its turn, as often as asked."""
    figures: dict[str, list[Cost]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as bytecode:
        for identity in ("agent", "hollow"):
            one_turn(ours(identity, 1), Path(bytecode), 2, 1, 1.0)
        for number in range(1, rounds + 1):
            for name, side in sides.items():
                figures[name].append(cost := one_turn(side, Path(bytecode), *load))
                print(f"round {number}, {name}: {cost}", file=sys.stderr, flush=True)
    return figures


def compare(tool: str, rounds: int, leases: int, units: int, seconds: float, only: str | None) -> None:
    """Print the medians of the rounds, and what they are of the tool's."""
    sides = {
        "leadershipclaimer": claimer(tool),
        "ours, agent": ours("agent", None),
        "ours, agent, worker per core": ours("agent", len(os.sched_getaffinity(0))),
        "ours, hollow": ours("hollow", None),
    }
    if only is not None:
        sides = {name: side for name, side in sides.items() if only in name or name == "leadershipclaimer"}
    figures = take_turns(sides, rounds, leases, units, seconds)
    print(
        f"{leases} leases x {units} units, claims {CLAIM} s, renewals each {RENEW} s, {seconds:g} s, on a "
        f"SIMULATED controller; medians of {rounds}"
    )
    peer = _medians(figures["leadershipclaimer"])
    print(
        f"{'':30}{'CPU s':>8}{'ratio':>7}{'MiB':>8}{'ratio':>7}{'at once':>9}{'ratio':>7}"
        f"{'connections':>13}{'extensions':>12}"
    )
    for name, costs in figures.items():
        of = _medians(costs)
        print(
            f"{name:30}{of.cpu:8.2f}{of.cpu / peer.cpu:7.2f}{of.peak:8.1f}{of.peak / peer.peak:7.2f}"
            f"{of.at_once:9.1f}{of.at_once / peer.at_once:7.2f}{of.connections:13.0f}{of.extensions:12.0f}"
        )
        if name != "leadershipclaimer":
            print(
                f"{'  its engine alone':30}{of.engine_cpu:8.2f}{of.engine_cpu / peer.cpu:7.2f}"
                f"{of.engine_peak:8.1f}{of.engine_peak / peer.peak:7.2f}"
            )
    print(f"goal: CPU and memory at most {GOAL} of leadershipclaimer's")


def _medians(costs: list[Cost]) -> Cost:
    names = Cost.__dataclass_fields__
    return Cost(**{name: statistics.median(getattr(cost, name) for cost in costs) for name in names})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--leases", type=int, default=334)
    parser.add_argument("--units", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=75.0, help="how long each side claims and renews")
    parser.add_argument("--only", metavar="TEXT", help="of ours only the sides with this in their names")
    parser.add_argument("--claimer", metavar="PATH", default=os.environ.get("LEADERSHIPCLAIMER"))
    options = parser.parse_args()
    tool = shutil.which(options.claimer) if options.claimer else None
    if tool is None:
        print(
            f"leadershipclaimer: {options.claimer or 'missing'}: expected its path in LEADERSHIPCLAIMER or "
            "--claimer (scripts/leadershipclaimer in Juju's source, built with go build)",
            file=sys.stderr,
        )
        sys.exit(2)
    allow_connections(2 * options.leases * options.units)
    compare(tool, options.rounds, options.leases, options.units, options.seconds, options.only)


if __name__ == "__main__":
    main()
