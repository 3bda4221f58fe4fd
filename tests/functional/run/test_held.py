"""Nothing is called held that was not: runs on real targets that end early, lose workers, or lose their target."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from lab.etcd.cluster import EtcdLab
from lab.juju.simulator import JujuLab
from tests.functional.juju.juju_runs import SHORT, start_on
from tests.functional.program import (
    only_run,
    sentences,
    settings,
    start,
    wait_for_hold,
    workers_of,
    write_plan,
)
from tests.functional.spawn_runs import ended, going, wait_for
from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.findings import examine
from tippingpoint.report import write_report

TWO = [{"leases": 10, "over": "200ms", "hold": "1s"}, {"leases": 20, "over": "200ms", "hold": "20m"}]
"""One stage that is held to its end, and one that is longer than any test."""
SELDOM: dict[str, Any] = {
    "workload": {"units": 2, "claim_time": "60s", "renew_time": "5s", "timeout": "30s"},
    "thresholds": [{"operation": "claim", "p50": "10m"}],
}
"""Renewals that no machine is so late with that a load counts as not held."""


def test_a_run_that_is_ended_in_its_ramp_held_nothing(etcd: EtcdLab, tmp_path: Path) -> None:
    # given leases that are claimed one after the other for twenty minutes
    plan = write_plan(tmp_path, stages=[{"leases": 2000, "over": "20m", "hold": "1s"}])
    process = start("run", plan, *settings(etcd), "--out", tmp_path / "runs")
    with going(process):
        wait_for(tmp_path / "runs", process, "tick", 2)
        # when the user has seen enough
        process.send_signal(signal.SIGINT)
        done = ended(process)
    # then nobody says that anything was held
    measured = only_run(tmp_path / "runs")
    assert done.returncode == 4, done.stdout + done.stderr
    assert examine(measured).loads_held == []
    verdict, tipping = sentences(measured)
    assert verdict.startswith("Withheld: ")
    assert "passed up to" not in verdict
    assert tipping.startswith("No load was sustained. At 2,000 leases, it was ended before its load was up")


def test_a_run_that_is_ended_in_mid_hold_held_what_was_held_before(etcd: EtcdLab, tmp_path: Path) -> None:
    plan = write_plan(tmp_path, stages=TWO, **SELDOM)
    process = start("run", plan, *settings(etcd), "--out", tmp_path / "runs")
    with going(process):
        wait_for(tmp_path / "runs", process, "stage", 2, phase="hold", stage=2)
        process.send_signal(signal.SIGINT)
        ended(process)
    measured = only_run(tmp_path / "runs")
    assert examine(measured).of(2).why_not_held == "it was ended before its hold was over"
    assert examine(measured).loads_held == [10]
    verdict, tipping = sentences(measured)
    assert verdict.endswith("; passed up to 10 leases.")
    assert tipping.startswith("No sign of tipping up to 10 leases (the largest that was sustained)")


@pytest.mark.parametrize("all_of_them", [False, True])
def test_a_load_whose_workers_were_killed_was_not_held(
    etcd: EtcdLab, tmp_path: Path, all_of_them: bool
) -> None:
    plan = write_plan(tmp_path, stages=[{"leases": 20, "over": "200ms", "hold": "20m"}])
    process = start("run", plan, *settings(etcd), "--out", tmp_path / "runs")
    with going(process):
        wait_for_hold(tmp_path / "runs")
        for victim in workers_of(process.pid)[: 2 if all_of_them else 1]:
            os.kill(victim, signal.SIGKILL)
        if not all_of_them:  # the other one goes on
            wait_for(tmp_path / "runs", process, "worker-cut")
            process.send_signal(signal.SIGINT)
        done = ended(process)
    measured = only_run(tmp_path / "runs")
    assert done.returncode == 4, done.stdout + done.stderr
    assert examine(measured).loads_held == []
    verdict, tipping = sentences(measured)
    assert "passed up to" not in verdict
    assert tipping.startswith("No load was sustained. At 20 leases, ")
    assert " cut" in tipping


def test_a_target_that_dies_for_good_is_no_load_that_was_held(etcd_private: EtcdLab, tmp_path: Path) -> None:
    # given all members killed in the second stage for good, and a plan that has no limit on errors
    stages = [{"leases": 10, "over": "200ms", "hold": "2s"}, {"leases": 20, "over": "200ms", "hold": "10s"}]
    plan = write_plan(
        tmp_path,
        workload={"units": 1, "claim_time": "60s", "renew_time": "2s", "timeout": "1s"},
        stages=stages,
        faults=[{"do": "kill", "member": name, "stage": 2, "at": "3s"} for name in etcd_private.pids],
        thresholds=[{"operation": "claim", "p50": "1m"}],
    )
    # when it is run
    process = start("run", plan, *settings(etcd_private), "--out", tmp_path / "runs")
    with going(process):
        done = ended(process)
    # then the stage is not called held, by nobody
    measured = only_run(tmp_path / "runs")
    found = examine(measured).of(2)
    assert found.why_not_held
    assert examine(measured).loads_held == [10]
    verdict, tipping = sentences(measured)
    if found.own_losses or found.late_by_us:  # on a machine so busy that the generator doubts itself
        assert done.returncode == 4, done.stdout + done.stderr
        assert verdict.startswith("Withheld: ")
        return
    assert done.returncode == 1, done.stdout + done.stderr
    assert verdict.startswith("Missed: 20 leases were not sustained: ")
    assert verdict.endswith("; passed up to 10 leases.")
    assert "between 10 and 20 leases" in tipping
    assert "A fault was injected on purpose at that load" in tipping
    assert '<failure type="held"' in write_report(analyse(measured), "junit")


def test_a_juju_run_that_is_ended_in_mid_hold_held_what_was_held_before(
    juju: JujuLab, tmp_path: Path
) -> None:
    plan = write_plan(tmp_path, **{**SHORT, **SELDOM, "stages": TWO})
    process = start_on(juju, "run", plan, "--controller", juju.controller, "--out", tmp_path / "runs")
    with going(process):
        wait_for(tmp_path / "runs", process, "stage", 2, phase="hold", stage=2)
        process.send_signal(signal.SIGINT)
        ended(process)
    measured = only_run(tmp_path / "runs")
    assert examine(measured).loads_held == [10]
    assert sentences(measured)[0].endswith("; passed up to 10 leases.")
