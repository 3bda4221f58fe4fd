"""What was late because the generator stood still is not held against real targets; what was not, is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from lab.etcd.cluster import EtcdLab
from lab.juju.simulator import JujuLab
from lab.lxd.cluster import LxdLab
from lab.openstack.cloud import OpenstackLab
from tests.functional.lxd_runs import only_a_stage, spawn_plan, start_at
from tests.functional.openstack_runs import LONG_S
from tests.functional.openstack_runs import plan_of as openstack_plan
from tests.functional.openstack_runs import start_at as start_at_openstack
from tests.functional.program import WITHIN_S, start, until, wait_for_hold, write_plan
from tests.functional.spawn_runs import ended, wait_for
from tests.functional.test_run_faults import workers_of
from tests.functional.test_runs import settings
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.latency import costs, freed_costs
from tippingpoint.report import write_report
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.rundir.standstills import PULSE
from tippingpoint.rundir.worker_journal import read_worker_events, worker_names
from tippingpoint.util.durations import show_us

STOOD_STILL_S = 4.0
LIMIT = "2s"
"""Long for what renews few leases, on a machine that is ten times slower, and half of what we stand still for."""
LIMITS = [{"operation": "extend", "p999": LIMIT, "max": LIMIT}]
RENEWED = {"units": 1, "claim_time": "60s", "renew_time": "1s", "timeout": "20s"}
FEW_LEASES = 20
"""Each is renewed each second, so few fall due while we stand still, and a slow target has soon answered them."""
ASKED_EVERY_S = 6.0
LONG_STILL_S = 2 * ASKED_EVERY_S
"""Whatever is asked that often falls due twice meanwhile, and once in the first half of it."""


def ticks(directory: Path) -> int:
    """How many ticks the workers of a run have written."""
    return sum(len(read_worker_events(directory, name, 1.0).ticks) for name in worker_names(directory))


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


@pytest.mark.faults
@pytest.mark.parametrize("api", ["v3", "v2"])
def test_a_worker_that_stood_still_blames_no_etcd(etcd: EtcdLab, tmp_path: Path, api: str) -> None:
    # given a few leases on an etcd, each renewed each second, with limits that it keeps well
    plan = write_plan(
        tmp_path,
        workload=RENEWED,
        stages=[{"leases": FEW_LEASES, "over": "500ms", "hold": "10s"}],
        thresholds=LIMITS,
        workers=1,
    )
    process = start("run", plan, *settings(etcd), "--set", f"target.api={api}", "--out", tmp_path / "runs")
    directory = wait_for_hold(tmp_path / "runs")
    # when the worker alone is stopped for a while, shortly enough for no percentile of its lag
    stop_workers_of(process, directory)
    done = ended(process)
    # then its own delay is named, and no threshold is missed
    assert done.returncode == 4, done.stdout + done.stderr
    assert "the generator itself was stopped for" in done.stdout
    measured = load_run(directory)
    assert measured.stages[0].response("extend").max > 2_000_000
    expect_own_standstill(measured, "extend")


@pytest.mark.faults
def test_an_etcd_that_stood_still_for_longer_than_the_worker_is_missed(
    etcd_private: EtcdLab, tmp_path: Path
) -> None:
    # given the same
    plan = write_plan(
        tmp_path,
        workload=RENEWED,
        stages=[{"leases": FEW_LEASES, "over": "500ms", "hold": "14s"}],
        thresholds=LIMITS,
        workers=1,
    )
    process = start("run", plan, *settings(etcd_private), "--out", tmp_path / "runs")
    directory = wait_for_hold(tmp_path / "runs")
    # when the worker is stopped, and then all members for longer
    stop_workers_of(process, directory)
    await_ticks(directory, 1)
    stop_for(list(etcd_private.pids.values()), STOOD_STILL_S + 2.0)
    done = ended(process)
    # then the target's part is missed, whatever ours is
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Missed: extend" in done.stdout
    assert load_run(directory).stalls


def test_a_worker_that_stood_still_blames_no_juju_controller(juju: JujuLab, tmp_path: Path) -> None:
    plan = write_plan(
        tmp_path,
        target={"kind": "juju"},
        workload={**RENEWED, "units": 2},
        stages=[{"leases": 30, "over": "500ms", "hold": "10s"}],
        thresholds=[{"operation": "extend", "max": LIMIT}],
        workers=1,
    )
    process = start("run", plan, "--out", tmp_path / "runs", **juju.environment)
    directory = wait_for_hold(tmp_path / "runs")
    stop_workers_of(process, directory)
    done = ended(process)
    assert done.returncode == 4, done.stdout + done.stderr
    expect_own_standstill(load_run(directory), "extend")


LISTS = {"workload": {"observe_every": f"{ASKED_EVERY_S:g}s"}, "workers": 1}
"""What users ask for every so often while a stage is held."""
LISTED_FOR = f"{LONG_STILL_S + 18:g}s"
"""Long enough that what fell due while the worker stood still is answered in the same stage."""


def stop_what_lists(process: subprocess.Popen[str], directory: Path, within: float) -> None:
    """Stop the worker of a run that is held until lists were due, and expect that the run is complete all the same."""
    stop_workers_of(process, directory, LONG_STILL_S)
    done = ended(process, within)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_worker_that_stood_still_blames_no_lxd(lxd: LxdLab, tmp_path: Path) -> None:
    # given containers that are listed every so often
    plan = spawn_plan(tmp_path, stages=only_a_stage(1, LISTED_FOR), **LISTS)
    process = start_at(lxd, "run", plan, "--out", tmp_path / "runs")
    directory = wait_for(tmp_path / "runs", process, "stage", phase="hold")
    # when the worker stands still for so long that lists are late
    stop_what_lists(process, directory, WITHIN_S)
    # then a limit that they keep but for that is not missed
    expect_own_standstill(with_limit(directory, "network-list"), "network-list", LONG_STILL_S)


@pytest.mark.timeout(2 * LONG_S)
def test_a_worker_that_stood_still_blames_no_openstack(openstack: OpenstackLab, tmp_path: Path) -> None:
    plan = openstack_plan(tmp_path, stages=[{"instances": 1, "hold": LISTED_FOR}], **LISTS)
    process = start_at_openstack(openstack, plan, tmp_path / "runs")
    directory = wait_for(tmp_path / "runs", process, "stage", within=LONG_S, phase="hold")
    stop_what_lists(process, directory, LONG_S)
    expect_own_standstill(with_limit(directory, "network-list"), "network-list", LONG_STILL_S)
