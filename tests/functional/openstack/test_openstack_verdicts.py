"""What a run on OpenStack is judged by: loads it held until its end, and no lateness of the generator's own."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from lab.openstack.cloud import OpenstackLab
from tests.functional.openstack.openstack_runs import LONG_S, plan_of, start_at
from tests.functional.program import only_run, sentences
from tests.functional.spawn_runs import ended, going, wait_for
from tests.functional.standstills import (
    LISTED_FOR,
    LISTS,
    LONG_STILL_S,
    expect_own_standstill,
    stop_what_lists,
    with_limit,
)
from tippingpoint.analysis.findings import examine

pytestmark = pytest.mark.openstack


def test_an_openstack_run_that_is_ended_in_mid_hold_held_what_was_held_before(
    openstack: OpenstackLab, tmp_path: Path
) -> None:
    stages = [{"instances": 1, "hold": "1s"}, {"instances": 2, "hold": "20m"}]
    plan = plan_of(tmp_path, stages=stages, thresholds=[{"operation": "boot_server", "p50": "10m"}])
    process = start_at(openstack, plan, tmp_path / "runs")
    with going(process):
        wait_for(tmp_path / "runs", process, "stage", 1, phase="hold", stage=2)
        process.send_signal(signal.SIGINT)
        ended(process, LONG_S)
    measured = only_run(tmp_path / "runs")
    assert examine(measured).loads_held == [1]
    assert sentences(measured)[0].endswith("; passed up to 1 server.")


def test_a_worker_that_stood_still_blames_no_openstack(openstack: OpenstackLab, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, stages=[{"instances": 1, "hold": LISTED_FOR}], **LISTS)
    process = start_at(openstack, plan, tmp_path / "runs")
    directory = wait_for(tmp_path / "runs", process, "stage", within=LONG_S, phase="hold")
    stop_what_lists(process, directory, LONG_S)
    expect_own_standstill(with_limit(directory, "network-list"), "network-list", LONG_STILL_S)
