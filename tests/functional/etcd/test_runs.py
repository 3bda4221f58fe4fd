"""Whole runs on a real etcd cluster, through the command line."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram  # type: ignore[import-untyped]
from hdrh.log import HistogramLogReader  # type: ignore[import-untyped]

from lab.etcd.cluster import EtcdLab
from tests.functional.program import (
    STORMY,
    UNHURRIED,
    WITHIN_S,
    etcd_call,
    expect_missed,
    keys,
    leases,
    leases_left,
    no_traceback,
    only_run,
    run,
    sentences,
    settings,
    start,
    until,
    write_plan,
)
from tests.functional.spawn_runs import ended, going, wait_for
from tests.functional.standstills import held_now
from tippingpoint.rundir.probe_events import probe_events
from tippingpoint.rundir.results import load_run


@pytest.mark.parametrize("api", ["v3", "v2"])
def test_a_run_claims_extends_reports_and_leaves_nothing(etcd: EtcdLab, tmp_path: Path, api: str) -> None:
    # given a quick plan of 20 leases of 2 units, held for longer than a machine stands still
    plan = write_plan(tmp_path, stages=[{"leases": 20, "over": "200ms", "hold": "15s"}])
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
    # and each was renewed each half second of the hold, but for standstills, and meanwhile as others were claimed
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


def search_plan(directory: Path, limit: int, **find: str) -> Path:
    """A search with thresholds that any load up to its limit meets."""
    return write_plan(
        directory,
        workload=UNHURRIED,
        stages=[],
        find={"start": 5, "limit": limit, "over": 0, "hold": "3s", **find},
        thresholds=[{"operation": "extend", "p99": "60s", "lost_rate": 0}],
    )


def test_a_search_goes_from_load_to_load_without_emptying_the_target(etcd: EtcdLab, tmp_path: Path) -> None:
    # given thresholds that any load up to the limit meets
    plan = search_plan(tmp_path, 20)
    # when the limit is looked for
    done = run("run", plan, *settings(etcd), "--out", tmp_path / "runs")
    # then it is the search's own
    assert done.returncode == 0, done.stdout + done.stderr
    measured = only_run(tmp_path / "runs")
    (found,) = [event for event in measured.events if event["event"] == "found"]
    assert (found["ended"], found["limit"], found["low"]) == ("limit", None, 20)
    # and only the first load came up from nothing: no lease was claimed twice
    probes = probe_events(measured.events)
    assert [probe.fresh for probe in probes] == [True] + [False] * (len(probes) - 1)
    assert {stage.kind for stage in measured.stages} == {"find"}
    assert (measured.stages[0].size, measured.stages[-1].size) == (5, 20)
    assert sum(stage.count("claim") for stage in measured.stages) == 20
    assert leases_left(etcd) == []


def test_an_interrupted_search_keeps_what_it_knows_and_is_gone_on_with(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a search that is interrupted after its first probe
    plan = search_plan(tmp_path, 40, hold="5s")
    process = start("run", plan, *settings(etcd), "--out", tmp_path / "runs")

    def probed() -> bool:
        return any('"probe"' in log.read_text() for log in tmp_path.glob("runs/*/events.jsonl"))

    until(probed, "a load was tried")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=WITHIN_S)
    assert no_traceback(said)
    first = only_run(tmp_path / "runs")
    assert first.manifest.status == "interrupted"
    # then its report says what it knows
    verdict, _ = sentences(first)
    assert verdict.startswith("Withheld: the run was interrupted")
    assert "leases passed" in verdict
    # when it is resumed
    done = run("resume", first.directory, "--out", tmp_path / "more")
    # then the new run knows what the first one tried, and goes on from there
    assert done.returncode == 0, done.stdout + done.stderr
    resumed = only_run(tmp_path / "more")
    known, probes = probe_events(first.events), probe_events(resumed.events)
    assert [probe.stage for probe in probes[: len(known)]] == [None] * len(known)
    assert [probe.size for probe in probes[: len(known)]] == [probe.size for probe in known]
    assert min(stage.number for stage in resumed.stages) > len(known)
    assert probes[len(known)].fresh
    (found,) = [event for event in resumed.events if event["event"] == "found"]
    assert (found["ended"], found["low"]) == ("limit", 40)
    # and that one has its answer
    again = run("resume", resumed.directory, "--out", tmp_path / "more")
    assert again.returncode == 2
    assert "this one has its answer" in again.stderr


def test_a_search_whose_target_is_gone_ends_with_what_it_knows(
    new_etcd: Callable[..., EtcdLab], tmp_path: Path
) -> None:
    # given a search on a target of one member
    etcd = new_etcd(members=1)
    plan = search_plan(tmp_path, 1000, hold="4s")
    process = start("run", plan, *settings(etcd), "--out", tmp_path / "runs")

    def probed() -> bool:
        return any('"probe"' in log.read_text() for log in tmp_path.glob("runs/*/events.jsonl"))

    until(probed, "a load was tried")
    # when that dies
    etcd.kill("m1")
    _, said = process.communicate(timeout=WITHIN_S)
    # then the search ends, and does not take the death for a limit
    assert no_traceback(said)
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.status == "cut"
    assert "the target is gone" in measured.manifest.reason
    assert probe_events(measured.events)[-1].held is None
    assert not [event for event in measured.events if event["event"] == "found"]


def test_a_restart_storm_claims_as_many_new_leases_at_once(etcd: EtcdLab, tmp_path: Path) -> None:
    plan = write_plan(tmp_path, workload=STORMY, faults=[{"do": "drop-claims", "stage": 1, "at": "1s"}])
    done = run("run", plan, *settings(etcd), "--out", tmp_path / "runs")
    assert done.returncode == 0, done.stdout + done.stderr
    ramp, storm = only_run(tmp_path / "runs").stages
    assert (ramp.kind, storm.kind) == ("ramp", "storm")
    assert (ramp.count("claim"), storm.count("claim")) == (20, 20)
    assert leases_left(etcd) == []


def test_a_lease_taken_behind_its_back_is_lost_and_claimed_again(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a run that holds 20 leases
    plan = write_plan(tmp_path, stages=[{"leases": 20, "over": 0, "hold": "20m"}])
    process = start("run", plan, *settings(etcd), "--out", tmp_path / "runs")
    with going(process):
        directory = wait_for(tmp_path / "runs", process, "stage", 2, phase="hold")
        # when an administrator revokes one of them
        victim = leases(etcd.endpoints[0])[0]
        etcd_call(etcd.endpoints[0], "/v3/lease/revoke", {"ID": str(victim)})
        wait_for(tmp_path / "runs", process, "lost")
        until(lambda: held_now(directory) == 20, "somebody holds it again")
        process.send_signal(signal.SIGINT)
        ended(process)
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
