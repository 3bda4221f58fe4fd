"""Runs beside which other programs took much of the target's processors do not decide a comparison."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.unit.made.made_runs import STAGE_SECONDS, made_run, made_stage, repeated
from tippingpoint.compare.compare import compare
from tippingpoint.compare.disturbed import disturbed, undisturbed
from tippingpoint.report import write_comparison
from tippingpoint.rundir.machine import Used
from tippingpoint.rundir.results import RunData

PLAN = """
name: beside
target: {kind: etcd, endpoints: ["https://m1:2379"]}
stages: [{leases: 1000, hold: 30s}, {leases: 2000, hold: 30s}]
"""


def held(
    random: np.random.Generator, extend_ms: float = 5.0, others: float = 0.0, title: str = "made"
) -> RunData:
    """A run of two loads, beside which others took a share of the target's processor."""
    level = extend_ms * np.exp(random.normal(0, 0.02))
    stages = [
        made_stage(number, size, {"extend.ok": level * np.exp(random.normal(0, 0.2, 3000))})
        for number, size in enumerate((1000, 2000), start=1)
    ]
    run = made_run(stages, plan=PLAN, title=title)
    run.machine = [
        Used(
            t=t,
            seconds=1.0,
            cpus=1,
            busy=0.25 + others,
            ours=0.0,
            target=0.25,
            steal=0.0,
            waited=0.0,
            stalled={},
        )
        for t in range(1, round(2 * STAGE_SECONDS) + 1)
    ]
    return run


repeats = partial(repeated, held)
SAID = "other programs used 50 % of the target's processor"


def test_a_run_beside_others_is_disturbed() -> None:
    quiet, beside = repeats(1, count=1)[0], repeats(1, count=1, others=0.5)[0]
    assert disturbed(quiet) == ""
    assert disturbed(beside) == SAID
    assert undisturbed([quiet, beside]) == ([quiet], [(2, SAID)])
    assert undisturbed([beside, beside]) == ([beside, beside], [])
    assert undisturbed([]) == ([], [])


def test_a_disturbed_repeat_is_left_out_and_named() -> None:
    # given two releases that are alike, but for one run, which other programs slowed down
    before = repeats(1, title="old")
    after = [*repeats(2, title="new"), *repeats(3, count=1, extend_ms=40.0, others=0.5, title="new")]
    comparison = compare([before, after])
    # then that run is no part of it
    assert [len(release.runs) for release in comparison.releases] == [3, 3]
    assert comparison.outcome == "none"
    assert f"new, run 4, is left out: {SAID} meanwhile." in comparison.sentence


def test_nothing_is_judged_of_a_release_all_of_whose_runs_are_disturbed() -> None:
    # given a release that is slower for certain, but other programs ran beside all of its runs
    before, after = repeats(1, title="old"), repeats(2, extend_ms=10.0, title="new")
    assert compare([before, after]).outcome == "worse"
    comparison = compare([before, repeats(2, extend_ms=10.0, others=0.5, title="new")])
    # then that decides nothing, and it is said why
    assert comparison.outcome == "withheld"
    assert not comparison.regressed
    assert (comparison.worse, comparison.better) == ([], [])
    assert f"new was not judged: {SAID} meanwhile." in comparison.sentence


def test_nothing_is_judged_against_a_disturbed_baseline() -> None:
    base = repeats(1, extend_ms=10.0, others=0.5, title="old")
    comparison = compare([base, repeats(2, title="new"), repeats(3, extend_ms=5.0, title="newer")])
    assert comparison.outcome == "withheld"
    assert f"old was not judged: {SAID} meanwhile." in comparison.sentence


def test_a_disturbed_run_of_the_control_is_left_out_and_named() -> None:
    control = [*repeats(3, title="old", count=2), *repeats(4, title="old", count=1, others=0.5)]
    comparison = compare([repeats(1, title="old"), repeats(2, title="new")], control=control)
    assert comparison.control is not None
    assert len(comparison.control.runs) == 2
    assert f"Control run 3 is left out: {SAID} meanwhile." in comparison.sentence


def test_a_control_all_of_whose_runs_are_disturbed_says_so() -> None:
    control = repeats(3, title="old", others=0.5)
    comparison = compare([repeats(1, title="old"), repeats(2, title="new")], control=control)
    assert f"The control shows little: {SAID} in all of its runs." in comparison.sentence


@pytest.mark.parametrize("form", ["html", "md"])
def test_the_formats_say_so(form: str) -> None:
    comparison = compare([repeats(1, title="old"), repeats(2, others=0.5, title="new")])
    said = write_comparison(comparison, form)  # type: ignore[arg-type]
    assert "new was not judged: other programs used 50 %" in said
