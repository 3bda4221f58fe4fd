"""What was served at most at any load of a ramp: it shows the capacity, where a run broke."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.compare.mirrored import assert_mirrored
from tests.unit.made.made_runs import made_run, made_stage, repeated
from tippingpoint.analysis.analyse import analyse
from tippingpoint.compare.compare import compare
from tippingpoint.compare.comparison import SERVED, Comparison, Overall
from tippingpoint.compare.ramp import alike, ramp_of
from tippingpoint.compare.served import most_served
from tippingpoint.report import write_comparison
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.results import RunData

PLAN = """
name: served
target: {kind: etcd, endpoints: ["https://m1:2379"]}
workload: {renew_time: 1s, claim_time: 20s}
stages: [{leases: 1000, hold: 30s}, {leases: 2000, hold: 30s}, {leases: 4000, hold: 30s}]
"""


def overloaded(
    random: np.random.Generator,
    capacity: float = 2400,
    scatter: float = 0.03,
    failing: float = 0.0,
    title: str = "made",
) -> RunData:
    """A run of three loads, which serves what it is offered, or its capacity; then a queue grows while it lasts."""
    capacity *= np.exp(random.normal(0, scatter))
    stages = []
    for number, offered in enumerate((1000, 2000, 4000), start=1):
        served = round(30 * min(offered, capacity))
        longest = max(0.0, offered / capacity - 1) * 30_000
        calls = 5 * np.exp(random.normal(0, 0.3, served)) + np.linspace(0, longest, served)
        failed = round(failing * served) if offered > capacity else 0
        stages.append(made_stage(number, offered, {"extend.ok": calls, "extend.error": [0.5] * failed}))
    return made_run(stages, plan=PLAN, title=title)


repeats = partial(repeated, overloaded)


def served(comparison: Comparison) -> Overall:
    (found,) = [one for one in comparison.overall if one.measure == SERVED]
    return found


def test_a_quarter_less_capacity_is_worse_where_both_tip_at_the_same_step() -> None:
    # given two releases that hold 2,000 leases and not 4,000, of which one has a quarter less capacity past that
    before, after = repeats(1, capacity=3000, title="old"), repeats(2, capacity=2250, title="new")
    comparison = compare([before, after])
    # then where they tip does not tell them apart
    assert comparison.tips == ["same"]
    # but what they serve past it does
    (against,) = served(comparison).against
    assert against.judgement == "worse"
    assert against.change == pytest.approx(0.75, rel=0.05)
    assert against.low is not None
    assert against.high is not None
    assert against.low < against.change < against.high < 1
    assert (comparison.outcome, comparison.regressed) == ("worse", True)
    assert re.match(r"the most extend calls served a second: 0\.7\d*x, 95 % 0\.", comparison.worse[0])
    assert re.search(
        r"the most extend calls that new serves a second are 0\.7\dx those of old \(95 % 0\.",
        comparison.sentence,
    )
    # and the other way round it is better
    assert compare([after, before]).outcome == "better"


def test_releases_that_hold_every_load_serve_alike() -> None:
    # given two releases that hold all loads, of which one could serve twice as much
    comparison = compare([repeats(3, capacity=8000), repeats(4, capacity=16000)])
    (against,) = served(comparison).against
    assert against.change == pytest.approx(1.0, abs=0.01)
    assert (against.judgement, comparison.outcome) == ("same", "none")


def test_calls_that_fail_are_not_served() -> None:
    # given a release that refuses calls at once past its cliff, and serves a quarter less
    comparison = compare([repeats(5, capacity=3000), repeats(6, capacity=2250, failing=0.6)])
    assert served(comparison).against[0].judgement == "worse"


def test_leases_that_are_lost_and_claimed_again_are_no_more_claims_served() -> None:
    # given a release that loses leases past its cliff, so that they are claimed again while the load is held
    before, after = repeats(5, capacity=3000), repeats(6, capacity=2250)
    for run, claims in ((run, count) for runs, count in ((before, 5), (after, 900)) for run in runs):
        run.stages[-1].held["claim.ok"] = run.stages[-1].histograms["claim.ok"] = Histogram.of(
            np.full(claims, 5000)
        )
    comparison = compare([before, after])
    # then what was served is told of the extends, which are the load, and not of the claims
    assert [one.operation for one in comparison.overall if one.measure == SERVED] == ["extend"]
    assert not any("claim calls served" in line for line in comparison.better)
    # and where claims are the load, of them too
    for run in (*before, *after):
        run.manifest.load_unit = "claims/s"
    assert {one.operation for one in compare([before, after]).overall if one.measure == SERVED} == {
        "extend",
        "claim",
    }


def test_a_release_beside_itself_is_hardly_ever_called_different_by_it() -> None:
    found = [
        compare([repeats(seed, scatter=0.1), repeats(seed + 1000, scatter=0.1)], tolerance=0.0).outcome
        for seed in range(40)
    ]
    assert sum(outcome != "none" for outcome in found) <= 5, "one in 40 is expected"


@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), capacity=st.sampled_from([1800.0, 2250.0, 3000.0, 5000.0]))
def test_the_other_way_round_it_is_the_mirror(seed: int, capacity: float) -> None:
    before, after = repeats(seed), repeats(seed + 1, capacity=capacity)
    (there,), (back,) = (served(compare(pair)).against for pair in ([before, after], [after, before]))
    assert_mirrored(there, back)


def test_what_a_control_differs_by_is_withheld() -> None:
    before, after, again = repeats(10), repeats(11, capacity=1800), repeats(12, capacity=1750)
    comparison = compare([before, after], control=again)
    assert served(comparison).against[0].judgement not in ("worse", "better")
    assert not comparison.regressed
    assert compare([before, after], control=repeats(12)).outcome == "worse"


def test_only_steps_that_all_runs_had_alike_count() -> None:
    ramps = [ramp_of(analyse(run)) for run in repeats(5)]
    assert alike(ramps) == 3
    # a queue is longer after a longer hold
    held_longer = [*ramps[0][:2], replace(ramps[0][2], hold=60.0)]
    assert alike([*ramps, held_longer]) == 2
    assert [rate for rate, _ in most_served([*ramps, held_longer])["extend"]] == pytest.approx([2000] * 4)
    # and after other loads before it
    other = [replace(step, size=step.size + 100) for step in ramps[0]]
    assert alike([*ramps, other]) == 0
    assert alike([]) == 0
    assert most_served([]) == {}


def test_an_operation_that_one_run_did_not_try_is_left_out_and_one_that_served_nothing_is_not() -> None:
    (ramp,) = [ramp_of(analyse(run)) for run in repeats(7, 1)]
    without = [replace(step, served={}) for step in ramp]
    assert most_served([ramp, without]) == {}
    nothing = [replace(step, served={"extend": (0, 30.0)}) for step in ramp]
    assert most_served([ramp, nothing])["extend"][1] == pytest.approx((0.5 / 30, 0.5))
    assert most_served([nothing, nothing]) == {}


def test_one_run_each_has_nothing_served_to_compare() -> None:
    comparison = compare([repeats(8, 1), repeats(9, 1, capacity=1800)])
    assert (comparison.overall, comparison.outcome) == ([], "single")


def test_the_page_shows_it_with_its_interval() -> None:
    comparison = compare([repeats(1, capacity=3000, title="old"), repeats(2, capacity=2250, title="new")])
    markdown = write_comparison(comparison, "md")
    assert "the most a second is that of any load" in markdown
    assert re.search(r"\| extend +\| most a second +\| 0\.7", markdown)
    assert "they show the capacity" in write_comparison(comparison, "html")
