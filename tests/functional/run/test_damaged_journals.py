"""A run that was missed on a real etcd, and lines cut out of its journals: it is not met, and everybody is told."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from xml.etree import ElementTree

from lab.etcd.cluster import EtcdLab
from tests.functional.program import run, settings_without_lab, start, until, wait_for_hold, write_plan
from tests.functional.spawn_runs import ended
from tippingpoint.rundir.results import load_run
from tippingpoint.rundir.worker_journal import read_worker_events, worker_names

_STOPPED_S = 6.0


def ticks(directory: Path) -> int:
    return sum(len(read_worker_events(directory, name, 1.0).ticks) for name in worker_names(directory))


def test_intervals_cut_out_of_a_missed_run_do_not_make_it_met(etcd_private: EtcdLab, tmp_path: Path) -> None:
    # given a run whose etcd stood still for far longer than the limit, whatever the generator itself was late by
    plan = write_plan(
        tmp_path,
        workload={"units": 1, "claim_time": "60s", "renew_time": "500ms", "timeout": "20s"},
        stages=[{"leases": 40, "over": "500ms", "hold": "16s"}],
        thresholds=[{"operation": "extend", "max": "2s"}],
    )
    process = start("run", plan, *settings_without_lab(etcd_private), "--out", tmp_path / "runs")
    directory = wait_for_hold(tmp_path / "runs")
    before = ticks(directory)
    until(lambda: ticks(directory) >= before + 2, "the load is on")
    pids = list(etcd_private.pids.values())
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(_STOPPED_S)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    done = ended(process)
    assert done.returncode == 1, done.stdout + done.stderr
    assert load_run(directory).damage == []
    # when the intervals that had it are cut out of a copy
    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    gone = 0
    for path in copy.glob("worker-*.hlog"):
        lines = path.read_text().splitlines(keepends=True)
        kept = [line for line in lines if not (line.startswith("Tag=extend.") and _longest_ms(line) > 1500)]
        gone += len(lines) - len(kept)
        path.write_text("".join(kept))
    assert gone
    # then nobody calls it met: not its exit code, not JUnit
    again = run("report", copy, "--format", "junit")
    suite = ElementTree.fromstring(again.stdout)
    assert int(suite.get("errors", 0)) > 0
    assert "is damaged: " in again.stdout
    told = run("report", copy)
    assert "is damaged: " in told.stdout
    assert "withheld" in told.stdout
    measured = load_run(copy)
    assert {found.worker for found in measured.damage} <= set(worker_names(copy))
    assert all("missing between" in found.what for found in measured.damage)


def _longest_ms(line: str) -> float:
    """The longest value of an interval's line."""
    return float(line.split(",")[3])
