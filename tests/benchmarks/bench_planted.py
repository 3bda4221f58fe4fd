"""How often 3, 5 and 10 % more CPU time for an operation are found on a real etcd, beside foreign work.

    .venv/bin/python tests/benchmarks/bench_planted.py [--trials 20] [--seed 2026] [--out runs/planted] [--hold 8]
        [--again] [--markdown]

A trial is fifteen runs: three of an etcd of one member, three of the same once more, and three of each slowdown, in
random order. A run is a ramp of three loads. It is planted by a helper process that reads the member's CPU clock ten
times a second, and burns that share of what the member took since: so an operation takes exactly 3, 5 or 10 % more CPU
time, and competes for it. The helper's own bookkeeping is part of what it burns, and its CPU time is counted as the
target's. Without a slowdown there is no helper.

Meanwhile a program of our own burns a whole core for 2 to 15 s, pauses for 5 to 30 s, and so on (bench_repeats.py).
What else the machine does is not ours; its load is noted.

CPU time is read twice a second from the processes' CPU clocks, which count nanoseconds, and kept in each run's
directory as its resources. Then runs are compared as `tippingpoint compare` does. `cost` is found if its sentence says
that an operation takes more CPU. `p50` and `p99` are of the response time of extensions at the largest load that all
runs held, tested as costs are, with no tolerance. Otava's E-divisive and PELT (ruptures) look at the same six costs,
and the same six p50, in a row; without the packages they are left out.

Each trial is a line of OUT/SEED.jsonl as soon as it ends, so the same command goes on where it was cut. `--again`
compares kept runs by the code of today.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from lab.control import LabError  # noqa: E402
from lab.etcd.cluster import EtcdLab  # noqa: E402
from lab.tether import tethered  # noqa: E402
from tests.benchmarks.bench_find import show  # noqa: E402
from tests.benchmarks.bench_repeats import foreign_load  # noqa: E402
from tippingpoint.analysis.latency import costs  # noqa: E402
from tippingpoint.analysis.operation_costs import cpu_costs  # noqa: E402
from tippingpoint.compare.compare import compare  # noqa: E402
from tippingpoint.compare.repeats import changes, percentile_level  # noqa: E402
from tippingpoint.errors import TargetError, UserError  # noqa: E402
from tippingpoint.plan.read import parse_plan  # noqa: E402
from tippingpoint.play.runner import Runner  # noqa: E402
from tippingpoint.rundir.resources import FigureData, Resources, Series, write_resources  # noqa: E402
from tippingpoint.rundir.results import RunData, load_run  # noqa: E402

REPEATS = 3
SLOWER = {"same": 0.0, "3 %": 0.03, "5 %": 0.05, "10 %": 0.10}
"""What is compared with the first three runs, and the share that is planted in each."""
LOADS = (100, 200, 400)
STEP = 0.5
"""Seconds between two readings of CPU clocks."""
REST = 3.0
"""Seconds before a run, in which the target has nothing to do."""
METHODS = ("cost", "p50", "p99", "otava cost", "otava p50", "PELT cost", "PELT p50")
_BURN = """
import sys, time
member, share = (~int(sys.argv[1]) << 3) | 2, float(sys.argv[2])  # the kernel's id of a process' CPU clock
begun = time.clock_gettime(member) - time.process_time() / share
while True:
    time.sleep(0.1)
    until = share * (time.clock_gettime(member) - begun)
    while time.process_time() < until:
        pass
