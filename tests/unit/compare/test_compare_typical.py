"""How long a typical call took over all loads that every run held: one figure of each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.compare.mirrored import assert_mirrored
from tests.unit.made.made_runs import made_run, made_stage, repeated
from tippingpoint.analysis.analyse import analyse
from tippingpoint.compare.compare import compare
from tippingpoint.compare.comparison import ALL_CALLS, Comparison, Overall
from tippingpoint.compare.ramp import ramp_of
from tippingpoint.compare.typical import parts_of
from tippingpoint.report import write_comparison
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult

SIZES = (10, 20, 40)
PLAN = """
name: queued
target: {kind: etcd, endpoints: ["https://m1:2379"]}
workload: {renew_time: 1s, claim_time: 20s}
stages: [{leases: 10, hold: 30s}, {leases: 20, hold: 30s}, {leases: 40, hold: 30s}]
"""


def queued(
    random: np.random.Generator,
    slower: float = 1.0,
    scatter: float = 0.25,
    queue: float = 1.0,
    failing: float = 0.0,
    sizes: Sequence[int] = SIZES,
    title: str = "made",
    **options: Any,
) -> RunData:
    """A run that holds its smaller loads, where it is `slower`, and at the largest has a `queue` of 3 s or so.

    A share of the calls at the smallest load fails at once.
    """
    stages: list[StageResult] = []
    for number, size in enumerate(sizes, start=1):
        past = size == sizes[-1]
        by = (3000 * queue if past else 20 * slower) * np.exp(random.normal(0, scatter))
        calls = by * np.exp(random.normal(0, 0.5, 30 * size))
        failed = round(failing * calls.size) if size == sizes[0] else 0
        made = {"extend.ok": calls[failed:], "extend.error": [0.5] * failed}
        stages.append(made_stage(number, size, made))
    return made_run(stages, plan=PLAN, title=title, **options)


repeats = partial(repeated, queued)


def typical(comparison: Comparison) -> Overall:
    (found,) = [one for one in comparison.overall if one.operation == ALL_CALLS]
    return found


def test_calls_that_take_longer_at_loads_that_both_hold_are_worse() -> None:
    # given two releases that tip at the same step, of which one takes four times as long before it
    before, after = repeats(1, title="old"), repeats(2, slower=4.0, title="new")
    comparison = compare([before, after])
    # then where they tip does not tell them apart
    assert [reach.broken for release in comparison.releases for reach in release.reaches] == [40] * 6
    assert comparison.tips == ["same"]
    # but how long a typical call took does, by the geometric mean over the loads before
    (against,) = typical(comparison).against
    assert against.judgement == "worse"
    assert against.change == pytest.approx(4, rel=0.4)
    assert (comparison.outcome, comparison.regressed) == ("worse", True)
    assert comparison.worse[0].startswith("a typical call up to 20 leases: ")
    assert "a typical call of new up to 20 leases takes " in comparison.sentence
    # and the other way round it is better
    assert compare([after, before]).outcome == "better"


def test_how_long_a_queue_takes_past_a_cliff_is_not_compared() -> None:
    # given two releases that break at 40, where one of them has a queue four times as long
    before, after = repeats(3), repeats(4, queue=4.0)
    (against,) = typical(compare([before, after])).against
    assert against.change == pytest.approx(1, abs=0.3)
    assert against.judgement not in ("worse", "better")


def test_a_release_beside_itself_is_hardly_ever_called_different_by_it() -> None:
    found = [compare([repeats(seed), repeats(seed + 1000)], tolerance=0.0).outcome for seed in range(60)]
    assert sum(outcome != "none" for outcome in found) <= 6, "one in 20 is expected"


def test_calls_that_fail_fast_do_not_make_a_typical_call_faster() -> None:
    # given a release that refuses a part of its calls at once at the smallest load
    before, after = repeats(3), repeats(4, failing=0.02)
    ramps = [ramp_of(analyse(run)) for run in (*before, *after)]
    # then that load tells nothing of a typical call
    assert parts_of(ramps, (10, 20)) == [(1, "extend")]
    assert compare([before, after]).outcome != "better"


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), slower=st.sampled_from([0.2, 0.8, 1.0, 1.5, 6.0]))
def test_the_other_way_round_it_is_the_mirror(seed: int, slower: float) -> None:
    before, after = repeats(seed), repeats(seed + 1, slower=slower)
    (there,), (back,) = (typical(compare(pair)).against for pair in ([before, after], [after, before]))
    assert (there.change, there.low, there.high) != (None, None, None)
    assert_mirrored(there, back)


def test_what_a_control_differs_by_is_withheld() -> None:
    # given a control, which is the first release once more, and as slow as the other release
    before, after, again = repeats(10), repeats(11, slower=4.0), repeats(12, slower=4.5)
    comparison = compare([before, after], control=again)
    assert typical(comparison).against[0].judgement not in ("worse", "better")
    assert not comparison.regressed
    # and beside a control that is as the first release is, it is worse
    assert compare([before, after], control=repeats(12)).outcome == "worse"


def test_only_held_steps_that_all_runs_had_alike_count() -> None:
    ramps = [ramp_of(analyse(run)) for run in repeats(5)]
    assert parts_of(ramps, SIZES) == [(0, "extend"), (1, "extend"), (2, "extend")]
    assert parts_of(ramps, (10, 20)) == [(0, "extend"), (1, "extend")]
    # a load that was held for longer is another one
    held_longer = [*ramps[0][:2], replace(ramps[0][2], hold=60.0)]
    assert parts_of([*ramps, held_longer], SIZES) == [(0, "extend"), (1, "extend")]
    # and so is one after other loads
    other = [ramp_of(analyse(queued(np.random.default_rng(6), sizes=(10, 30, 40))))]
    assert parts_of([*ramps, *other], SIZES) == [(0, "extend")]
    # a run that was cut short has no more than it held
    cut = queued(np.random.default_rng(7), status="interrupted", reason="ended early on request")
    cut.stages[-1].end = None
    assert len(ramp_of(analyse(cut))) == 2
    assert parts_of([], SIZES) == []


def test_one_run_each_has_no_typical_call() -> None:
    comparison = compare([repeats(8, 1), repeats(9, 1, slower=4.0)])
    assert (comparison.overall, comparison.outcome) == ([], "single")


def test_the_page_shows_it_with_its_interval() -> None:
    comparison = compare([repeats(1, title="old"), repeats(2, slower=4.0, title="new")])
    markdown = write_comparison(comparison, "md")
    assert "| all calls" in markdown
    assert "typical time" in markdown
    page = write_comparison(comparison, "html")
    assert "all calls" in page
    assert "the typical time of all calls is a geometric mean" in page
