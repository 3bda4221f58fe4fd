"""What a run on LXD is judged by: loads it held until its end, and no lateness of the generator's own."""

from __future__ import annotations

import signal
from math import ceil
from pathlib import Path

from lab.lxd.cluster import LxdLab
from tests.functional.lxd.lxd_runs import (
    everything,
    only_a_stage,
    run_at,
    spawn_plan,
    start_at,
    wait_for_hold,
)
from tests.functional.program import WITHIN_S, no_traceback, only_run, sentences
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
from tippingpoint.rundir.probe_events import probe_events


def test_an_lxd_run_that_is_ended_in_mid_hold_held_what_was_held_before(lxd: LxdLab, tmp_path: Path) -> None:
    stages = [*only_a_stage(1, "1s"), *only_a_stage(2, "20m")]
    plan = spawn_plan(tmp_path, stages=stages, workers=1, thresholds=[{"operation": "launch", "p50": "10m"}])
    process = start_at(lxd, "run", plan, "--out", tmp_path / "runs")
    with going(process):
        wait_for_hold(tmp_path / "runs", process, stage=2, workers=1)
        process.send_signal(signal.SIGINT)
        ended(process)
    measured = only_run(tmp_path / "runs")
    assert examine(measured).loads_held == [1]
    assert sentences(measured)[0].endswith("; passed up to 1 container.")


def test_a_worker_that_stood_still_blames_no_lxd(lxd: LxdLab, tmp_path: Path) -> None:
    # given containers that are listed every so often
    plan = spawn_plan(tmp_path, stages=only_a_stage(1, LISTED_FOR), **LISTS)
    process = start_at(lxd, "run", plan, "--out", tmp_path / "runs")
    directory = wait_for(tmp_path / "runs", process, "stage", phase="hold")
    # when the worker stands still for so long that lists are late
    stop_what_lists(process, directory, WITHIN_S)
    # then a limit that they keep but for that is not missed
    expect_own_standstill(with_limit(directory, "network-list"), "network-list", LONG_STILL_S)


def test_a_search_over_containers_a_second_begins_each_rate_from_nothing(lxd: LxdLab, tmp_path: Path) -> None:
    # given thresholds that the few rates up to the limit meet
    before = everything(lxd)
    plan = spawn_plan(
        tmp_path,
        workload={"until": "created", "concurrency": None},
        stages=[],
        find={"load": "rate", "start": 1, "limit": 2, "hold": "2s"},
        thresholds=[{"operation": "launch", "p99": "10m", "error_rate": 0}],
        workers=1,
    )
    # when the limit is looked for
    done = run_at(lxd, "run", plan, "--out", tmp_path / "runs")
    # then each rate made its things, those of the rate before were gone, and nothing is left
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.load_unit == "containers/s"
    probes = probe_events(measured.events)
    assert probes[0].size == 1
    assert all(probe.fresh for probe in probes)
    assert [stage.count("launch") for stage in measured.stages] == [ceil(2 * probe.size) for probe in probes]
    assert everything(lxd) == before
