"""How far a stage was from its thresholds, and how well that is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.made.made_runs import made_stage
from tippingpoint.analysis.search.stage_margins import judged, margin_names, stage_margins
from tippingpoint.analysis.thresholds import stage_checks
from tippingpoint.plan.base import Threshold
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.stages import StageResult


def extend(**limits: Any) -> list[Threshold]:
    return [Threshold.model_validate({"operation": "extend", **limits})]


def margin_of(stage: StageResult, **limits: Any) -> tuple[float, float]:
    (margin,) = stage_margins(stage, extend(**limits))
    return margin.value, margin.error


class TestLatency:
    def test_is_the_logarithm_of_what_was_seen_over_what_is_allowed(self) -> None:
        stage = made_stage(1, 100, {"extend.ok": [20.0] * 1000})
        value, error = margin_of(stage, p99="10ms")
        assert value == pytest.approx(math.log(2), abs=0.002)
        assert 0 < error < 0.001  # the width of a histogram's slot: all samples are the same

    def test_its_error_is_that_of_repeated_holds(self) -> None:
        # given 300 holds of 2000 log-normal latencies of the same target
        random = np.random.default_rng(20)
        holds = [
            made_stage(1, 100, {"extend.ok": np.exp(random.normal(3.0, 0.5, 2000)).tolist()})
            for _ in range(300)
        ]
        # when the margin of each is computed
        values, errors = np.asarray([margin_of(hold, p99="100ms") for hold in holds]).T
        # then the errors say by how much the margins differ
        assert np.median(errors) == pytest.approx(values.std(ddof=1), rel=0.2)

    @pytest.mark.parametrize("limit", ["p999", "max"])
    def test_its_error_is_known_where_the_percentile_is_the_largest_sample(self, limit: str) -> None:
        # given holds of 300 latencies with a tail whose logarithm is exponential
        random = np.random.default_rng(20)
        holds = [
            made_stage(1, 100, {"extend.ok": np.exp(random.exponential(0.3, 300) + 3).tolist()})
            for _ in range(300)
        ]
        values, errors = np.asarray([margin_of(hold, **{limit: "100ms"}) for hold in holds]).T
        assert np.median(errors) == pytest.approx(values.std(ddof=1), rel=0.25)

    def test_bursts_make_it_less_certain(self) -> None:
        # given ten seconds, and all slow answers in two of them
        slow, fast = [50.0] * 20 + [5.0] * 80, [5.0] * 100
        seconds = [{"extend.ok": Histogram.of(np.asarray(each) * 1000)} for each in (slow, slow, *[fast] * 8)]
        stage = made_stage(1, 100, {"extend.ok": slow * 2 + fast * 8})
        (alone,) = stage_margins(stage, extend(p95="50ms"))
        (in_bursts,) = stage_margins(stage, extend(p95="50ms"), seconds=seconds)
        assert in_bursts.value == alone.value
        assert in_bursts.error > 1.5 * alone.error


class TestRates:
    def test_are_finite_without_any_failure(self) -> None:
        stage = made_stage(1, 100, {"extend.ok": [5.0] * 10_000})
        value, error = margin_of(stage, error_rate=0.001)
        assert value == pytest.approx(math.log(0.5 / 11))
        assert error == pytest.approx(math.log(2))
        value, _ = margin_of(stage, lost_rate=0)
        assert value == pytest.approx(math.log(0.5 / 10_000))

    def test_where_one_failure_is_too_many_none_is_far_from_it(self) -> None:
        # given so few attempts that a thousandth of them is less than one
        stage = made_stage(1, 100, {"extend.ok": [5.0] * 480})
        # then it is as if none were allowed: otherwise no load is further from the limit than another, and a latency
        # that is does not tell
        assert margin_of(stage, error_rate=0.001) == margin_of(stage, error_rate=0)

    def test_many_failures_are_known_as_well_as_their_count(self) -> None:
        stage = made_stage(1, 100, {"extend.ok": [5.0] * 9600, "extend.error": [5.0] * 400})
        value, error = margin_of(stage, error_rate=0.02)
        assert value == pytest.approx(math.log(2), abs=0.01)
        assert error == pytest.approx(1 / math.sqrt(400), rel=0.01)


def test_a_throughput_that_is_too_low_is_above_zero() -> None:
    stage = made_stage(1, 100, {"extend.ok": [5.0] * 3000})  # in 30 s
    value, error = margin_of(stage, throughput=200)
    assert value == pytest.approx(math.log(2))
    assert error == pytest.approx(1 / math.sqrt(3000), rel=0.01)


def test_what_was_not_measured_has_no_margin() -> None:
    stage = made_stage(1, 100, {"claim.ok": [5.0] * 100})
    assert stage_margins(stage, extend(p99="1s", error_rate=0.1, lost_rate=0)) == []


@given(
    st.lists(st.floats(0.1, 1000), min_size=1, max_size=300),
    st.integers(0, 40),
    st.floats(0.001, 2),
    st.sampled_from(["p50", "p99", "max", "error_rate", "lost_rate", "throughput"]),
)
def test_a_margin_is_above_zero_just_when_the_check_is_missed(
    latencies: list[float], failures: int, limit: float, kind: str
) -> None:
    outcome = "lost" if kind == "lost_rate" else "error"
    stage = made_stage(1, 100, {"extend.ok": latencies, f"extend.{outcome}": [1.0] * failures})
    thresholds = extend(**{kind: min(1.0, limit / 10) if kind.endswith("rate") else limit})
    (margin,), (check,) = stage_margins(stage, thresholds), stage_checks(stage, thresholds)
    assert math.isfinite(margin.value)
    assert margin.error > 0
    assert (margin.value <= 0) == check.met


class TestTheJudgedPart:
    def test_is_the_hold(self) -> None:
        # given a probe in whose ramp the backlog of the load before was answered
        stage = made_stage(2, 100, {"extend.ok": [5.0] * 100}, kind="find")
        ramp = {"extend.ok": Histogram.of([9_000_000] * 50), "claim.ok": Histogram.of([7_000] * 10)}
        stage.histograms = {
            name: Histogram.merged([found[name] for found in (ramp, stage.held) if name in found])
            for name in ramp
        }
        # then its extends are those of the hold, and its claims those of the ramp
        part = judged(stage)
        assert part.response("extend").max < 6_000
        assert part.count("claim") == 10

    def test_of_another_stage_is_all_of_it(self) -> None:
        stage = made_stage(1, 100, {"extend.ok": [5.0]})
        assert judged(stage) is stage

    def test_has_what_was_never_answered(self) -> None:
        stage = made_stage(2, 100, {"extend.ok": [5.0] * 98}, kind="find")
        part = judged(stage, {"extend": [5.1, 6.2]})
        assert part.count("extend", "timeout") == 2
        assert part.attempts("extend") == 100
        assert part.response("extend", "timeout").max > 6_000_000


def test_limits_that_only_are_reported_are_named_by_their_limit() -> None:
    several = [*extend(p99="100ms", lost_rate=0.01), *extend(p99="250ms")]
    assert margin_names(several[:1]) == ["extend p99", "extend lost_rate"]
    assert margin_names(several, also=True) == [
        "extend p99 100ms",
        "extend lost_rate 0.01",
        "extend p99 250ms",
    ]
