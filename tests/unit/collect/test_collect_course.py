"""How a run goes on, as the page draws it: what units told of their progress, over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tippingpoint.collect import course
from tippingpoint.collect.course import FILE, MOST_POINTS, build_course, points_of
from tippingpoint.collect.runs import Runs
from tippingpoint.conduct.director import begin_run
from tippingpoint.conduct.run_state import SharedRun, UnitProgress, UnitWord, silent_after
from tippingpoint.plan.read import load_plan

UNITS = ["load-claimer/0", "load-claimer/1"]
MADE = 1_780_000_000.0
STARTED = MADE + 20


@pytest.fixture
def run() -> SharedRun:
    return begin_run(load_plan("juju-leases-small"), UNITS, MADE).model_copy(update={"started": STARTED})


@pytest.fixture
def kept(tmp_path: Path, run: SharedRun) -> Runs:
    runs = Runs(tmp_path)
    runs.keep(run)
    return runs


def course_of(runs: Runs) -> dict[str, Any]:
    """What is drawn of the newest run."""
    run = runs.find("")
    return build_course(run.shared, points_of(run.course))


def say(
    runs: Runs, run: SharedRun, unit: int, at: float, phase: str = "up", offset: float = 0.0, **told: Any
) -> None:
    """A word at so many seconds of the run; without any progress where `told` is empty."""
    progress = UnitProgress.model_validate({"stage": 1, "size": 50, "held": 0, **told}) if told else None
    runs.keep_word(
        UNITS[unit],
        UnitWord.model_validate(
            {
                "run": run.id,
                "phase": phase,
                "t": STARTED + at + offset,
                "offset": offset,
                "progress": progress,
            }
        ),
    )


def test_units_are_added_up_at_each_word(kept: Runs, run: SharedRun) -> None:
    """Given words of two units, then held, size and rate are of both, and latency is that of the slower one."""
    say(kept, run, 0, 1, held=10, rate=5.0, p50_ms=2.0, p99_ms=9.0)
    say(kept, run, 1, 3, held=20, rate=6.0, p50_ms=1.0, p99_ms=40.0, errors=2)
    say(kept, run, 0, 31, held=50, rate=7.0, p50_ms=3.0, p99_ms=8.0, lost=1)

    drawn = course_of(kept)

    assert drawn["t"] == [1, 3, 31]
    assert drawn["held"] == [10, 30, 70]
    assert drawn["size"] == [50, 100, 100]
    assert drawn["rate"] == [5.0, 11.0, 13.0]
    assert drawn["p50"] == [2.0, 2.0, 3.0]
    assert drawn["p99"] == [9.0, 40.0, 40.0]
    assert drawn["errors"] == [0, 2, 2]
    assert drawn["lost"] == [0, 0, 1]
    assert (drawn["what"], drawn["units"]) == ("leases", 2)


def test_moments_are_on_the_run_s_clock(kept: Runs, run: SharedRun) -> None:
    """Given a unit whose clock is ten minutes ahead, which it knows, then its words stand where they were said."""
    say(kept, run, 0, 1, held=10)
    say(kept, run, 1, 2, offset=600.0, held=10)

    assert course_of(kept)["t"] == [1, 2]


def test_a_word_of_another_time_is_left_out(kept: Runs, run: SharedRun) -> None:
    """A clock that is years off, and does not know it, makes no chart of years."""
    say(kept, run, 0, 1, held=10)
    say(kept, run, 1, -1_000_000_000.0, held=10)

    assert course_of(kept)["t"] == [1]


def test_stages_are_where_the_furthest_unit_is(kept: Runs, run: SharedRun) -> None:
    for at, stage, held in ((1, 1, 25), (31, 1, 50), (61, 2, 60), (91, 2, 100)):
        say(kept, run, 0, at, stage=stage, size=50 * stage, held=held)

    assert course_of(kept)["stages"] == [
        {"number": 1, "kind": "ramp", "from": 1, "to": 61, "size": 50},
        {"number": 2, "kind": "ramp", "from": 61, "to": 91, "size": 100},
    ]


def test_a_unit_that_ended_or_is_silent_holds_nothing_any_more(kept: Runs, run: SharedRun) -> None:
    late = silent_after(2) + 5
    say(kept, run, 0, 1, held=10)
    say(kept, run, 1, 2, held=20)
    say(kept, run, 1, late, held=20)
    say(kept, run, 1, late + 1, phase="over")

    assert course_of(kept)["held"] == [10, 30, 20, 0]


def test_nothing_is_drawn_of_what_is_made_before_the_first_stage(kept: Runs, run: SharedRun) -> None:
    say(kept, run, 0, -15, phase="making", stage=0, size=0, preparing="units: 3 of 50")

    assert course_of(kept)["t"] == []


def test_nothing_is_drawn_of_units_that_never_began(kept: Runs, run: SharedRun) -> None:
    say(kept, run, 0, -15, phase="failed")

    assert course_of(kept)["t"] == []


def test_a_long_run_has_so_many_points(kept: Runs, run: SharedRun) -> None:
    for number in range(3 * MOST_POINTS):
        say(kept, run, number % 2, 30.0 * number, held=number)

    drawn = course_of(kept)

    assert MOST_POINTS / 2 < len(drawn["t"]) <= MOST_POINTS + 1
    assert drawn["t"] == sorted(drawn["t"])
    assert drawn["t"][-1] == 30.0 * (3 * MOST_POINTS - 1)


def test_the_file_stays_small_and_keeps_every_unit(
    kept: Runs, run: SharedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given two units that speak in turn, when the file is too large, then each keeps its half, and its last word."""
    monkeypatch.setattr(course, "LARGEST", 4000)

    for number in range(400):
        say(kept, run, number % 2, 30.0 * number, held=number)

    directory = kept.find("").directory
    points = points_of(course.read_text(directory))
    assert (directory / FILE).stat().st_size <= 4200
    assert {point.unit for point in points} == {*UNITS}
    assert {point.held for point in points} >= {398, 399}


