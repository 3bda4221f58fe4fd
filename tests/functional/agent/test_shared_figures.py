"""Figures of a real Prometheus in a run, and in a search, of two agents on a real etcd."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab.etcd.cluster import EtcdLab
from lab.prometheus import PrometheusLab
from tests.functional.agent.agents import Leader
from tests.functional.agent.test_agent import a_plan, nothing_left, target, two_agents, whole_report
from tippingpoint.analysis.analyse import analyse
from tippingpoint.monitoring.scrape.jobs import static_targets
from tippingpoint.rundir.results import load_run

pytestmark = pytest.mark.usefixtures("quick_hooks")

NOBODY = "http://127.0.0.1:1"
CLAIMS = {"units": 1, "claim_time": "60s", "renew_time": "1s", "timeout": "30s"}
PROPOSALS = {"figure": "etcd-proposals", "role": "leader", "at_most": 120}
"""What the leader commits a second: three changes for each lease that is claimed and released."""


def test_the_leaders_agent_asks_prometheus_and_the_next_leaders_goes_on(
    etcd: EtcdLab, tmp_path: Path
) -> None:
    # given a stage below a limit of what the leader commits, and one above it that would last for long
    plan = a_plan(
        etcd,
        workload=CLAIMS,
        stages=[
            {"leases": 0, "claims": rate, "over": 0, "hold": hold} for rate, hold in ((10, "4s"), (80, "20m"))
        ],
        thresholds=[{**PROPOSALS, "abort": True}, {"figure": "etcd-memory", "at_most": "8GB"}],
    )
    fields = plan.model_dump(mode="json", exclude_none=True)
    with (
        PrometheusLab([static_targets("\n".join(etcd.endpoints))]) as prometheus,
        two_agents(tmp_path) as (one, other),
    ):
        access = {"url": prometheus.url}
        # when an agent is asked before the run, it says what keeps Prometheus from telling
        assert one.done("check-figures", plan=fields, prometheus={"url": NOBODY}).startswith(f"{NOBODY}: ")
        assert one.done("check-figures", plan=fields, prometheus=access) == ""
        # when two agents play the plan, and another unit leads once the first stage is over
        leader = Leader(plan, [one, other], target(etcd), access)
        leader.until(lambda: leader.run.figures.turns)
        assert leader.run.figures.turns == {1}
        leader.leading = other
        leader.until(lambda: leader.run.over)
        run = leader.run
        # then the next leader's agent has seen that the second stage is above the limit, and that ends the run
        assert re.fullmatch(
            r"aborted: etcd-proposals of the leader was \d+ \(threshold 120, abort\)", run.stopped
        )
        assert run.missing == {}
        assert run.figures.turns == {1, 2}
        assert nothing_left(etcd, run.id)
        report = whole_report(leader, one, other)
    # and the run of both has its figures as a run of one machine has them
    assert f"Missed: {run.stopped}" in report["text"]
    whole = load_run(Path(report["path"]).parent)
    first, second = (stage.figures for stage in whole.stages)
    assert list(first) == ["etcd-proposals of the leader", "etcd-memory"]
    assert first["etcd-proposals of the leader"].value == pytest.approx(30, rel=0.5)
    assert first["etcd-memory"].host in {endpoint.removeprefix("http://") for endpoint in etcd.endpoints}
    assert list(second) == list(first)


def test_a_figure_binds_a_search_that_two_units_share(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a limit of what the leader commits, which 40 claims a second reach
    plan = a_plan(
        etcd,
        workload=CLAIMS,
        stages=[],
        find={"load": "claims", "start": 20, "limit": 160, "hold": "6s", "over": 0, "resolution": 1},
        thresholds=[{"operation": "claim", "p99": "1m"}, PROPOSALS],
    )
    with (
        PrometheusLab([static_targets("\n".join(etcd.endpoints))]) as prometheus,
        two_agents(tmp_path) as (one, other),
    ):
        # when two agents search for it together
        leader = Leader(plan, [one, other], target(etcd), {"url": prometheus.url})
        leader.until(lambda: leader.run.over)
        run = leader.run
        # then each load was judged by its figure, too
        assert run.missing == {}
        assert run.figures.turns == {probe.stage for probe in run.probes}
        assert nothing_left(etcd, run.id)
        report = whole_report(leader, one, other)
    # and it binds where it is known to, and the report of the whole says so
    found = analyse(load_run(Path(report["path"]).parent)).found
    assert found is not None
    assert found.answer.binds == "etcd-proposals of the leader"
    assert found.answer.limit == pytest.approx(40, rel=0.4)
    assert "limited by etcd-proposals of the leader over 120" in report["text"]
