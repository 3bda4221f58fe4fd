"""Runs that were not tried further: what they held is a bound of where they tip, and no measurement of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.made.made_runs import made_run, made_stage
from tippingpoint.compare.compare import compare
from tippingpoint.compare.reach import Reach
from tippingpoint.compare.repeats import tip_level
from tippingpoint.report import write_comparison
from tippingpoint.rundir.results import RunData

LADDER = (100, 200, 400, 800)
ENDED: dict[str, Any] = {"status": "interrupted", "reason": "by SIGINT"}


def run(title: str, sizes: Sequence[int] = LADDER, *, breaks: int | None = None, **options: Any) -> RunData:
    """A run of a ladder, which loses a tenth of its leases from a load on."""
    stages = [
        made_stage(
            number,
            size,
            {
                "extend.ok": [5.0, 6.0] * 400,
                "extend.lost": [5.0] * (100 if breaks is not None and size >= breaks else 0),
            },
        )
        for number, size in enumerate(sizes, start=1)
    ]
    return made_run(stages, title=title, **options)


def thrice(title: str, *sizes: int, **options: Any) -> list[RunData]:
    return [run(title, sizes or LADDER, **options) for _ in range(3)]


def interrupted(title: str, tried: int, **options: Any) -> RunData:
    """A run that was interrupted while it held the load after so many."""
    made = run(title, LADDER[: tried + 1], **ENDED, **options)
    made.stages[-1].end = None
    return made


def with_a_worker_cut(title: str, held: int) -> RunData:
    """A run of which a worker was cut after so many loads, and which went on to its end."""
    t = held * 30.0 + 5.0
    return run(title, cut=True, events=[{"event": "worker-cut", "t": t, "worker": "0"}])


STANDS, TIPS = thrice("a"), thrice("a", breaks=800)
CUT = {
    "interrupted": [interrupted("b", 2) for _ in range(3)],
    "interrupted-anywhere": [interrupted("b", 1), interrupted("b", 2), interrupted("b", 3)],
    "worker-cut": [with_a_worker_cut("b", 1) for _ in range(3)],
    "shorter-ladder": thrice("b", *LADDER[:-1]),
    "other-ladder": thrice("b", 150, 300),
}


@pytest.mark.parametrize(
    ("first", "other", "control"),
    [
        *((STANDS, cut, []) for cut in CUT.values()),
        *((cut, STANDS, []) for cut in CUT.values()),
        *((TIPS, cut, []) for cut in CUT.values()),
        (STANDS, CUT["interrupted"], STANDS),
        (STANDS, CUT["shorter-ladder"], CUT["interrupted"]),
    ],
    ids=[
        *(f"stands, {how}" for how in CUT),
        *(f"{how}, stands" for how in CUT),
        *(f"tips, {how}" for how in CUT),
        "control",
        "control cut",
    ],
)
def test_a_load_that_was_not_tried_is_no_lower_tipping_point(
    first: list[RunData], other: list[RunData], control: list[RunData]
) -> None:
    comparison = compare([first, other], control=control)
    assert comparison.outcome in ("none", "apart")
    assert not comparison.regressed
    assert (comparison.worse, comparison.better) == ([], [])
    assert comparison.tip_changes == [None]
    assert " the load of " not in comparison.sentence


@pytest.mark.parametrize("form", ["md", "html", "json"])
def test_no_format_takes_a_bound_for_a_measurement(form: Literal["md", "html", "json"]) -> None:
    text = write_comparison(compare([STANDS, CUT["interrupted"]]), form)
    assert "❌ got worse" not in text
    assert "✕ got worse" not in text
    if form == "json":
        document = json.loads(text)
        assert (document["tip_changes"], document["regressed"]) == ([None], False)
    else:
        assert "passed 200 leases, the largest that was sustained" in text


def test_words_say_that_a_load_was_the_largest_tried() -> None:
    comparison = compare([thrice("a"), thrice("b", 100, 200), [interrupted("c", 2) for _ in range(3)]])
    assert comparison.sentence.startswith(
        "a passed 800 leases, the largest tried; b passed 200, the largest tried; "
        "c passed 200, the largest that was sustained."
    )
    markdown = write_comparison(comparison, "md")
    assert "tips beyond" not in markdown
    assert "tip beyond" not in markdown


def test_one_run_each_is_judged_by_bounds_only_where_they_are_far_apart() -> None:
    assert compare([run("a"), interrupted("b", 1)]).tips == ["unsure"]
    assert compare([interrupted("b", 1), run("a")]).tips == ["unsure"]
    early = run("b", breaks=100)
    assert (compare([run("a"), early]).tips, compare([early, run("a")]).tips) == (["worse"], ["better"])


def test_a_smallest_load_that_broke_is_a_bound_too() -> None:
    # given runs that break at the smallest load tried, and runs of a ladder that begins lower and breaks there
    high, low = thrice("a", 1000, 2000, breaks=1000), thrice("b", 250, 500, 1000, breaks=500)
    # then those may tip as low
    for pair in ([high, low], [low, high]):
        comparison = compare(pair)
        assert (comparison.tips, comparison.tip_changes) == (["unsure"], [None])
        assert not comparison.worse


def test_ladders_with_other_steps_say_no_more_than_the_loads_of_both() -> None:
    # given runs that tip between 2000 and 4000, and runs of a finer ladder that tip between 2000 and 3000
    wide, narrow = thrice("a", 1000, 2000, 4000, breaks=4000), thrice("b", 1000, 2000, 3000, breaks=3000)
    assert compare([wide, narrow]).tips == compare([narrow, wide]).tips == ["unsure"]
    # and runs that tip where the others held
    lower = thrice("b", 500, 1500, breaks=1500)
    assert (compare([wide, lower]).tips, compare([lower, wide]).tips) == (["worse"], ["better"])


def test_a_bound_that_decides_is_judged_without_a_ratio() -> None:
    # given a release that holds all loads, and one that breaks at the second
    comparison = compare([thrice("a"), thrice("b", breaks=200)])
    # then it tips lower for certain, and nobody knows how many times
    assert (comparison.tips, comparison.outcome, comparison.tip_changes) == (["worse"], "worse", [None])
    assert comparison.sentence == (
        "a passed 800 leases, the largest tried; b tips at 100 to 200; b tips at a lower load than a."
    )
    assert comparison.worse[0] == (
        "tips at 100 to 200 leases (100 of 900 extends lost), where a passed 800, the largest tried"
    )
    # and one repeat that was interrupted takes nothing from what the others show
    with_one_cut = [*thrice("b", breaks=200)[:2], interrupted("b", 1, breaks=200)]
    assert compare([thrice("a"), with_one_cut]).tips == ["worse"]
    # with both measured there is a ratio
    (change,) = compare([thrice("a", breaks=800), thrice("b", breaks=200)]).tip_changes
    assert change is not None
    assert change.change == pytest.approx(1 / 4)


def test_a_control_that_was_cut_withholds_nothing() -> None:
    comparison = compare([thrice("a"), thrice("b", breaks=200)], control=[interrupted("a", 2)] * 3)
    assert comparison.outcome == "worse"
    assert comparison.control_words.startswith("The control agrees with the other runs of a")


BRACKETS = st.tuples(st.integers(0, 6), st.integers(0, 6)).map(
    lambda ends: Reach(
        float(100 * 2 ** min(ends)) if min(ends) > 0 else None,
        float(100 * 2 ** (max(ends) + (ends[0] == ends[1]))) if max(ends) < 6 else None,
        "",
    )
)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(before=st.lists(BRACKETS, min_size=1, max_size=4), after=st.lists(BRACKETS, min_size=1, max_size=4))
def test_no_run_is_put_below_another_that_may_tip_as_low(before: list[Reach], after: list[Reach]) -> None:
    # given any bounds of where runs tip
    reaches = [*before, *after]
    measured = tip_level(before, after).measured
    placed = [*measured.before, *measured.after]
    # then a run is placed lower only if it broke at a load that the other one held
    for one, low in zip(reaches, placed, strict=True):
        for other, high in zip(reaches, placed, strict=True):
            if low < high:
                assert one.broken is not None
                assert other.held is not None
                assert one.broken <= other.held


# ---- loads with a fault ----------------------------------------------------------------------------

KILLED = [{"event": "fault", "t": 40.0, "do": "kill", "member": "m2"}]
STARTED_AGAIN = [*KILLED, {"event": "fault", "t": 55.0, "do": "start", "member": "m2"}]
DAEMON_KILLED = [{"event": "fault", "t": 40.0, "do": "kill-daemon", "member": "m2", "daemon": "x"}]


def disturbed(
    title: str, events: Sequence[dict[str, Any]], *, slower: float = 1.0, lost: int = 0, **options: Any
) -> list[RunData]:
    """Three runs whose second load is slower, and loses leases."""
    made: list[RunData] = []
    for number in range(3):
        random = np.random.default_rng([number, *map(ord, title)])
        stages = [
            made_stage(
                place,
                size,
                {
                    "extend.ok": 5 * (slower if place == 2 else 1) * np.exp(random.normal(0, 0.3, 900)),
                    "extend.lost": [5.0] * (lost if place == 2 else 0),
                },
            )
            for place, size in enumerate(LADDER, start=1)
        ]
        made.append(made_run(stages, title=title, events=events, **options))
    return made


@pytest.mark.parametrize("events", [STARTED_AGAIN, DAEMON_KILLED], ids=["kill", "kill-daemon"])
@pytest.mark.parametrize("lost", [0, 300])
def test_a_load_with_a_fault_is_not_compared_with_one_without(
    events: list[dict[str, Any]], lost: int
) -> None:
    # given runs that are slow, and may lose leases, while a member is down on purpose, and runs without a fault
    with_fault, without = disturbed("a", events, slower=20.0, lost=lost), disturbed("b", [])
    for pair in ([without, with_fault], [with_fault, without]):
        comparison = compare(pair)
        # then the fault is not counted against anybody, and the word is said
        assert comparison.outcome == "none"
        assert (comparison.worse, comparison.better) == ([], [])
        beyond = {row.size: one.beyond for row in comparison.rows for one in row.against}
        what = events[0]["do"]
        assert beyond == {100: "", 200: f"with a fault ({what}) in a", 400: "", 800: ""}
        assert f"with a fault ({what}) in a" in write_comparison(comparison, "md")
        assert f"a had a fault ({what}) at 200 leases, where others had none" in comparison.sentence
        assert (
            "are at loads that were not sustained, or had a fault, and are not judged" in comparison.changes
        )
    # and what is slower beside it is found as before
    slow = disturbed("c", [], slower=20.0)
    assert compare([without, slow]).outcome == "worse"


def test_loads_with_the_same_fault_are_compared() -> None:
    before, after = disturbed("a", STARTED_AGAIN), disturbed("b", STARTED_AGAIN, slower=20.0)
    comparison = compare([before, after])
    assert comparison.outcome == "worse"
    assert {one.beyond for row in comparison.rows for one in row.against} == {""}
    assert "fault" not in comparison.sentence


def test_a_load_that_was_tried_again_without_the_fault_is_compared_by_that() -> None:
    # given runs that had a fault at a load, and held the same load once more without one
    def again(title: str, events: list[dict[str, Any]], slower: float) -> RunData:
        calls = [5.0, 6.0] * 400
        stages = [made_stage(1, 100, {"extend.ok": calls})]
        stages += [
            made_stage(n, 200, {"extend.ok": [slower * one if n == 2 else one for one in calls]})
            for n in (2, 3)
        ]
        return made_run(stages, title=title, events=events)

    without = [again("b", [], 1.0) for _ in range(3)]
    comparison = compare([without, [again("a", STARTED_AGAIN, 30.0) for _ in range(3)]])
    assert (comparison.outcome, comparison.worse) == ("none", [])
    assert {one.beyond for row in comparison.rows for one in row.against} == {""}
