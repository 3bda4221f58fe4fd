"""What a unit's share of a load shows while it is held."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.play.run_ticks import tick_of
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.read import parse_plan
from tippingpoint.play.early_end_vote import EarlyEndVote, ShareSoFar
from tippingpoint.play.live_stage import LiveStage
from tippingpoint.rundir.histogram import Histogram

P99 = "{operation: extend, p99: 100ms}"


def share_with(*thresholds: str) -> ShareSoFar:
    plan = parse_plan(
        "{name: search, workload: {renew_time: 5s}, find: {start: 100, limit: 1000, hold: 30s}, thresholds: ["
        + ", ".join(thresholds)
        + "]}"
    )
    assert isinstance(plan, ClaimPlan)
    assert plan.find is not None
    share = ShareSoFar(plan, plan.find)
    # a load that held is over, so later ones may end early
    share.remember(50, 0.5, held(30, 5))
    return share


def held(seconds: int, milliseconds: float, failed: int = 0, count: int = 100) -> LiveStage:
    """So many seconds of a hold, in each of which so many leases were extended, and so many failed to be."""
    so_far = LiveStage(1, 50, "find", begin=0.0)
    so_far.begin_hold(0.0)
    samples: dict[str, Any] = {"extend.ok": Histogram.of([int(milliseconds * 1000)] * count)}
    if failed:
        samples["extend.error"] = Histogram.of([1000] * failed)
    for second in range(seconds):
        so_far.add(tick_of(samples=samples, t=second + 1.0))
    return so_far


@pytest.mark.parametrize(
    ("seconds", "milliseconds", "shown"),
    [(20, 5, "held"), (20, 400, "extend p99"), (20, 95, ""), (20, 105, ""), (5, 5, ""), (5, 400, "")],
    ids=["far below", "far above", "just below", "just above", "good, but early", "bad, but early"],
)
def test_a_share_is_clear_when_a_whole_load_would_be(seconds: int, milliseconds: float, shown: str) -> None:
    assert share_with(P99).shows(100, 0.5, held(seconds, milliseconds)) == shown


@pytest.mark.parametrize(("failed", "shown"), [(0, ""), (50, "extend error_rate")])
def test_the_threshold_that_is_missed_is_named(failed: int, shown: str) -> None:
    # given latencies that are near their limit
    share = share_with("{operation: extend, p99: 100ms, error_rate: 0.01}")
    assert share.shows(100, 0.5, held(20, 90, failed)) == shown


def test_a_throughput_is_limited_by_the_share_of_the_load() -> None:
    # given 100 extends a second, where all units together have to reach 80
    share = share_with("{operation: extend, throughput: 80}")
    # then that is plenty of a quarter of the load, and not clear of all of it
    assert share.shows(100, 0.25, held(20, 5)) == "held"
    assert share.shows(100, 1.0, held(20, 5)) == ""
    # and a unit without a share has nothing to say
    assert share.shows(100, 0.0, held(20, 5)) == ""


def test_a_share_that_measured_nothing_of_a_threshold_does_not_hold() -> None:
    """Another unit may miss that threshold."""
    share = share_with(P99, "{operation: claim, p99: 1s}")
    assert share.shows(100, 0.5, held(20, 5)) == ""
    assert share.shows(100, 0.5, held(20, 400)) == "extend p99"


def test_what_was_said_is_taken_back_once() -> None:
    # given a share that is clear, is not any more, and is clear again
    stance = EarlyEndVote()
    said = [stance.news(shown) for shown in ("", "held", "held", "", "held", "extend p99")]
    # then it is said and taken back, and nothing more is said of that hold
    assert said == [None, "held", None, "", None, None]
    assert stance.is_final
    # and a share that turns to the contrary is not clear
    other = EarlyEndVote()
    assert [other.news(shown) for shown in ("held", "extend p99", "extend p99")] == ["held", "", None]


def test_no_share_holds_before_its_end_where_a_load_paused_before() -> None:
    """The pause may come again."""
    share, paused = share_with(P99), held(30, 5)
    paused.add(tick_of(samples={"extend.ok": Histogram.of([300_000] * 60)}, t=16.0))
    assert share.shows(100, 0.5, held(20, 5)) == "held"
    # given a load that held although it paused
    share.remember(80, 0.5, paused)
    # then another load that shows no pause yet is not clear
    assert share.shows(100, 0.5, held(20, 5)) == ""
    # and a new participant in the run waits for the end of its first hold
    plan = parse_plan(
        "{name: search, workload: {renew_time: 5s}, find: {start: 1, limit: 9, hold: 30s}, thresholds: ["
        + P99
        + "]}"
    )
    assert isinstance(plan, ClaimPlan)
    assert plan.find is not None
    assert ShareSoFar(plan, plan.find).shows(100, 0.5, held(20, 5)) == ""
