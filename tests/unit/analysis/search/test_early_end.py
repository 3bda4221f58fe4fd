"""When a hold is clear before it is over."""

from __future__ import annotations

import random
from math import exp, log

import pytest

from tests.simulated_holds import Calls, CallTarget, HoldEnd, search_calls
from tippingpoint.analysis.search.early_end import EarlyEnds, Tally
from tippingpoint.analysis.search.probes import Margin
from tippingpoint.analysis.search.searcher import Aim
from tippingpoint.plan.base import Threshold

HOLD = 30.0
P99 = "extend p99"
HELD, BROKE = Margin(P99, -1.5, 0.01), Margin(P99, 1.5, 0.01)


def counted(slow: list[int], of: int = 100, allowed: float = 0.01, name: str = P99) -> Tally:
    """So many slow calls in each second, of so many."""
    return Tally(name, allowed, (of,) * len(slow), tuple(slow), tuple(slow))


def watched(load: float = 100, slow: list[int] | None = None) -> EarlyEnds:
    """What a search knows after one whole hold that held."""
    early = EarlyEnds(HOLD)
    early.remember(load, [HELD], [counted(slow or [0] * 30)], HOLD)
    return early


class TestFigures:
    """Of a figure of Prometheus, or a throughput, no calls are counted: its error decides."""

    def clear(self, *margins: tuple[float, float], held_for: float = 15.0) -> bool | None:
        found = [Margin(f"figure {number}", *margin) for number, margin in enumerate(margins)]
        return watched().clear(100, found, (), held_for)

    def test_a_hold_that_has_just_begun_is_never_clear(self) -> None:
        assert self.clear((3.0, 0.01), held_for=3.0) is None

    def test_a_margin_far_above_breaks(self) -> None:
        assert self.clear((1.0, 0.1)) is False

    def test_margins_far_below_hold(self) -> None:
        assert self.clear((-1.0, 0.1)) is True

    def test_a_margin_that_is_not_known_well_goes_on(self) -> None:
        assert self.clear((0.8, 0.5)) is None

    def test_one_of_several_margins_that_is_unsure_goes_on(self) -> None:
        assert self.clear((-1.5, 0.1), (-0.5, 0.1)) is None


@pytest.mark.parametrize(
    ("of", "allowed", "clear"),
    [(100, 0.01, True), (20, 0.01, None), (100, 0.001, None), (1100, 0.001, True), (3, 0.5, True)],
    ids=["1,500 calls, p99", "300 calls, p99", "1,500 calls, p99.9", "16,500 calls, p99.9", "45 calls, p50"],
)
def test_a_load_holds_once_there_are_calls_enough_to_know_the_percentile(
    of: int, allowed: float, clear: bool | None
) -> None:
    # given a hold of 30 s, without any slow call in its first half
    assert watched().clear(100, [HELD], [counted([0] * 15, of, allowed)], 15.0) is clear


