"""What was late because the generator stood still is not held against real targets; what was not, is."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.etcd.cluster import EtcdLab
from lab.juju.simulator import JujuLab
from tests.functional.program import settings, start, wait_for_hold, write_plan
from tests.functional.spawn_runs import ended
from tests.functional.standstills import (
    STOOD_STILL_S,
    await_ticks,
    expect_own_standstill,
    stop_for,
    stop_workers_of,
)
from tippingpoint.rundir.results import load_run

LIMIT = "2s"
"""Long for what renews few leases, on a machine that is ten times slower, and half of what we stand still for."""
LIMITS = [{"operation": "extend", "p999": LIMIT, "max": LIMIT}]
RENEWED = {"units": 1, "claim_time": "60s", "renew_time": "1s", "timeout": "20s"}
FEW_LEASES = 20
"""Each is renewed each second, so few fall due while we stand still, and a slow target has soon answered them."""


@pytest.mark.parametrize("api", ["v3", "v2"])
def test_a_worker_that_stood_still_blames_no_etcd(etcd: EtcdLab, tmp_path: Path, api: str) -> None:
    # given a few leases on an etcd, each renewed each second, with limits that it keeps well
    plan = write_plan(
        tmp_path,
        workload=RENEWED,
        stages=[{"leases": FEW_LEASES, "over": "500ms", "hold": "16s"}],
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


def test_an_etcd_that_stood_still_for_longer_than_the_worker_is_missed(
    etcd_private: EtcdLab, tmp_path: Path
) -> None:
    # given the same
    plan = write_plan(
        tmp_path,
        workload=RENEWED,
        stages=[{"leases": FEW_LEASES, "over": "500ms", "hold": "20s"}],
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
        stages=[{"leases": 30, "over": "500ms", "hold": "16s"}],
        thresholds=[{"operation": "extend", "max": LIMIT}],
        workers=1,
    )
    process = start("run", plan, "--out", tmp_path / "runs", **juju.environment)
    directory = wait_for_hold(tmp_path / "runs")
    stop_workers_of(process, directory)
    done = ended(process)
    assert done.returncode == 4, done.stdout + done.stderr
    expect_own_standstill(load_run(directory), "extend")
