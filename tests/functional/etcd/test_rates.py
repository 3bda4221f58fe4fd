"""Loads that are rates, on a real etcd: renewals, and leases that are claimed and released at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.etcd.cluster import EtcdLab
from tests.functional.program import leases_left, no_traceback, only_run, run, settings, write_plan
from tippingpoint.analysis.analyse import analyse
from tippingpoint.rundir.probe_events import probe_events


@pytest.mark.parametrize("api", ["v3", "v2"])
def test_a_ramp_of_claims_is_one_run(etcd: EtcdLab, tmp_path: Path, api: str) -> None:
    # given three rates of claims beside ten leases that stay
    plan = write_plan(
        tmp_path,
        workload={"units": 1, "claim_time": "60s", "renew_time": "1s", "timeout": "30s"},
        stages=[{"leases": 10, "claims": rate, "over": 0, "hold": "2s"} for rate in (10, 20, 40)],
        thresholds=[
            {"operation": "claim", "error_rate": 0},
            {"operation": "release-claim", "error_rate": 0},
        ],
    )
    # when it is run
    done = run("run", plan, *settings(etcd), "--set", f"target.api={api}", "--out", tmp_path / "runs")
    # then each stage claimed at its rate for as long as it lasted, and released what it had claimed
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.load_unit == "claims/s"
    assert [stage.size for stage in measured.stages] == [10, 20, 40]
    # (each worker has a claim due as a stage begins, and one that ends in the next stage counts there)
    at_once = len(measured.manifest.workers)
    due, claimed = 10.0, 0
    for stage in measured.stages:
        assert stage.end is not None
        due += stage.size * (stage.end - stage.begin) + at_once
        claimed += stage.count("claim") + stage.failures("claim")
        assert claimed <= due
        assert stage.count("release-claim") <= stage.count("claim")
        assert stage.gauges["held"] == 10
    claimed = sum(stage.count("claim") for stage in measured.stages) - 10
    released = sum(stage.count("release-claim") for stage in measured.stages)
    assert released >= 10
    assert claimed >= released
    # and nothing is left
    assert leases_left(etcd) == []


def test_renewals_a_second_are_made_by_the_leases_of_the_stage(etcd: EtcdLab, tmp_path: Path) -> None:
    # given two rates of renewals by the same forty leases
    plan = write_plan(
        tmp_path,
        workload={"units": 1, "claim_time": "60s", "renew_time": "30s", "timeout": "30s"},
        stages=[
            {"leases": 40, "renewals": 20, "over": 0, "hold": "3s"},
            {"leases": 40, "renewals": 80, "over": 0, "hold": "3s"},
        ],
        thresholds=[{"operation": "extend", "lost_rate": 0}],
    )
    # when it is run
    done = run("run", plan, *settings(etcd), "--out", tmp_path / "runs")
    # then no lease was claimed twice, and no more were extended than were due
    assert no_traceback(done.stdout, done.stderr)
    measured = only_run(tmp_path / "runs")
    assert measured.manifest.load_unit == "renewals/s"
    assert sum(stage.count("claim") for stage in measured.stages) == 40
    for stage, rate in zip(measured.stages, (20, 80), strict=True):
        assert stage.end is not None
        assert 0 < stage.count("extend") <= rate * (stage.end - stage.begin) + 40
    assert leases_left(etcd) == []


@pytest.mark.parametrize(("load", "start", "limit"), [("claims", 8, 32), ("renewals", 10, 40)])
def test_a_search_over_a_rate_ends_at_its_limit(
    etcd: EtcdLab, tmp_path: Path, load: str, start: float, limit: float
) -> None:
    # given thresholds that any rate up to the limit meets
    plan = write_plan(
        tmp_path,
        workload={"units": 1, "claim_time": "60s", "renew_time": "1s", "timeout": "30s"},
        stages=[],
        # (long enough that an etcd that stands still for a second is not behind at the end)
        find={"load": load, "start": start, "limit": limit, "over": 0, "hold": "5s"},
        thresholds=[{"operation": "claim", "p99": "20s"}, {"operation": "extend", "p99": "20s"}]
        if load == "renewals"
        else [{"operation": "claim", "p99": "20s"}],
    )
    # when the limit is looked for
    done = run("run", plan, *settings(etcd), "--out", tmp_path / "runs")
    # then the largest rate holds, and the answer is in the rate's unit
    assert done.returncode == 0, done.stdout + done.stderr
    measured = only_run(tmp_path / "runs")
    probes = probe_events(measured.events)
    assert (probes[0].size, probes[-1].size) == (start, limit)
    # (where a busy machine makes the generator late, a probe says nothing, and is made again)
    assert not [probe for probe in probes if probe.held is False], probes
    assert probes[-1].held, probes
    assert f"{limit} {load}/s" in analyse(measured).verdict.sentence
    assert leases_left(etcd) == []
