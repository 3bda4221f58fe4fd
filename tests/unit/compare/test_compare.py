"""Two or more runs side by side: what changed for certain, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.made.made_runs import made_run, made_stage
from tippingpoint.analysis.confidence import percentile_interval
from tippingpoint.compare.compare import compare
from tippingpoint.compare.comparison import Comparison, Row
from tippingpoint.compare.reach import Reach, tips_against
from tippingpoint.errors import UserError
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult

SIZES = (1000, 2000, 4000)


def sampled(
    random: np.random.Generator,
    samples: int = 5000,
    slower: float = 1.0,
    failing: float = 0.0,
    title: str = "made",
    sizes: tuple[int, ...] = SIZES,
) -> RunData:
    """A run whose latencies are log-normal around 20 ms times `slower`."""
    stages = []
    for number, size in enumerate(sizes, start=1):
        made = {}
        for operation in ("claim", "extend"):
            made[f"{operation}.ok"] = 20 * slower * np.exp(random.normal(0, 0.5, samples))
            made[f"{operation}.error"] = [20.0 * slower] * random.binomial(samples, failing)
        stages.append(made_stage(number, size, made))
    return made_run(stages, title=title)


def thrice(random: np.random.Generator, samples: int = 5000, **options: Any) -> list[RunData]:
    """Three runs of one release, which scatter no more than their samples do."""
    return [sampled(random, samples, **options) for _ in range(3)]


def row(comparison: Comparison, operation: str, size: int, measure: str) -> Row:
    (found,) = [
        row
        for row in comparison.rows
        if (row.operation, row.size, row.measure, row.storm) == (operation, size, measure, False)
    ]
    return found


def test_a_slower_run_is_worse_and_a_faster_one_better() -> None:
    random = np.random.default_rng(1)
    slower = compare([thrice(random, title="a"), thrice(random, slower=1.5, title="b")])
    for size in SIZES:
        for measure in ("p50", "p90", "p95", "p99"):
            (against,) = row(slower, "extend", size, measure).against
            assert against.judgement == "worse"
            assert against.change == pytest.approx(1.5, rel=0.15)
            assert against.low is not None
            assert against.high is not None
            assert against.low <= 1.5 * 1.15
            assert against.high >= 1.5 / 1.15
    assert slower.regressed
    assert len(slower.worse) == 1 + 8 + 24, "a typical call, over all loads, and at each"
    assert slower.better == []
    faster = compare([thrice(random, slower=1.5), thrice(random)])
    assert not faster.regressed
    assert len(faster.better) == 1 + 8 + 24


def test_what_was_late_because_a_worker_stood_still_is_no_difference() -> None:
    random = np.random.default_rng(2)
    runs = [sampled(random, title="a"), sampled(random, title="b")]
    for stage in runs[1].stages:
        quick = Histogram.of(np.rint(20_000 * np.exp(random.normal(0, 0.5, 200))))
        late = Histogram.of(np.full(200, 750_000))
        stage.response("extend").add(late)
        stage.histograms |= {"extend.ok-delayed": late, "extend.ok-freed": quick}
    comparison = compare(runs)
    assert not comparison.regressed
    assert comparison.worse == []


def test_one_run_each_says_of_no_figure_that_it_differs() -> None:
    # given two runs of which one is three times as slow for all of its samples
    random = np.random.default_rng(2)
    comparison = compare([sampled(random, title="a"), sampled(random, slower=3.0, title="b")])
    # then nothing is worse, since a release beside itself has shown as much
    assert (comparison.outcome, comparison.regressed, comparison.repeated) == ("single", False, False)
    assert (comparison.worse, comparison.better) == ([], [])
    assert comparison.sentence.endswith("One run each: differences between runs are not known.")
    # but how much it differs is there, with the interval that the samples give
    (against,) = row(comparison, "claim", 2000, "p50").against
    assert against.change == pytest.approx(3.0, rel=0.1)
    assert against.judgement == "unsure"


def scattered(random: np.random.Generator, count: int, slower: float = 1.0) -> list[RunData]:
    """Runs of one release on a busy machine: each is slower or faster as a whole by a third, at any moment."""
    return [
        sampled(random, 300, slower=slower * float(np.exp(random.normal(0, 0.3))), sizes=(1000, 2000))
        for _ in range(count)
    ]


def test_a_release_beside_itself_is_hardly_ever_called_different() -> None:
    random = np.random.default_rng(2)
    found = [compare([scattered(random, 3), scattered(random, 3)], tolerance=0.0) for _ in range(40)]
    assert sum(bool(one.worse or one.better) for one in found) <= 5, "one in 20 is expected"
    assert {one.outcome for one in found} <= {"none", "worse", "better"}


def test_a_difference_that_repeats_do_not_explain_is_found() -> None:
    random = np.random.default_rng(3)
    found = [compare([scattered(random, 3), scattered(random, 3, slower=5.0)]) for _ in range(10)]
    assert sum(one.outcome == "worse" for one in found) >= 8


def test_what_a_control_differs_by_is_withheld() -> None:
    # given a release whose control, which is the same release, is as slow as the other release
    random = np.random.default_rng(4)
    first, slow, slower = (
        thrice(random, title=title, slower=by) for title, by in (("a", 1.0), ("b", 2.0), ("c", 2.2))
    )
    comparison = compare([first, slow], control=slower)
    # then nothing is said of that other release, and the control is told
    assert not comparison.regressed
    assert comparison.worse == []
    assert comparison.control_words.startswith("The control differs from the other runs of a")
    # and beside a control that is as the first release is, it is worse
    calm = compare([first, slow], control=thrice(random, title="a"))
    assert calm.regressed
    assert calm.control_words.startswith("The control agrees with the other runs of a")


def test_the_same_run_twice_says_nothing_of_others() -> None:
    run = sampled(np.random.default_rng(3), samples=50_000)
    comparison = compare([run, run])
    assert {against.change for row in comparison.rows for against in row.against} == {1.0, 0.0}
    assert (comparison.worse, comparison.better, comparison.outcome) == ([], [], "single")


def test_few_samples_are_unsure_and_never_a_regression() -> None:
    random = np.random.default_rng(4)
    comparison = compare([sampled(random, samples=4), sampled(random, samples=4, slower=3.0)])
    assert {against.judgement for row in comparison.rows for against in row.against} == {"unsure"}
    assert not comparison.regressed
    (against,) = row(comparison, "claim", 1000, "p99").against
    assert against.high == inf


def test_a_change_within_the_tolerance_is_no_regression() -> None:
    random = np.random.default_rng(5)
    releases = [thrice(random, 20_000), thrice(random, 20_000, slower=1.15)]
    assert compare(releases, tolerance=0.10).regressed
    assert not compare(releases, tolerance=0.25).regressed


def test_more_errors_at_a_load_that_both_held_are_worse_even_when_latency_is_the_same() -> None:
    # given as many errors as chance explains in one run, and three times as many in the other
    random = np.random.default_rng(6)
    before, after = thrice(random, 100_000), thrice(random, 100_000)
    for run, failed in [*((run, 25) for run in before), *((run, 95) for run in after)]:
        for stage in run.stages:
            stage.histograms["claim.error"] = Histogram.of(np.full(failed, 20_000))
    comparison = compare([before, after])
    assert comparison.tips == ["same"]
    (against,) = row(comparison, "claim", 1000, "error_rate").against
    assert against.judgement == "worse"
    assert against.change == pytest.approx(0.0007, abs=0.0001)
    assert comparison.worse[0].startswith("claim error rate")


# ---- first where each tips -----------------------------------------------------------------------


def test_leases_lost_in_one_run_only_are_worse_by_where_it_tips() -> None:
    held = made_run([made_stage(1, 1000, {"extend.ok": [20.0] * 2000})])
    lost = made_run([made_stage(1, 1000, {"extend.ok": [20.0] * 1900, "extend.lost": [20.0] * 100})])
    comparison = compare([[held] * 3, [lost] * 3])
    assert comparison.worse == [
        "tips at 1,000 leases or less (100 of 2,000 extends lost), where A passed 1,000, the only load tried"
    ]
    assert comparison.regressed
    assert not compare([held, lost]).regressed, "one run each might have fallen on either side"
    assert {against.judgement for row in comparison.rows for against in row.against} == {None}
    assert {against.beyond for row in comparison.rows for against in row.against} == {"past the cliff of B"}


def broken_from(title: str, cliff: int | None, slower: float = 1.0, sizes: Sequence[int] = SIZES) -> RunData:
    """A run that loses a tenth of its leases from a size on, where the rest of its claims fail fast or slowly."""
    random = np.random.default_rng(len(title) + 7)
    stages: list[StageResult] = []
    for number, size in enumerate(sizes, start=1):
        past = cliff is not None and size >= cliff
        made = {
            "claim.ok": 20 * np.exp(random.normal(0, 0.5, 3000)) * (100 if past else 1),
            "extend.ok": 5 * slower * np.exp(random.normal(0, 0.5, 3000)) * (100 if past else 1),
            "extend.lost": [5.0] * (300 if past else 0),
        }
        stages.append(made_stage(number, size, made))
    return made_run(stages, title=title)


def test_a_release_that_tips_at_twice_the_load_is_better_though_it_is_slower_before() -> None:
    # given a release that breaks at 4000 where the one before broke at 2000, and extends 1.3 times as slowly
    comparison = compare([[broken_from("old", 2000)] * 3, [broken_from("new", 4000, slower=1.3)] * 3])
    # then it got better, and the sentence says both, in that order
    assert (comparison.outcome, comparison.regressed, comparison.tips) == ("better", False, ["better"])
    assert re.fullmatch(
        r"new tips at 2,000 to 4,000 leases; old at 1,000 to 2,000; "
        r"new tips at 2x the load of old \(95 % 1\.\d+x to [23]\.?\d*x\); "
        r"though extend p\d\d at 1,000 leases is 1\.[23]\d?x\.",
        comparison.sentence,
    ), comparison.sentence
    assert comparison.better[0] == "tips at 2,000 to 4,000 leases, where old tips at 1,000 to 2,000"
    # and what is past the one's cliff is neither
    assert {row.size for row in comparison.rows for one in row.against if one.judgement is None} == {
        2000,
        4000,
    }
    told = (" at 1,000 leases", " up to 1,000 leases", " over all loads")
    assert all(any(where in line for where in told) for line in comparison.worse)
    assert "are at loads that were not sustained and are not judged" in comparison.changes
    # and the other way round it got worse
    back = compare([[broken_from("new", 4000, slower=1.3)] * 3, [broken_from("old", 2000)] * 3])
    assert (back.outcome, back.regressed, back.tips) == ("worse", True, ["worse"])


def test_a_run_that_was_cut_short_before_it_tipped_is_neither_worse_nor_better_by_that() -> None:
    comparison = compare([broken_from("old", None), broken_from("cut", None, sizes=(1000, 2000))])
    assert comparison.tips == ["unsure"]
    assert not comparison.regressed


def test_loads_that_overlap_say_nothing_of_who_tips_first() -> None:
    comparison = compare([broken_from("a", 4000), broken_from("b", 3000, sizes=(1000, 2000, 3000))])
    assert comparison.tips == ["unsure"]
    assert compare([broken_from("a", 4000), broken_from("b", 4000)]).tips == ["same"]


def test_a_missed_threshold_says_nothing_beside_one_that_was_not_judged() -> None:
    # given a run that misses a threshold at 500, and one that breaks at 1000, of which nobody knows whether it was met
    missed = Reach(250, 500, "", "threshold", "extend p99 was 374 ms", loads=(125, 250))
    broken = Reach(500, 1000, "", "cliff", "throughput fell", loads=(125, 250, 500), cliff=1000)
    far = Reach(50, 100, "", "threshold", "extend p99 was 374 ms", loads=(50,))
    assert tips_against(broken, far) == "worse"
    assert tips_against(far, broken) == "better"
    # loads that are next to each other may be those of two runs of one release
    assert tips_against(broken, missed) == tips_against(missed, broken) == "unsure"
    for unjudged in (250, 500):
        late = replace(broken, unjudged=unjudged)
        assert tips_against(late, missed) == tips_against(missed, late) == "unsure"
    assert tips_against(replace(broken, unjudged=1000), far) == "worse"
    # nor where their thresholds are not the same
    assert tips_against(broken, far, same_thresholds=False) == "unsure"


def test_a_load_that_one_did_not_hold_is_not_judged() -> None:
    cut = broken_from("b", None, slower=3.0)
    cut.stages[-1].end = None
    comparison = compare([[broken_from("a", None)] * 3, [cut] * 3])
    assert {one.beyond for row in comparison.rows if row.size == 4000 for one in row.against} == {
        "not sustained by b"
    }
    assert not any("4000" in line for line in comparison.worse)
    assert comparison.regressed, "at 1,000 and 2,000 leases it is slower"


RUNS = st.builds(
    dict,
    cliff=st.sampled_from([None, 1000, 2000, 4000]),
    slower=st.sampled_from([0.5, 1.0, 1.05, 2.0]),
    sizes=st.sampled_from([(1000,), (1000, 2000), (1000, 2000, 4000), (2000, 4000), (500, 3000)]),
)
MIRRORED = {"worse": "better", "better": "worse"}


@settings(max_examples=60, deadline=None, derandomize=True)
@given(a=RUNS, b=RUNS, cut=st.booleans())
def test_a_comparison_contradicts_neither_itself_nor_its_mirror(
    a: dict[str, Any], b: dict[str, Any], cut: bool
) -> None:
    # given any two runs
    first, second = broken_from("first", **a), broken_from("second", **b)
    if cut:
        second.stages[-1].end = None
    there, back = compare([first, second]), compare([second, first])
    # then the one against the other is the mirror of the other against the one
    assert [MIRRORED.get(tip, tip) for tip in there.tips] == back.tips
    for one, other in zip(there.rows, back.rows, strict=True):
        assert (one.operation, one.size, one.measure) == (other.operation, other.size, other.measure)
        judged = one.against[0].judgement
        assert other.against[0].judgement == (MIRRORED.get(judged, judged) if judged else None)
        assert one.against[0].beyond == other.against[0].beyond or one.against[0].beyond
    assert (len(there.worse), len(there.better)) == (len(back.better), len(back.worse))
    for comparison in (there, back):
        # and nothing is worse and better at once
        subjects = [
            {line.split(":")[0].split(" (")[0] for line in lines}
            for lines in (comparison.worse, comparison.better)
        ]
        assert not subjects[0] & subjects[1]
        # nor is anything judged past either's cliff, or where one did not hold the load
        for row in comparison.rows:
            held = all(row.size in reach.loads for reach in comparison.reaches)
            assert (row.against[0].judgement is None) == (not held) == bool(row.against[0].beyond)
        # and where a run tips is weighed first
        (tip,) = comparison.tips
        assert tip not in MIRRORED or comparison.outcome == tip
        assert comparison.regressed == (comparison.outcome == "worse")
        assert comparison.regressed <= bool(comparison.worse)
        assert comparison.outcome != "better" or comparison.better


def test_a_run_in_which_no_stage_was_begun_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"^compare: empty: expected runs with stages, and this one has no journals$"
    ):
        compare([broken_from("a", None), made_run([], title="empty")])


def test_stages_that_only_one_run_has_are_named_and_not_compared() -> None:
    random = np.random.default_rng(7)
    comparison = compare([sampled(random, title="a"), sampled(random, title="b", sizes=(1000, 2000, 3000))])
    assert {row.size for row in comparison.rows} == {1000, 2000}
    assert comparison.not_comparable == [
        "claim and extend at 3,000 leases: only in b",
        "claim and extend at 4,000 leases: only in a",
    ]


def test_a_storm_is_compared_with_a_storm_only() -> None:
    calm = made_stage(1, 1000, {"claim.ok": [5.0] * 1000})
    storm = made_stage(2, 1000, {"claim.ok": [5000.0] * 1000}, kind="storm")
    both = made_run([calm, storm], title="a")
    comparison = compare([both, made_run([calm], title="b")])
    assert not any(row.storm for row in comparison.rows)
    assert comparison.not_comparable == ["claim in the storm of 1,000 leases: only in a"]
    assert {row.storm for row in compare([both, both]).rows} == {False, True}


def test_every_run_is_held_against_the_first() -> None:
    random = np.random.default_rng(8)
    runs = [
        thrice(random, title="old"),
        thrice(random, slower=2.0, title="slow"),
        thrice(random, slower=0.5, title="fast"),
    ]
    comparison = compare(runs)
    against = row(comparison, "extend", 2000, "p50").against
    assert [one.judgement for one in against] == ["worse", "better"]
    assert comparison.worse[0].startswith("slow: ")
    assert comparison.better[0].startswith("fast: ")


def test_sizes_that_most_runs_have_are_told_by_those_that_lack_them() -> None:
    random = np.random.default_rng(10)
    runs = [sampled(random, title=title, sizes=(1000, 3000, 5000)) for title in "abc"]
    comparison = compare([*runs, sampled(random, title="d", sizes=(1000,))])
    assert comparison.not_comparable == ["claim and extend at 3,000 and 5,000 leases: not in d"]


def ramp(title: str, lost_at: int | None, sizes: tuple[int, ...] = SIZES, **options: Any) -> RunData:
    """A run that loses a tenth of its leases from a size on."""
    return made_run(
        [
            made_stage(
                number,
                size,
                {
                    "extend.ok": [5.0] * 1000,
                    "extend.lost": [5.0] * (100 if lost_at and size >= lost_at else 0),
                },
            )
            for number, size in enumerate(sizes, start=1)
        ],
        title=title,
        **options,
    )


def test_the_sentence_begins_with_where_each_run_tips_the_furthest_first() -> None:
    comparison = compare([ramp("2.5.0", 2000), ramp("2.5.1", None), ramp("2.5.2", 4000)])
    assert comparison.sentence.startswith(
        "2.5.1 passed 4,000 leases, the largest tried; 2.5.2 tips at 2,000 to 4,000; 2.5.0 at 1,000 to 2,000"
    )
    assert (
        compare([[ramp("a", None)] * 3, [ramp("b", None)] * 3]).sentence
        == "a and b passed 4,000 leases, the largest tried."
    )
    many = compare([*(ramp(title, None) for title in "abcdef"), ramp("g", 1000)])
    assert many.sentence.startswith("6 runs passed 4,000 leases, the largest tried; g tips at 1,000 or less")


def test_runs_without_a_load_in_common_are_held_together_by_where_they_tip() -> None:
    comparison = compare([ramp("a", None), ramp("b", 6000, (1500, 3000, 6000))])
    assert comparison.sentence == (
        "a passed 4,000 leases, the largest tried; b tips at 3,000 to 6,000. "
        "One run each: differences between runs are not known."
    )
    assert comparison.changes.startswith("No load of a was measured in another run")
    assert not comparison.regressed


def test_what_the_main_operation_costs_is_said_when_it_is_certain() -> None:
    random = np.random.default_rng(11)
    runs = [thrice(random, title="a"), thrice(random, title="b", slower=2.0)]
    told = compare(runs).sentence
    found = re.search(r"; claim p50 ([\d.]+)x and p99 ([\d.]+)x at 4,000 leases\.$", told)
    assert found is not None, told
    assert [float(ratio) for ratio in found.groups()] == pytest.approx([2, 2], rel=0.2)
    assert "claim" not in compare([thrice(random, 4, title="a"), thrice(random, 4, title="b")]).sentence


def test_what_it_costs_is_told_of_a_load_that_neither_broke_at() -> None:
    def runs(title: str, slower: float, lost_at: int | None) -> list[RunData]:
        random = np.random.default_rng(12)
        stages: list[StageResult] = []
        for number, size in enumerate(SIZES, start=1):
            slow = slower if size < 4000 else 1.0
            samples = {"claim.ok": 20 * slow * np.exp(random.normal(0, 0.5, 3000)), "extend.ok": [5.0] * 1000}
            lost = {"extend.lost": [5.0] * (100 if lost_at and size >= lost_at else 0)}
            stages.append(made_stage(number, size, {**samples, **lost}))
        return [made_run(stages, title=title)] * 3

    broken = compare([runs("a", 1, None), runs("b", 3, 4000)])
    assert "claim p50 3x and p99 3x at 2,000 leases" in broken.sentence
    assert "claim" not in compare([runs("a", 1, None), runs("b", 3, None)]).sentence


def test_a_verdict_that_is_withheld_is_part_of_the_sentence() -> None:
    cut = ramp("b", None, status="interrupted", reason="ended early on request", cut=True)
    assert "b: Withheld: " in compare([ramp("a", None), cut]).sentence


@pytest.mark.parametrize(("runs", "tolerance"), [(0, 0.1), (2, -0.1), (2, inf)])
def test_what_cannot_be_compared_is_refused_in_one_line(runs: int, tolerance: float) -> None:
    made = [made_run([made_stage(1, 1000, {"claim.ok": [5.0]})]) for _ in range(runs)]
    with pytest.raises(UserError, match="expected"):
        compare(made, tolerance)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    samples=st.sampled_from([30, 300, 3000]),
    percentile=st.sampled_from([50.0, 90.0]),
)
def test_a_percentile_lies_in_its_interval_as_often_as_the_interval_says(
    seed: int, samples: int, percentile: float
) -> None:
    random = np.random.default_rng(seed)
    truth = 20_000 * -np.log(1 - percentile / 100)
    inside = 0
    for _ in range(200):
        drawn = Histogram.of(np.maximum(1, random.exponential(20_000, samples)).astype(np.int64))
        interval = percentile_interval(drawn, percentile, 0.95)
        inside += interval.low <= truth <= interval.high
    assert inside >= 0.9 * 200


def test_an_interval_has_no_bound_where_the_samples_give_none() -> None:
    few = Histogram.of(np.arange(1, 11) * 1000)
    assert percentile_interval(few, 99, 0.95).high == inf
    assert percentile_interval(few, 1, 0.95).low == 0.0
    middle = percentile_interval(few, 50, 0.95)  # the textbook's ranks for ten samples: 2 and 9
    assert (middle.low, middle.high) == (pytest.approx(2000, rel=0.001), pytest.approx(9000, rel=0.001))


def test_the_operations_of_a_spawn_run_are_compared_and_removals_with_removals_only() -> None:
    def run(title: str, slower: float, removes: bool) -> RunData:
        random = np.random.default_rng(9)
        made = {
            "add-unit.ok": 20 * slower * np.exp(random.normal(0, 0.5, 4000)),
            "status.ok": 5 * np.exp(random.normal(0, 0.5, 4000)),
        }
        stages = [made_stage(1, 1000, made)]
        if removes:
            stages.append(made_stage(2, 1000, {"remove-unit.ok": [9.0] * 900}, kind="destroy"))
        return made_run(stages, title=title, workload="grow")

    comparison = compare([[run("a", 1.0, True)] * 3, [run("b", 2.0, True)] * 3])
    assert {row.operation for row in comparison.rows if not row.destroy} == {"add-unit", "status"}
    assert {row.operation for row in comparison.rows if row.destroy} == {"remove-unit"}
    assert comparison.worse[0].startswith("a typical call up to 1,000 units: 1.4")
    assert all(line.startswith("add-unit p") for line in comparison.worse[1:])
    assert len(comparison.worse) == 1 + 4 + 4, "a typical call, over all loads, and at the only one"
    comparison = compare([run("a", 1.0, True), run("b", 1.0, False)])
    assert comparison.not_comparable == ["remove-unit while removing from 1,000 units: only in a"]


def test_leases_and_units_are_not_compared() -> None:
    leases = made_run([made_stage(1, 1000, {"claim.ok": [5.0]})])
    units = made_run([made_stage(1, 1000, {"add-unit.ok": [5.0]})], workload="grow")
    with pytest.raises(UserError, match="stages in leases and units"):
        compare([leases, units])
