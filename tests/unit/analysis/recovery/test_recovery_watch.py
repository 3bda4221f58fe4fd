"""When thresholds count as holding again."""

from __future__ import annotations

from tippingpoint.analysis.recovery.recovery_watch import RecoveryWatch
from tippingpoint.plan.base import Threshold
from tippingpoint.play.messages import Tick
from tippingpoint.rundir.journal import interval_lines
from tippingpoint.rundir.recorder import Recorded

LIMITS = [Threshold(operation="extend", p99=0.1, error_rate=0.05)]


def tick(end: float, **milliseconds: int) -> Tick:
    recorded = {name.replace("_", "."): Recorded([count * 1000] * 20) for name, count in milliseconds.items()}
    return Tick(
        **{"t": end, "seconds": 1.0, "lines": interval_lines(end - 1, end, recorded), "unwritten": 0},
        **{"retries": 0, "lost": 0, "held": 20, "waiting": 0, "in_flight": 0, "up": True},
        **{"cpu": 0.1, "loop_lag": 1.0, "rss": 60.0},
    )


def test_thresholds_have_to_hold_for_a_while() -> None:
    watch = RecoveryWatch(LIMITS, 3.0)
    watch.begin(100.0)
    for end in (101.0, 102.0):
        watch.heard(tick(end, extend_ok=800))
    for end in (103.0, 104.0):
        watch.heard(tick(end, extend_ok=4))
        assert not watch.recovered
    watch.heard(tick(105.0, extend_ok=4))

    assert watch.recovered
    assert watch.good_since == 102.0


def test_a_target_that_answers_nothing_has_not_settled() -> None:
    watch = RecoveryWatch(LIMITS, 3.0)
    watch.begin(100.0)
    for end in range(101, 120):
        watch.heard(tick(float(end)))

    assert not watch.recovered


def test_failures_keep_it_from_settling() -> None:
    watch = RecoveryWatch(LIMITS, 3.0)
    watch.begin(100.0)
    for end in range(101, 120):
        watch.heard(tick(float(end), extend_ok=4, extend_error=1))

    assert not watch.recovered


def test_leases_that_are_lost_keep_it_from_settling() -> None:
    watch = RecoveryWatch([Threshold(operation="extend", error_rate=0.05)], 3.0)
    watch.begin(100.0)
    for end in range(101, 120):
        watch.heard(tick(float(end), extend_lost=4))

    assert not watch.recovered


def test_what_ended_before_the_step_does_not_count() -> None:
    watch = RecoveryWatch(LIMITS, 3.0)
    watch.begin(100.0)
    watch.heard(tick(100.5, extend_ok=800))
    for end in (101.5, 102.5, 103.5):
        watch.heard(tick(end, extend_ok=4))

    assert watch.recovered


def test_nothing_counts_before_the_load_is_down() -> None:
    watch = RecoveryWatch(LIMITS, 3.0)
    for end in range(101, 110):
        watch.heard(tick(float(end), extend_ok=4))
    assert not watch.recovered

    watch.begin(109.0)
    for end in (110.0, 111.0, 112.0):
        watch.heard(tick(end, extend_ok=4))
    assert watch.recovered
    assert watch.good_since == 109.0
