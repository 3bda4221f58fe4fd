"""Which lower loads are tried after a cliff, and when thresholds count as holding again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.plan.base import Threshold
from tippingpoint.run.coming_back import lower_loads
from tippingpoint.run.messages import Tick
from tippingpoint.run.settling import Settling
from tippingpoint.rundir.journal import interval_lines
from tippingpoint.rundir.recorder import Recorded

LIMITS = [Threshold(operation="extend", p99=0.1, error_rate=0.05)]


@given(broken=st.integers(2, 100_000), share=st.none() | st.floats(0.01, 0.99))
def test_loads_go_down_to_none_and_back_to_what_held(broken: int, share: float | None) -> None:
    held = max(1, int(broken * share)) if share is not None else None
    steps = lower_loads(broken, held)

    down = steps[: steps.index(0)]
    assert down == sorted(set(down), reverse=True)
    assert all(0 < size < broken for size in down)
    assert steps[steps.index(0) + 1 :] == ([held] if held is not None else [])
    assert held is None or held in down


def tick(end: float, **milliseconds: int) -> Tick:
    recorded = {name.replace("_", "."): Recorded([count * 1000] * 20) for name, count in milliseconds.items()}
    return Tick(
        **{"t": end, "seconds": 1.0, "lines": interval_lines(end - 1, end, recorded), "unwritten": 0},
        **{"retries": 0, "lost": 0, "held": 20, "waiting": 0, "in_flight": 0, "up": True},
        **{"cpu": 0.1, "loop_lag": 1.0, "rss": 60.0},
    )


def test_thresholds_have_to_hold_for_a_while() -> None:
    settling = Settling(LIMITS, 3.0)
    settling.begin(100.0)
    for end in (101.0, 102.0):
        settling.heard(tick(end, extend_ok=800))
    for end in (103.0, 104.0):
        settling.heard(tick(end, extend_ok=4))
        assert not settling.settled.is_set()
    settling.heard(tick(105.0, extend_ok=4))

    assert settling.settled.is_set()
    assert settling.good_since == 102.0


def test_a_target_that_answers_nothing_has_not_settled() -> None:
    settling = Settling(LIMITS, 3.0)
    settling.begin(100.0)
    for end in range(101, 120):
        settling.heard(tick(float(end)))

    assert not settling.settled.is_set()


def test_failures_keep_it_from_settling() -> None:
    settling = Settling(LIMITS, 3.0)
    settling.begin(100.0)
    for end in range(101, 120):
        settling.heard(tick(float(end), extend_ok=4, extend_error=1))

    assert not settling.settled.is_set()


def test_leases_that_are_lost_keep_it_from_settling() -> None:
    settling = Settling([Threshold(operation="extend", error_rate=0.05)], 3.0)
    settling.begin(100.0)
    for end in range(101, 120):
        settling.heard(tick(float(end), extend_lost=4))

    assert not settling.settled.is_set()


def test_what_ended_before_the_step_does_not_count() -> None:
    settling = Settling(LIMITS, 3.0)
    settling.begin(100.0)
    settling.heard(tick(100.5, extend_ok=800))
    for end in (101.5, 102.5, 103.5):
        settling.heard(tick(end, extend_ok=4))

    assert settling.settled.is_set()


def test_nothing_counts_before_the_load_is_down() -> None:
    settling = Settling(LIMITS, 3.0)
    for end in range(101, 110):
        settling.heard(tick(float(end), extend_ok=4))
    assert not settling.settled.is_set()

    settling.begin(109.0)
    for end in (110.0, 111.0, 112.0):
        settling.heard(tick(end, extend_ok=4))
    assert settling.settled.is_set()
    assert settling.good_since == 109.0