def test_the_same_word_again_is_no_point(kept: Runs, run: SharedRun) -> None:
    for _ in range(3):
        say(kept, run, 0, 1, held=10)

    assert course_of(kept)["t"] == [1]


@examples(40)
@given(text=st.text(max_size=200), head=st.booleans())
def test_a_damaged_file_costs_its_damaged_lines(kept: Runs, run: SharedRun, text: str, head: bool) -> None:
    directory = kept.find("").directory
    (directory / FILE).unlink(missing_ok=True)
    say(kept, run, 0, 1, held=10)
    say(kept, run, 0, 0, held=11)
    whole = (directory / FILE).read_bytes()
    scrap = (text.replace("\n", " ").replace("\r", " ") + "\n").encode(errors="replace")
    (directory / FILE).write_bytes(scrap + whole if head else whole + scrap[:-1])

    assert {1, 0} <= {point.t - STARTED for point in points_of(course.read_text(directory))}


@given(st.lists(st.tuples(st.floats(-5000, 5000), st.integers(0, 1), st.integers(0, 10**9)), max_size=30))
def test_whatever_is_told_all_columns_are_as_long(words: list[tuple[float, int, int]]) -> None:
    run = begin_run(load_plan("juju-leases-small"), UNITS, MADE).model_copy(update={"started": STARTED})
    points = [
        course.Point(unit=UNITS[unit], t=STARTED + at, stage=1, size=held, held=held)
        for at, unit, held in words
    ]

    drawn = build_course(run, sorted(points, key=lambda point: point.t))

    lengths = {len(drawn[name]) for name in ("t", "held", "size", "rate", "p50", "p99", "errors", "lost")}
    assert len(lengths) == 1
    assert drawn["t"] == sorted(drawn["t"])
