"""A generator that stands still for a while, and what its run is then judged by."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.functional.program import until, workers_of
from tests.functional.spawn_runs import ended
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.latency import costs, freed_costs
from tippingpoint.report import write_report
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.rundir.standstills import PULSE
from tippingpoint.rundir.worker_journal import read_worker_events, worker_names
from tippingpoint.util.numbers import show_us

STOOD_STILL_S = 4.0
ASKED_EVERY_S = 6.0
LONG_STILL_S = 2 * ASKED_EVERY_S
"""Whatever is asked that often falls due twice meanwhile, and once in the first half of it."""
LISTS = {"workload": {"observe_every": f"{ASKED_EVERY_S:g}s"}, "workers": 1}
"""What users ask for every so often while a stage is held."""
LISTED_FOR = f"{LONG_STILL_S + 60:g}s"
"""Long enough that what fell due while the worker stood still is answered in the same stage, although a machine that
stands still meanwhile lets it go on later. (Who ends a hold by a signal has no verdict of it.)"""


def longest_stall(measured: RunData) -> float:
    """The seconds for which a worker of a run stood still at most."""
    return max((stall.seconds for stall in measured.stalls), default=0.0)


def ticks(directory: Path) -> int:
    """How many ticks the workers of a run have written."""
    return sum(map(len, ticks_of(directory)))


def ticks_of(directory: Path) -> list[list[dict[str, Any]]]:
    """The ticks of each worker of a run so far."""
    return [read_worker_events(directory, name, 1.0).ticks for name in worker_names(directory)]


def held_now(directory: Path) -> float:
    """How many leases the workers of a run hold, by their last ticks."""
    return sum(of_worker[-1]["held"] for of_worker in ticks_of(directory) if of_worker)


def await_ticks(directory: Path, more: int) -> None:
    """Wait until the workers of a run have written so many ticks more."""
    before = ticks(directory)
    until(lambda: ticks(directory) >= before + more, f"{more} ticks more")


def stop_for(pids: Sequence[int], seconds: float) -> None:
    """Stop processes, and let them go on after some seconds."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def stop_workers_of(process: subprocess.Popen[str], directory: Path, seconds: float = STOOD_STILL_S) -> None:
    """Stop the workers of a run that is held, alone, while it puts its load on."""
    await_ticks(directory, 2)
    stop_for(workers_of(process.pid), seconds)


def with_limit(directory: Path, operation: str) -> RunData:
    """A run whose plan then has a limit: operations were late beyond it, and only by the generator's own delay.

    How long a target takes for what fell due meanwhile, all at once, depends on the machine, so that the limit is
    chosen when that has been measured.
    """
    stage = load_run(directory).stages[0]
    late, freed = (found(stage, operation).max / 1e6 for found in (costs, freed_costs))
    assert late > freed
    manifest = Manifest.load(directory)
    assert manifest.plan is not None
    manifest.plan["thresholds"] = [{"operation": operation, "max": (freed + late) / 2}]
    manifest.save(directory)
    return load_run(directory)


def expect_own_standstill(measured: RunData, operation: str, seconds: float = STOOD_STILL_S) -> None:
    """The verdict on a run is withheld for a threshold on that operation; it says what stood still, and so does every
    view of the report."""
    verdict = analyse(measured).verdict
    assert (verdict.outcome, verdict.exit_code) == ("withheld", 4), verdict
    stall = max(measured.stalls, key=lambda stall: stall.seconds)
    assert stall.seconds >= seconds - 2 * PULSE  # it is told from the first beat that was missed
    doubted = [check for check in verdict.checks if check.met is None]
    assert {check.operation for check in doubted} == {operation}
    assert all("the generator itself was " in check.why for check in doubted)
    assert any(check.why in verdict.sentence for check in doubted)
    document = json.loads(write_report(analyse(measured), "json"))
    assert stall.seconds in [told["seconds"] for told in document["generator"]["stalls"]]
    marks = [mark for mark in document["events"]["marks"] if mark["kind"] == "stall"]
    assert f"stalled {show_us(stall.seconds * 1e6)}" in [mark["label"] for mark in marks]
    assert all(mark["text"].startswith("worker ") for mark in marks)
    for view in ("html", "md"):
        assert f"worker {stall.worker} " in write_report(analyse(measured), view)


def stop_what_lists(process: subprocess.Popen[str], directory: Path, within: float) -> None:
    """Stop the worker of a run that is held until lists were due, and expect that the run is complete all the same."""
    stop_workers_of(process, directory, LONG_STILL_S)
    done = ended(process, within)
    assert done.returncode == 0, done.stdout + done.stderr
