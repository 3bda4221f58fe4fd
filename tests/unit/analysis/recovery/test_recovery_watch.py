"""When thresholds count as holding again."""

from __future__ import annotations

from tippingpoint.analysis.recovery.recovery_watch import RecoveryWatch
from tippingpoint.plan.base import Threshold
from tippingpoint.rundir.histogram import Histogram

LIMITS = [Threshold(operation="extend", p99=0.1, error_rate=0.05)]


def hear(watch: RecoveryWatch, end: float, **milliseconds: int) -> None:
    """Let it have a second in which 20 calls ended, each after so long."""
    ended = {name.replace("_", "."): Histogram.of([each * 1000] * 20) for name, each in milliseconds.items()}
    watch.add(end, 1.0, ended)


def test_thresholds_have_to_hold_for_a_while() -> None:
    watch = RecoveryWatch(LIMITS, 3.0)
    watch.begin(100.0)
    for end in (101.0, 102.0):
        hear(watch, end, extend_ok=800)
    for end in (103.0, 104.0):
        hear(watch, end, extend_ok=4)
        assert not watch.recovered
    hear(watch, 105.0, extend_ok=4)

    assert watch.recovered
    assert watch.good_since == 102.0


def test_a_target_that_answers_nothing_has_not_recovered() -> None:
    watch = RecoveryWatch(LIMITS, 3.0)
    watch.begin(100.0)
    for end in range(101, 120):
        hear(watch, float(end))

    assert not watch.recovered


def test_failures_keep_it_from_recovering() -> None:
    watch = RecoveryWatch(LIMITS, 3.0)
    watch.begin(100.0)
    for end in range(101, 120):
        hear(watch, float(end), extend_ok=4, extend_error=1)

    assert not watch.recovered


def test_leases_that_are_lost_keep_it_from_recovering() -> None:
    watch = RecoveryWatch([Threshold(operation="extend", error_rate=0.05)], 3.0)
    watch.begin(100.0)
    for end in range(101, 120):
        hear(watch, float(end), extend_lost=4)

    assert not watch.recovered


def test_what_ended_before_the_step_does_not_count() -> None:
    watch = RecoveryWatch(LIMITS, 3.0)
    watch.begin(100.0)
    hear(watch, 100.5, extend_ok=800)
    for end in (101.5, 102.5, 103.5):
        hear(watch, end, extend_ok=4)

    assert watch.recovered


def test_nothing_counts_before_the_load_is_down() -> None:
    watch = RecoveryWatch(LIMITS, 3.0)
    for end in range(101, 110):
        hear(watch, float(end), extend_ok=4)
    assert not watch.recovered

    watch.begin(109.0)
    for end in (110.0, 111.0, 112.0):
        hear(watch, end, extend_ok=4)
    assert watch.recovered
    assert watch.good_since == 109.0
