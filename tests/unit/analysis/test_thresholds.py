"""What a stage measured of each limit of a threshold, what is allowed, whether it is met, and by which margin."""

from __future__ import annotations

from math import log
from typing import Any

import pytest

from tests.unit.made.made_runs import made_stage
from tippingpoint.analysis.thresholds import Check, limits_of, stage_checks
from tippingpoint.plan.base import Threshold
from tippingpoint.rundir.figure_values import FigureValue

ANSWERED = {"extend.ok": [20.0] * 960, "extend.timeout": [20.0] * 30, "extend.lost": [20.0] * 10}
"""1,000 attempts of a stage, in milliseconds; its hold lasts 30 s."""


def extend(**limits: Any) -> Threshold:
    return Threshold.model_validate({"operation": "extend", **limits})


def check_of(limits: dict[str, Any], counts: dict[str, list[float]] = ANSWERED) -> Check:
    (check,) = stage_checks(made_stage(3, 2000, counts), [extend(**limits)])
    return check


@pytest.mark.parametrize(
    ("limit", "written", "allowed", "observed", "met", "margin"),
    [
        ("p50", "10ms", 10_000, 20_000, False, log(2)),
        ("p99", "10ms", 10_000, 20_000, False, log(2)),
        ("p999", "80ms", 80_000, 20_000, True, -log(4)),
        ("max", "20.1ms", 20_100, 20_000, True, log(20 / 20.1)),
        # 30.5 failures are as far from the limit as it takes to 51, the fewest that are too many.
        ("error_rate", 0.05, 0.05, 0.03, True, log(30.5 / 51)),
        ("lost_rate", 0, 0, 0.01, False, log(10.5)),
        ("throughput", 64, 64, 32, False, log(2)),
        ("throughput", 16, 16, 32, True, -log(2)),
    ],
)
def test_each_limit_has_value_allowed_met_and_margin(
    limit: str, written: str | float, allowed: float, observed: float, met: bool, margin: float
) -> None:
    check = check_of({limit: written})
    assert (check.operation, check.limit, check.stage, check.size) == ("extend", limit, 3, 2000)
    assert check.allowed == pytest.approx(allowed)
    assert check.observed == pytest.approx(observed, rel=0.001)  # the width of a histogram's slot
    assert (check.met, check.why) == (met, "")
    assert check.margin == pytest.approx(margin, abs=0.001)


@pytest.mark.parametrize("limits", [{"p99": "1s"}, {"error_rate": 0.1}, {"lost_rate": 0}])
def test_an_operation_that_was_not_attempted_is_neither_met_nor_missed(limits: dict[str, Any]) -> None:
    check = check_of(limits, {"claim.ok": [5.0] * 10})
    assert (check.observed, check.met, check.margin, check.why) == (None, None, None, "not measured")
    assert not check.is_doubtful


def test_a_throughput_without_attempts_is_missed_by_no_known_margin() -> None:
    check = check_of({"throughput": 10}, {"claim.ok": [5.0] * 10})
    assert (check.observed, check.met, check.margin) == (0.0, False, None)


def test_there_is_no_throughput_without_a_clock() -> None:
    stage = made_stage(1, 1000, ANSWERED)
    (check,) = stage_checks(stage, [extend(throughput=10)], clock_known=False)
    assert (check.observed, check.met, check.why) == (None, None, "not measured")


@pytest.mark.parametrize(
    ("value", "why", "met", "margin"),
    [
        (600e6, "", False, log(2)),
        (600e6, "etcd-2 was not scraped", False, log(2)),
        (150e6, "", True, -log(2)),
        (150e6, "etcd-2 was not scraped", None, None),
        (0.0, "", True, log(1e-3)),
        (None, "connection refused", None, None),
    ],
)
def test_a_figure_is_missed_at_any_host_and_met_at_all(
    value: float | None, why: str, met: bool | None, margin: float | None
) -> None:
    stage = made_stage(1, 1000, ANSWERED)
    stage.figures = {"etcd-memory": FigureValue(stage=1, name="etcd-memory", value=value, why=why)}
    (check,) = stage_checks(stage, [Threshold.model_validate({"figure": "etcd-memory", "at_most": "300MB"})])
    assert (check.operation, check.allowed, check.unit) == ("etcd-memory", 300e6, "bytes")
    assert (check.observed, check.met) == (value, met)
    assert check.margin == (margin if margin is None else pytest.approx(margin))
    assert check.is_doubtful == (met is None)
    assert check.why == (why if met is None else "")


def test_limits_have_a_name_for_journals_and_a_title_for_people() -> None:
    threshold = extend(throughput=40, lost_rate=0.01, p999="1.5s")
    assert [(limit.name, limit.title, limit.written) for limit in limits_of(threshold)] == [
        ("extend p999", "extend p99.9", "1.5s"),
        ("extend lost_rate", "extend lost rate", "0.01"),
        ("extend throughput", "extend throughput", "40"),
    ]
    assert [limit.show(limit.allowed) for limit in limits_of(threshold)] == ["1.5 s", "1 %", "40/s"]
    memory = Threshold.model_validate({"figure": "etcd-memory", "role": "leader", "at_most": "300MB"})
    (limit,) = limits_of(memory)
    assert (limit.name, limit.written, limit.show(412e6)) == (
        "etcd-memory of the leader",
        "300MB",
        "412 MB",
    )