"""


def plan_of(hold: float) -> dict[str, Any]:
    return {
        "name": "planted",
        "target": {"kind": "etcd"},
        "workload": {"units": 1, "claim_time": "10s", "renew_time": "510ms", "timeout": "5s"},
        "stages": [{"leases": leases, "over": "2s", "hold": f"{hold:g}s"} for leases in LOADS],
        "thresholds": [{"operation": operation, "error_rate": 0.01} for operation in ("claim", "extend")],
        "workers": 1,
    }


def cpu_seconds(pid: int) -> float:
    """Return the CPU-seconds of all threads that a process has and had."""
    return time.clock_gettime((~pid << 3) | 2)


@contextmanager
def slowed(pid: int, share: float) -> Generator[list[int]]:
    """Let the target take so much more CPU; yields the processes that are the target."""
    if not share:
        yield [pid]
        return
    program = [sys.executable, "-I", "-S", "-c", _BURN, str(pid), str(share)]
    process = subprocess.Popen(tethered(program), start_new_session=True)
    try:
        yield [pid, process.pid]
    finally:
        process.kill()
        process.wait()


class Readings:
    """Reads the CPU clocks of processes, on a thread of its own."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._ended = threading.Event()
        self.times: list[float] = []
        """Unix seconds."""
        self.taken: list[float] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        while not self._ended.wait(STEP - time.time() % STEP):
            self.taken.append(sum(map(cpu_seconds, self._pids)))
            self.times.append(time.time())

    def end(self) -> None:
        self._ended.set()
        self._thread.join()

    def resources(self, started: float) -> Resources:
        """Return them as a run's resources. What was late stands at the moment it was read at."""
        rates = np.diff(self.taken) / np.diff(self.times)
        figure = FigureData(
            name="etcd-cpu",
            title="CPU",
            unit="cores",
            meaning="Cores that the target keeps busy.",
            pack="etcd",
            cost="operations",
            series=[Series(host="m1", values=[None, *rates.tolist()])],
        )
        t = [moment - started for moment in self.times]
        return Resources(source="CPU clocks of the target's processes", step=STEP, t=t, figures=[figure])


def run_once(share: float, hold: float, out: Path) -> Path:
    """Run the plan on a fresh etcd that takes so much more CPU."""
    with ExitStack() as stack:
        lab = stack.enter_context(EtcdLab(1))
        pids = stack.enter_context(slowed(lab.pids["m1"], share))
        time.sleep(1)  # the helper has started
        plan = parse_plan(yaml.safe_dump(plan_of(hold)), lab.settings(), "planted")
        readings = Readings(pids)
        try:
            time.sleep(REST)
            directory = uvloop.run(Runner(plan, out).run())
        except (TargetError, UserError) as problem:
            raise LabError(str(problem), "a run that measured something") from None
        finally:
            readings.end()
    write_resources(directory, readings.resources(load_run(directory).manifest.started))
    return directory


