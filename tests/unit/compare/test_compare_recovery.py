"""How long releases take until they are back after a fault, and what a comparison says of it."""

from __future__ import annotations

import re
from math import inf
from pathlib import Path

import pytest

from tests.unit.made.disturbed_runs import outage, steady, write_disturbed
from tippingpoint.compare.compare import compare
from tippingpoint.compare.comparison import Comparison
from tippingpoint.report import write_comparison
from tippingpoint.rundir.results import RunData

KILL = {"t": 20.0, "event": "fault", "do": "kill", "member": "m1"}
START = {"t": 40.0, "event": "fault", "do": "start", "member": "m1"}


def back_after(path: Path, *seconds: float) -> list[RunData]:
    """Repeats of one release: in each a member is killed, and for so many seconds nothing is answered."""
    return [
        write_disturbed(path / f"{number}", outage(20.0, 20.0 + away, 60.0), until=60.0, events=[KILL, START])
        for number, away in enumerate(seconds)
    ]


def test_a_release_that_is_back_later_is_worse(tmp_path: Path) -> None:
    # given two releases that differ in how long they are away after a kill
    before, after = back_after(tmp_path / "a", 2.0, 2.2, 1.8), back_after(tmp_path / "b", 9.0, 9.6, 10.2)
    comparison = compare([before, after])
    # then that is a figure like others, and its undoing is none
    (row,) = comparison.recovery
    (against,) = row.against
    assert (row.what, against.judgement) == ("kill", "worse")
    assert against.change is not None
    assert against.low is not None
    assert against.high is not None
    assert against.change == pytest.approx(9.6 / 2, rel=0.2)
    assert 2 < against.low < against.change < against.high < 10
    assert comparison.outcome == "worse"
    line = next(line for line in comparison.worse if line.startswith("back after kill"))
    assert " s to " in line
    assert "back after kill" in comparison.sentence
    # and the other way round it is better
    assert compare([after, before]).recovery[0].against[0].judgement == "better"


def test_repeats_that_differ_as_much_say_nothing(tmp_path: Path) -> None:
    comparison = compare(
        [back_after(tmp_path / "a", 1.5, 9.0, 4.0), back_after(tmp_path / "b", 9.5, 2.0, 5.0)]
    )
    assert [against.judgement for against in comparison.recovery[0].against] == ["unsure"]
    assert "back after" not in comparison.sentence


def never_back(path: Path, runs: int) -> list[RunData]:
    """Repeats of a release that never answers again after a kill, as long as the load stays."""
    return [
        write_disturbed(
            path / f"{number}",
            outage(20.0, 62.0, 60.0, outcome="timeout", gave_up=1.0),
            until=60.0,
            events=[KILL],
        )
        for number in range(runs)
    ]


def test_a_release_that_is_never_back_is_worse_and_no_other_way_round_is_told(tmp_path: Path) -> None:
    # given a release that was not back within the 40 s for which its load stayed
    quick, never = back_after(tmp_path / "a", 2.0, 2.2, 1.8), never_back(tmp_path / "b", 3)
    (row,) = compare([quick, never]).recovery
    assert [back.never for back in row.values[1] if back is not None] == [True] * 3
    assert row.against[0].judgement == "worse"
    assert row.against[0].high == inf
    comparison = compare([quick, never])
    assert "not within 40" in write_comparison(comparison, "md")
    assert re.search(r"back after kill in at least [\d.]+x the time", comparison.sentence)
    assert re.search(
        r"back after kill: 2[.\d]* s to not within 40 s \(at least [\d.]+x\)", comparison.worse[0]
    )
    # and where neither was back, nothing is said
    both = compare([never_back(tmp_path / "c", 3), never])
    assert both.recovery[0].against[0].judgement == "unsure"


def test_of_one_run_each_the_times_are_told_and_not_judged(tmp_path: Path) -> None:
    comparison = compare([back_after(tmp_path / "a", 2.0), back_after(tmp_path / "b", 9.0)])
    (against,) = comparison.recovery[0].against
    assert against.judgement == "unsure"
    assert against.change == pytest.approx(4.5, rel=0.3)
    assert told(comparison)


def test_a_fault_that_nobody_noticed_is_over_at_once(tmp_path: Path) -> None:
    calm = [
        write_disturbed(tmp_path / f"{number}", steady(2.0, 60.0), until=60.0, events=[KILL])
        for number in range(3)
    ]
    (row,) = compare([back_after(tmp_path / "b", 9.0, 9.6, 10.2), calm]).recovery
    assert [back.seconds for back in row.values[1] if back is not None] == [0.0] * 3
    assert row.against[0].judgement == "better"


def test_runs_without_a_fault_have_no_recovery(tmp_path: Path) -> None:
    calm = [write_disturbed(tmp_path / f"{number}", steady(2.0, 60.0), until=60.0) for number in range(2)]
    comparison = compare(calm)
    assert comparison.recovery == []
    assert not told(comparison)


def told(comparison: Comparison) -> bool:
    """Whether both of its pages have the section."""
    markdown, page = write_comparison(comparison, "md"), write_comparison(comparison, "html")
    assert ("## Recovery" in markdown) == ('id="recovery"' in page)
    return "## Recovery" in markdown