@pytest.mark.parametrize(
    ("slow", "shown", "clear"),
    [
        (0, HELD, True),
        (12, HELD, None),
        (14, HELD, None),
        (16, BROKE, None),
        (22, BROKE, None),
        (60, BROKE, False),
    ],
)
def test_calls_of_two_kinds_are_clear_when_their_share_is(
    slow: int, shown: Margin, clear: bool | None
) -> None:
    # given calls that are either quick or slow, so that a percentile jumps from one to the other
    seconds = [slow // 15 + (number < slow % 15) for number in range(15)]
    # when half of the hold is over, where 30 slow calls of the whole are allowed
    assert watched().clear(100, [shown], [counted(seconds)], 15.0) is clear


def test_a_load_that_pauses_is_not_broken_by_one_pause_unless_that_is_too_much_of_the_whole_hold() -> None:
    early = watched()
    # given one pause in the first half of a hold, in which 30 calls of the whole may be slow
    assert early.clear(100, [BROKE], [counted([0] * 7 + [25] + [0] * 7)], 15.0) is None
    assert early.clear(100, [BROKE], [counted([0] * 7 + [45] + [0] * 7)], 15.0) is False


@pytest.mark.parametrize(
    ("place", "load", "clear"),
    [(20, 100, None), (29, 100, None), (20, 400, None)],
    ids=["in mid-hold", "at its end", "at a larger load"],
)
def test_a_pause_that_was_seen_may_come_again(place: int, load: float, clear: bool | None) -> None:
    # given a load that held, with one pause in it
    seconds = [25 if number == place else 0 for number in range(30)]
    early = watched(100, seconds)
    # when as much as half of another hold shows no pause, then that hold goes on
    assert early.clear(load, [HELD], [counted([0] * 15)], 15.0) is clear
    # but a pause that is little beside what is allowed changes nothing
    assert watched(100, [0] * 20 + [2] + [0] * 9).clear(load, [HELD], [counted([0] * 15)], 15.0) is True


def test_a_load_that_broke_without_a_pause_says_nothing_of_smaller_ones() -> None:
    early = watched(100)
    early.remember(800, [BROKE], [counted([0] * 10 + [60] * 20)], HOLD)
    assert early.clear(400, [HELD], [counted([0] * 15)], 15.0) is True
    # while a pause at a larger load may come at smaller ones, too
    early.remember(800, [BROKE], [counted([0] * 10 + [60] + [0] * 19)], HOLD)
    assert early.clear(400, [HELD], [counted([0] * 15)], 15.0) is None


def test_no_hold_ends_as_held_before_loads_were_watched_for_a_while() -> None:
    short = EarlyEnds(8.0)
    fits = [counted([0] * 5, of=500)]
    for number in range(20):
        # given so many holds of 8 s before: a pause that comes each half minute may not have come yet
        clear = short.clear(100, [HELD], fits, 5.0)
        assert clear is (True if 8 * number + 5 >= 60 else None)
        short.remember(100, [HELD], [counted([0] * 8, of=500)], 8.0)
    # and a load that breaks is clear at once
    assert EarlyEnds(8.0).clear(100, [BROKE], [counted([100] * 5, of=500)], 5.0) is False


def test_what_a_rate_of_zero_forbids_breaks_at_once_and_is_expected_once_it_was_seen() -> None:
    lost, none = Margin("extend lost_rate", 0.41, 0.97), Margin("extend lost_rate", -7.0, 0.7)
    early = watched()

    def losses(count: int) -> list[Tally]:
        return [counted([count] + [0] * 14, allowed=0.0, name="extend lost_rate")]

    assert early.clear(100, [none], losses(0), 15.0) is True
    assert early.clear(100, [lost], losses(1), 15.0) is False
    # when a smaller load lost a lease, then a larger one is held to its end
    early.remember(50, [lost], losses(1), 15.0)
    assert early.clear(100, [none], losses(0), 15.0) is None


def test_the_largest_of_all_calls_is_not_known_before_the_last() -> None:
    tally = Tally("extend max", 0.0, (100,) * 15, (0,) * 15, (0,) * 15, largest=True)
    assert watched().clear(100, [Margin("extend max", -2.3, 0.01)], [tally], 15.0) is None


@pytest.mark.parametrize(
    "calls",
    [Calls(), Calls("bimodal"), Calls(every=30.0, pause=(0.1, 0.8))],
    ids=["smooth", "bimodal", "pausing"],
)
def test_early_ends_are_what_the_whole_holds_show(calls: Calls) -> None:
    # given targets of some kind, and a p99 of 100 ms
    threshold = Threshold.model_validate({"operation": "extend", "p99": "100ms"})
    ends: list[HoldEnd] = []
    for number in range(3):
        draw = random.Random(f"early {number}")
        tips = exp(draw.uniform(log(60), log(400)))
        aim = Aim(max(20, round(0.3 * tips)), 2000, resolution=0.3, hold=HOLD, within=600.0, whole=True)
        # when each is searched
        ends += search_calls(CallTarget(calls, tips, draw), aim, threshold)[0]
    # then no hold that ended early would have shown the contrary (bench_early_ends.py counts many more)
    early = [end for end in ends if end.early is not None]
    assert early
    assert all(end.early == end.whole for end in early)
