"""Which loads follow a cliff."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.conduct.load_reduction import LoadOutcome, LoadReduction, Tried, lower_loads
from tippingpoint.plan.read import SearchPlan, parse_plan

STAGES = "{name: t, stages: [{leases: 80}, {leases: 200}], "
SEARCH = "{name: t, find: {start: 10, limit: 1000}, "
ENDING = "thresholds: [{operation: extend, p99: 1s}], after: recover}"
GOOD, BAD = LoadOutcome(True), LoadOutcome(False)
LATE = LoadOutcome(None, "the generator was late")


def plan(text: str = STAGES) -> SearchPlan:
    found = parse_plan(text + ENDING)
    assert found.workload.kind == "claim"
    return found


def loads(reduction: LoadReduction, *told: LoadOutcome) -> list[float | None]:
    """The loads that follow, after each of what these showed."""
    found: list[float | None] = []
    for each in told:
        following = reduction.ask()
        assert following is not None
        found.append(following.load)
        reduction.tell(each)
    following = reduction.ask()
    return [*found, None if following is None else following.load]


@given(broken=st.integers(2, 100_000), share=st.none() | st.floats(0.01, 0.99))
def test_loads_go_down_to_none_and_back_to_what_held(broken: int, share: float | None) -> None:
    held = max(1, int(broken * share)) if share is not None else None
    steps = lower_loads(plan(), broken, held)

    down = steps[: steps.index(0)]
    assert down == sorted(set(down), reverse=True)
    assert all(0 < size < broken for size in down)
    assert steps[steps.index(0) + 1 :] == ([held] if held is not None else [])
    assert held is None or held in down


def test_the_load_goes_down_until_thresholds_hold_again() -> None:
    # given a last stage that broke, after one that held
    reduction = LoadReduction(plan(), [(80, True), (200, False)])
    assert (reduction.broken, reduction.before) == (200, 80)
    # when only the load that held before holds again
    # then it is the last one
    assert loads(reduction, BAD, BAD, BAD, GOOD) == [180, 150, 100, 80, None]
    assert reduction.skipped == ""


def test_the_last_ones_are_no_load_and_what_held_before() -> None:
    reduction = LoadReduction(plan(), [(80, True), (200, False)])
    none = LoadOutcome(None)
    assert loads(reduction, BAD, BAD, BAD, BAD, BAD, none, BAD) == [180, 150, 100, 80, 50, 0, 80, None]


def test_a_lower_load_that_says_nothing_is_tried_three_times() -> None:
    reduction = LoadReduction(plan(), [(200, False)])
    late = LoadOutcome(False, "the generator was late")
    assert loads(reduction, late, late, late, late, BAD) == [180, 180, 180, 150, 150, 100]


def test_a_lower_load_that_cannot_be_had_ends_it() -> None:
    reduction = LoadReduction(plan(), [(200, False)])
    assert loads(reduction, LoadOutcome(None, missing="90 are left")) == [180, None]


@pytest.mark.parametrize(
    ("told", "again", "skipped"),
    [
        ([LATE, LATE], [200, 200, None], "the generator itself was the bottleneck: the generator was late"),
        ([LATE, GOOD], [200, 200, None], "the last load passed"),
        ([GOOD], [200, None], "the last load passed"),
        ([LoadOutcome(None, missing="no room")], [200, None], "no room"),
        ([LATE, BAD], [200, 200, 180], ""),
    ],
)
def test_a_last_load_that_says_nothing_is_tried_again(
    told: list[LoadOutcome], again: list[float | None], skipped: str
) -> None:
    reduction = LoadReduction(plan(), [(80, True), (200, None)])
    assert loads(reduction, *told) == again
    assert reduction.skipped == skipped


def test_nothing_follows_a_last_load_that_held() -> None:
    reduction = LoadReduction(plan(), [(80, False), (200, True)])
    assert (reduction.ask(), reduction.skipped) == (None, "the last load passed")


def test_after_a_search_the_loads_that_broke_are_tried_from_the_smallest_on() -> None:
    # given a search in which three loads broke, one load held, and one held within the interval of the answer
    tried: list[Tried] = [(400, False), (100, True), (200, False), (300, False), (150, True)]
    reduction = LoadReduction(plan(SEARCH), tried, surely=140)
    first = reduction.ask()
    assert first is not None
    assert (first.load, first.fresh, first.lowers) == (200, True, False)
    # when the smallest holds, and the next one says nothing and then breaks
    # then the load goes down from that one, and what held for sure is what held before
    assert loads(reduction, GOOD, LATE, BAD) == [200, 300, 300, 270]
    assert (reduction.broken, reduction.before) == (300, 100)
    lower = reduction.ask()
    assert lower is not None
    assert (lower.fresh, lower.lowers) == (False, True)


@pytest.mark.parametrize(
    ("tried", "aborted", "skipped"),
    [
        ([(100, True)], 1e9, "no load failed"),
        ([(200, False)], 200, "the load that failed was aborted, and is not put on the target again"),
    ],
)
def test_after_a_search_without_a_load_to_break_it_nothing_follows(
    tried: list[Tried], aborted: float, skipped: str
) -> None:
    reduction = LoadReduction(plan(SEARCH), tried, aborted=aborted)
    assert (reduction.ask(), reduction.skipped) == (None, skipped)
