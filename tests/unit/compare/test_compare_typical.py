"""How long a typical call took over a whole ramp: one figure of each run, also past its cliff."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.made.made_runs import made_run, made_stage
from tippingpoint.analysis.analyse import analyse
from tippingpoint.compare.compare import ALL_CALLS, Comparison, Overall, compare
from tippingpoint.compare.typical import parts_of, ramp_of
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
    failing: float = 0.0,
    sizes: Sequence[int] = SIZES,
    title: str = "made",
    **options: Any,
) -> RunData:
    """A run that holds its smaller loads, and at the largest has a queue of some seconds, `slower` times as long.

    Smaller loads are as fast in each release. A share of the calls at the largest load fails at once.
    """
    stages: list[StageResult] = []
    for number, size in enumerate(sizes, start=1):
        past = size == sizes[-1]
        by = (3000 * slower if past else 20) * np.exp(random.normal(0, scatter))
        calls = by * np.exp(random.normal(0, 0.5, 30 * size))
        failed = round(failing * calls.size) if past else 0
        made = {"extend.ok": calls[failed:], "extend.error": [0.5] * failed}
        stages.append(made_stage(number, size, made))
    return made_run(stages, plan=PLAN, title=title, **options)


def repeats(seed: int, count: int = 3, **options: Any) -> list[RunData]:
    random = np.random.default_rng(seed)
    return [queued(random, **options) for _ in range(count)]


def typical(comparison: Comparison) -> Overall:
    (found,) = [one for one in comparison.overall if one.operation == ALL_CALLS]
    return found


def test_a_longer_queue_past_a_cliff_that_all_have_is_worse() -> None:
    # given two releases that tip at the same step, and are as fast before, but one has four times the queue past it
    before, after = repeats(1, title="old"), repeats(2, slower=4.0, title="new")
    comparison = compare([before, after])
    # then where they tip does not tell them apart
    assert [reach.broken for release in comparison.releases for reach in release.reaches] == [40] * 6
    assert comparison.tips == ["same"]
    # but how long a typical call took does, by the geometric mean over three loads of which one is four times as long
    (against,) = typical(comparison).against
    assert against.judgement == "worse"
    assert against.change == pytest.approx(4 ** (1 / 3), rel=0.25)
    assert (comparison.outcome, comparison.regressed) == ("worse", True)
    assert comparison.worse[0].startswith("a typical call up to 40 leases: x1.")
    assert "a typical call of new up to 40 leases takes 1." in comparison.sentence
    # and the other way round it is better
    assert compare([after, before]).outcome == "better"


def test_a_release_beside_itself_is_hardly_ever_called_different_by_it() -> None:
    found = [compare([repeats(seed), repeats(seed + 1000)], tolerance=0.0).outcome for seed in range(60)]
    assert sum(outcome != "none" for outcome in found) <= 6, "one in 20 is expected"


def test_calls_that_fail_fast_do_not_make_a_typical_call_faster() -> None:
    # given a release that refuses most calls at once at the largest load, and so answers the rest sooner
    before, after = repeats(3, title="old"), repeats(4, slower=0.1, failing=0.6, title="new")
    comparison = compare([before, after])
    # then that load tells nothing of a typical call, and the others are the same
    (against,) = typical(comparison).against
    assert against.judgement != "better"
    assert comparison.outcome != "better"
    assert [len(ramp_of(analyse(run))) for run in (*before, *after)] == [3] * 3 + [2] * 3


@settings(max_examples=15, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), slower=st.sampled_from([0.2, 0.8, 1.0, 1.5, 6.0]))
def test_the_other_way_round_it_is_the_mirror(seed: int, slower: float) -> None:
    before, after = repeats(seed), repeats(seed + 1, slower=slower)
    (there,), (back,) = (typical(compare(pair)).against for pair in ([before, after], [after, before]))
    assert (there.change, there.low, there.high) != (None, None, None)
    assert [1 / (one or 0.0) for one in (there.change, there.high, there.low)] == pytest.approx(
        [back.change, back.low, back.high]
    )
    assert back.judgement == {"worse": "better", "better": "worse"}.get(str(there.judgement), there.judgement)


def test_what_a_control_differs_by_is_withheld() -> None:
    # given a control, which is the first release once more, with as long a queue as the other release
    before, after, again = repeats(10), repeats(11, slower=4.0), repeats(12, slower=4.5)
    comparison = compare([before, after], control=again)
    assert typical(comparison).against[0].judgement not in ("worse", "better")
    assert not comparison.regressed
    # and beside a control that is as the first release is, it is worse
    assert compare([before, after], control=repeats(12)).outcome == "worse"


def test_only_steps_that_all_runs_had_alike_count() -> None:
    ramps = [ramp_of(analyse(run)) for run in repeats(5)]
    assert parts_of(ramps) == [(0, "extend"), (1, "extend"), (2, "extend")]
    # a queue is longer after a longer hold
    held_longer = [*ramps[0][:2], replace(ramps[0][2], hold=60.0)]
    assert parts_of([*ramps, held_longer]) == [(0, "extend"), (1, "extend")]
    # and after other loads before it
    other = [ramp_of(analyse(queued(np.random.default_rng(6), sizes=(10, 30, 40))))]
    assert parts_of([*ramps, *other]) == [(0, "extend")]
    # a run that was cut short has no more than it held
    cut = queued(np.random.default_rng(7), status="interrupted", reason="ended early on request")
    cut.stages[-1].end = None
    assert len(ramp_of(analyse(cut))) == 2
    assert parts_of([]) == []


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
    assert "geometric mean over the whole ramp" in page
