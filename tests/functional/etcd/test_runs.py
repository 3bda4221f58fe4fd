"""Whole runs on a real etcd cluster, through the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]
from hdrh.log import HistogramLogReader  # type: ignore[import-untyped]

from lab.etcd.cluster import EtcdLab
from tests.functional.program import (
    WITHIN_S,
    etcd_call,
    expect_missed,
    keys,
    leases,
    leases_left,
    no_traceback,
    only_run,
    run,
    settings,
    start,
    wait_for_hold,
    write_plan,
)
from tippingpoint.rundir.results import load_run


@pytest.mark.parametrize("api", ["v3", "v2"])
def test_a_run_claims_extends_reports_and_leaves_nothing(etcd: EtcdLab, tmp_path: Path, api: str) -> None:
    # given a quick plan of 20 leases of 2 units
    plan = write_plan(tmp_path)
    # when it is run
    done = run("run", plan, *settings(etcd), "--set", f"target.api={api}", "--out", tmp_path / "runs")
    # then its thresholds are met, every lease was claimed by one unit and denied to the other
    assert done.returncode == 0, done.stderr
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.status == "complete"
    (stage,) = measured.stages
    assert stage.count("claim") == 20
    assert stage.count("claim", "denied") == 20
    assert stage.gauges["held"] == 20
    # and each was renewed each half second of a two-second hold, and meanwhile as others were still claimed
    assert stage.end is not None
    assert 60 <= stage.count("extend") <= 20 * (stage.end - stage.begin) / 0.5
    assert stage.failures("extend") == 0
    # and the report is there and the target is as it was
    assert "report.html" in done.stdout
    assert (measured.directory / "report.html").stat().st_size > 10_000
    assert not [key for key in keys(etcd.endpoints[0]) if measured.manifest.id in key]
    assert leases_left(etcd) == []


def test_the_journal_opens_in_the_kept_reader(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a run
    assert run("run", write_plan(tmp_path), *settings(etcd), "--out", tmp_path / "runs").returncode == 0
    measured = only_run(tmp_path / "runs")
    # when its logs are read with HdrHistogram's own reader
    total = 0
    for log in sorted(measured.directory.glob("*.hlog")):
        reader = HistogramLogReader(str(log), HdrHistogram(1, 3_600_000_000, 3))
        while (histogram := reader.get_next_interval_histogram()) is not None:
            if histogram.get_tag() == "extend.ok":
                total += histogram.get_total_count()
    # then they hold the same samples
    assert total == measured.stages[0].count("extend")


def test_json_goes_to_standard_output_alone(etcd: EtcdLab, tmp_path: Path) -> None:
    done = run("run", write_plan(tmp_path), *settings(etcd), "--out", tmp_path / "runs", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["verdict"]["outcome"] == "met"


def test_a_smaller_stage_releases_the_surplus(etcd: EtcdLab, tmp_path: Path) -> None:
    plan = write_plan(
        tmp_path,
        stages=[{"leases": 20, "over": 0, "hold": "1s"}, {"leases": 5, "over": 0, "hold": "3s"}],
    )
    assert run("run", plan, *settings(etcd), "--out", tmp_path / "runs").returncode == 0
    assert [stage.gauges["held"] for stage in only_run(tmp_path / "runs").stages] == [20, 5]


def test_find_confirms_the_largest_load_that_holds(etcd: EtcdLab, tmp_path: Path) -> None:
    # given thresholds that any load up to the limit meets
    plan = write_plan(
        tmp_path,
        stages=[],
        find={"start": 5, "limit": 10, "over": 0, "hold": "1500ms", "repeats": 2},
        thresholds=[{"operation": "extend", "p99": "10s", "lost_rate": 0}],
    )
    # when the plan is run
    done = run("run", plan, *settings(etcd), "--out", tmp_path / "runs")
    # then the limit is the answer, found and tried twice again, each time from nothing
    assert done.returncode == 0, done.stdout + done.stderr
    measured = only_run(tmp_path / "runs")
    assert [(stage.size, stage.kind) for stage in measured.stages] == [
        (5, "find"), (10, "find"), (10, "confirm"), (10, "confirm"),
    ]  # fmt: skip
    assert [stage.count("claim") for stage in measured.stages] == [5, 10, 10, 10]
    (found,) = [event for event in measured.events if event["event"] == "found"]
    assert (found["held"], found["broken"], found["confirmed"]) == (10, None, True)


def test_a_restart_storm_claims_as_many_new_leases_at_once(etcd: EtcdLab, tmp_path: Path) -> None:
    plan = write_plan(tmp_path, faults=[{"do": "drop-claims", "stage": 1, "at": "1s"}])
    done = run("run", plan, *settings(etcd), "--out", tmp_path / "runs")
    assert done.returncode == 0, done.stdout + done.stderr
    ramp, storm = only_run(tmp_path / "runs").stages
    assert (ramp.kind, storm.kind) == ("ramp", "storm")
    assert (ramp.count("claim"), storm.count("claim")) == (20, 20)
    assert leases_left(etcd) == []


def test_a_lease_taken_behind_its_back_is_lost_and_claimed_again(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a run that holds 20 leases
    process = start(
        "run",
        write_plan(tmp_path, stages=[{"leases": 20, "over": 0, "hold": "10s"}]),
        *settings(etcd),
        "--out",
        tmp_path / "runs",
    )
    directory = wait_for_hold(tmp_path / "runs")
    # when an administrator revokes one of them
    victim = leases(etcd.endpoints[0])[0]
    etcd_call(etcd.endpoints[0], "/v3/lease/revoke", {"ID": str(victim)})
    process.communicate(timeout=WITHIN_S)
    # then its holder loses it, the loss is in the report, and somebody claims it
    measured = load_run(directory)
    (stage,) = measured.stages
    assert stage.count("extend", "lost") == 1
    (lost,) = [event for event in measured.events if event["event"] == "lost"]
    assert stage.end is not None
    assert 0 < lost["held_for"] < stage.end
    assert stage.count("claim") == 21
    assert stage.gauges["held"] == 20


@pytest.mark.parametrize("api", ["v3", "v2"])
def test_a_stalled_target_is_not_flattered(
    new_etcd: Callable[..., EtcdLab], tmp_path: Path, api: str
) -> None:
    # given a target that stops dead for 5 s of a 12 s hold (of one member: several may elect a leader after that, and
    # lose what they were asked for)
    etcd = new_etcd(members=1)
    stall = [{"do": "stop", "member": "m1", "stage": 1, "at": "2s", "undo_after": "5s"}]
    plan = write_plan(
        tmp_path,
        workload={"units": 1, "claim_time": "30s", "renew_time": "250ms", "timeout": "20s"},
        stages=[{"leases": 20, "over": "250ms", "hold": "12s"}],
        faults=stall,
        thresholds=[{"operation": "extend", "p99": "1s"}],
    )
    # when it is run
    done = run("run", plan, *settings(etcd), "--set", f"target.api={api}", "--out", tmp_path / "runs")
    # then it misses its threshold, which its exit code says, too
    expect_missed(done, only_run(tmp_path / "runs"), "extend", "p99")
    assert "extend p99" in done.stdout
    # and every renewal that was due meanwhile counts from the moment it was due, sent or not
    assert no_traceback(done.stdout, done.stderr)
    (stage,) = only_run(tmp_path / "runs").stages
    response, service = stage.response("extend"), stage.service("extend")
    assert response.percentile(99) > 4_000_000
    assert response.percentile(75) > 1_000_000
    # while a generator that waits for its answers would have seen one slow call for each lease
    assert service.percentile(90) < 1_000_000
