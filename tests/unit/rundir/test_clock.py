"""The wall clock may be set in mid-run. It is noticed, and no length depends on it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.made.synthetic import STARTED, MadeStage, write_run
from tippingpoint.analysis.analyse import analyse
from tippingpoint.report import write_report
from tippingpoint.report.document import build_document
from tippingpoint.rundir.clock import EVENT, ClockWatch, ahead_at_end, clock_steps
from tippingpoint.rundir.results import load_run


def looked(*clock: tuple[float, float, float]) -> list[dict[str, Any]]:
    """The events of looks at (time since the start, how much the wall clock has gone on, seconds of suspension)."""
    watch = ClockWatch()
    told = [(t, watch.look(t, wall, slept)) for t, wall, slept in clock]
    return [{"t": t, "event": EVENT, **fields} for t, fields in told if fields is not None]


@given(st.floats(-1e6, 1e6).filter(lambda seconds: abs(seconds) >= 0.6), st.integers(1, 9))
def test_a_clock_that_is_set_is_noticed_once(seconds: float, second: int) -> None:
    events = looked(*((float(t), t + (seconds if t >= second else 0.0), 0.0) for t in range(10)))

    (step,) = clock_steps(events)
    assert step.t == second
    assert step.seconds == pytest.approx(seconds, abs=0.01)
    assert ahead_at_end(events) == pytest.approx(seconds, abs=0.01)


def test_a_clock_that_is_slewed_or_slept_was_not_set() -> None:
    slewed = looked(*((float(t), t * 1.0005, 0.0) for t in range(7200)))
    assert clock_steps(slewed) == []
    assert ahead_at_end(slewed) == pytest.approx(3.6, abs=0.11)
    assert clock_steps(looked((1.0, 1.0, 0.0), (2.0, 3602.0, 3600.0), (3.0, 3603.0, 3600.0))) == []


def test_a_step_that_is_taken_back_is_two() -> None:
    events = looked((1.0, 1.0, 0.0), (2.0, -598.0, 0.0), (3.0, 3.0, 0.0))
    assert [(step.t, step.seconds) for step in clock_steps(events)] == [(2.0, -600.0), (3.0, 600.0)]
    assert ahead_at_end(events) == 0.0


@pytest.mark.parametrize("event", [{}, {"ahead": "x", "asleep": 0}, {"ahead": float("nan"), "asleep": 0.0}])
def test_damaged_events_are_no_steps(event: dict[str, Any]) -> None:
    assert clock_steps([{"t": 1.0, "event": EVENT, **event}]) == []


@pytest.mark.parametrize(("ahead", "way"), [(600.0, "ahead by 10"), (-3600.0, "back by 1 h")])
def test_a_report_says_that_the_clock_was_set(ahead: float, way: str, tmp_path: Path) -> None:
    stepped = {"t": 2.0, "event": EVENT, "ahead": ahead, "asleep": 0.0}
    run = load_run(write_run(tmp_path, [MadeStage(100)], events=[stepped]))

    document = build_document(analyse(run))
    (caution,) = [line for line in document["cautions"] if "clock" in line]
    assert caution.startswith("the machine's clock stepped ")
    assert caution.split("stepped ")[1].startswith(way.split(" by ")[0])
    assert document["run"]["seconds"] == pytest.approx(10.0)


def test_an_older_run_whose_clock_was_set_back_takes_as_long_as_its_events_say(tmp_path: Path) -> None:
    events = [{"t": 9.5, "event": "note", "text": "x"}]
    run = load_run(write_run(tmp_path, [MadeStage(100)], events=events, ended=STARTED - 3590.0))

    junit = ET.fromstring(write_report(analyse(run), "junit"))
    (whole,) = [case for case in junit.iter("testcase") if case.get("name") == "run"]
    assert float(whole.get("time", "0")) >= 9.5