def run_trial(directory: Path, seed: str, hold: float) -> dict[str, list[str]]:
    """Run a trial in a fresh directory; returns the runs of each name."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    names = [name for name in ("first", *SLOWER) for _ in range(REPEATS)]
    random.Random(seed).shuffle(names)
    runs: dict[str, list[str]] = {}
    with foreign_load(seed, []):
        for name in names:
            of_name = runs.setdefault(name, [])
            out = directory / f"{len(of_name)}-{name.replace(' %', '')}"
            of_name.append(str(run_once(SLOWER.get(name, 0.0), hold, out)))
    return runs


def found(runs: dict[str, list[str]]) -> dict[str, dict[str, Any]]:
    """Return for each slowdown which method finds it, and what our cost says."""
    loaded = {name: [load_run(Path(path)) for path in paths] for name, paths in runs.items()}
    return {name: _found(loaded["first"], loaded[name]) for name in SLOWER}


def _found(before: Sequence[RunData], after: Sequence[RunData]) -> dict[str, Any]:
    comparison = compare([before, after])
    cost = next((one for one in comparison.operation_costs if one.costs.key.operation == "extend"), None)
    told: dict[str, Any] = {"sentence": comparison.sentence, "ratio": None}
    each: list[float] = []
    if cost is not None:
        against = cost.against[0]
        told["ratio"] = [against.change, against.low, against.high]
        each = [
            cpu_costs(analysis.operation_costs)["extend"].value
            for release in comparison.releases
            for analysis in release.analyses
        ]
        told["costs"] = each
    # A slower target is one that takes more; said either way, it is an alarm of the same release.
    told["cost"] = "times the CPU of" in comparison.sentence
    size = max(LOADS)
    latencies = [[_latencies(run, size) for run in side] for side in (before, after)]
    figures = [percentile_level("extend", percentile, *latencies) for percentile in (50.0, 99.0)]
    for name, change in zip(
        ("p50", "p99"), changes([f for f in figures if f is not None], None), strict=False
    ):
        told[name] = change.certain
    medians = [float(one.percentile(50)) for side in latencies for one in side]
    for name, values in (("cost", each), ("p50", medians)):
        told |= {
            f"{method} {name}": peer(values) for method, peer in PEERS.items() if len(values) == 2 * REPEATS
        }
    return told


def _latencies(run: RunData, size: int) -> Any:
    return next(costs(stage, "extend") for stage in run.stages if stage.size == size)


def _otava(values: Sequence[float]) -> bool | None:
    try:
        analysis = importlib.import_module("otava.analysis")
    except ImportError:
        return None
    return bool(analysis.compute_change_points(list(values))[0])


def _pelt(values: Sequence[float]) -> bool | None:
    try:
        ruptures = importlib.import_module("ruptures")
    except ImportError:
        return None
    logs = np.log(values)
    scatter = float(np.median(np.abs(np.diff(logs)))) / 0.6745 / np.sqrt(2)
    places = (
        ruptures.Pelt(model="l2", min_size=2, jump=1).fit(logs).predict(pen=2 * scatter**2 * log(len(logs)))
    )
    return len(places) > 1


PEERS = {"otava": _otava, "PELT": _pelt}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=20, help="fifteen runs each, of some 40 s")
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--out", type=Path, default=Path("runs/planted"), help="where runs are kept")
    parser.add_argument("--hold", type=float, default=8.0, help="seconds that each load is held for")
    parser.add_argument("--again", action="store_true", help="compare kept runs anew, and run none")
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    asked.out.mkdir(parents=True, exist_ok=True)
    file: Path = asked.out / f"{asked.seed}.jsonl"
    done = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    if any(line["hold"] != asked.hold for line in done):
        raise SystemExit(f"{file}: made with another --hold: expected the same, or another --out or --seed")
    for number in range(len(done), 0 if asked.again else asked.trials):
        at, began = time.strftime("%Y-%m-%d %H:%M"), time.monotonic()
        directory = asked.out / str(asked.seed) / str(number)
        runs = run_trial(directory, f"{asked.seed}-{number}", asked.hold)
        line = {
            "trial": number,
            "at": at,
            "hold": asked.hold,
            "seconds": round(time.monotonic() - began),
            "load": os.getloadavg()[0],
            "runs": runs,
            "found": found(runs),
        }
        with file.open("a") as lines:
            lines.write(json.dumps(line) + "\n")
        done.append(line)
        print(json.dumps({key: line[key] for key in ("trial", "at", "seconds", "load")}), flush=True)
    if asked.again:
        for line in done:
            line["found"] = found(line["runs"])
    _print(done, asked.markdown)


def _print(trials: Sequence[dict[str, Any]], markdown: bool) -> None:
    head = ["planted", "ratio", *METHODS]
    show(head, markdown)
    if markdown:
        show(["---"] * len(head), True)
    for name in SLOWER:
        of_name = [trial["found"][name] for trial in trials]
        ratios = [one["ratio"][0] for one in of_name if one["ratio"] is not None]
        ratio = f"{exp(float(np.mean(np.log(ratios)))):.3f}" if ratios else "–"
        cells: list[str] = []
        for method in METHODS:
            told = [one.get(method) for one in of_name]
            known = [one for one in told if one is not None]
            cells.append(f"{sum(known)} of {len(known)}" if known else "–")
        show([name, ratio, *cells], markdown)


if __name__ == "__main__":
    main()
