"""Two or more runs side by side: what changed for certain, and nothing else."""

from __future__ import annotations

import re
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.made_runs import made_run, made_stage
from tippingpoint.compare import Comparison, Row, compare
from tippingpoint.errors import UserError
from tippingpoint.hdr import Histogram
from tippingpoint.intervals import percentile_interval
from tippingpoint.results import RunData, StageResult

SIZES = (1000, 2000, 4000)


def sampled(
    random: np.random.Generator,
    samples: int = 5000,
    slower: float = 1.0,
    failing: float = 0.01,
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


def row(comparison: Comparison, operation: str, size: int, measure: str) -> Row:
    (found,) = [
        row
        for row in comparison.rows
        if (row.operation, row.size, row.measure, row.storm) == (operation, size, measure, False)
    ]
    return found


def test_a_slower_run_is_worse_and_a_faster_one_better() -> None:
    random = np.random.default_rng(1)
    slower = compare([sampled(random, title="a"), sampled(random, slower=1.5, title="b")])
    for size in SIZES:
        for measure in ("p50", "p90", "p95", "p99"):
            (against,) = row(slower, "extend", size, measure).against
            assert against.judgement == "worse"
            assert against.change == pytest.approx(1.5, rel=0.15)
            assert against.low is not None
            assert against.high is not None
            assert against.low <= 1.5 <= against.high
    assert slower.regressed
    assert len(slower.worse) == 24
    assert slower.better == []
    faster = compare([sampled(random, slower=1.5), sampled(random)])
    assert not faster.regressed
    assert len(faster.better) == 24


def test_runs_of_the_same_distribution_are_hardly_ever_called_different() -> None:
    random = np.random.default_rng(2)
    comparisons = [
        compare([sampled(random, samples), sampled(random, samples)], tolerance=0.0)
        for samples in (10, 200, 3000)
        for _ in range(25)
    ]
    alarms = sum(bool(comparison.worse or comparison.better) for comparison in comparisons)
    assert alarms <= 0.06 * len(comparisons), f"{alarms} of {len(comparisons)}"


def test_the_same_run_twice_is_the_same() -> None:
    run = sampled(np.random.default_rng(3), samples=50_000)
    comparison = compare([run, run])
    percentiles = [row for row in comparison.rows if row.measure.startswith("p")]
    assert {against.judgement for row in percentiles for against in row.against} == {"same"}
    assert (comparison.worse, comparison.better) == ([], [])


def test_few_samples_are_unsure_and_never_a_regression() -> None:
    random = np.random.default_rng(4)
    comparison = compare([sampled(random, samples=4), sampled(random, samples=4, slower=3.0)])
    assert {against.judgement for row in comparison.rows for against in row.against} == {"unsure"}
    assert not comparison.regressed
    (against,) = row(comparison, "claim", 1000, "p99").against
    assert against.high == inf
    assert "rest on too few samples to tell" in comparison.changes


def test_a_change_within_the_tolerance_is_no_regression() -> None:
    random = np.random.default_rng(5)
    runs = [sampled(random, samples=20_000), sampled(random, samples=20_000, slower=1.15)]
    assert compare(runs, tolerance=0.10).regressed
    assert not compare(runs, tolerance=0.25).regressed


def test_more_errors_are_worse_even_when_latency_is_the_same() -> None:
    random = np.random.default_rng(6)
    comparison = compare([sampled(random, failing=0.001), sampled(random, failing=0.05)])
    (against,) = row(comparison, "claim", 1000, "error_rate").against
    assert against.judgement == "worse"
    assert against.change == pytest.approx(0.048, abs=0.01)
    assert comparison.worse[0].startswith(("claim error rate", "extend error rate"))


def test_leases_lost_in_one_run_only_are_worse() -> None:
    held = made_run([made_stage(1, 1000, {"extend.ok": [20.0] * 2000})])
    lost = made_run([made_stage(1, 1000, {"extend.ok": [20.0] * 1900, "extend.lost": [20.0] * 100})])
    comparison = compare([held, lost])
    assert comparison.worse == ["extend lost rate at 1000 leases: 0 % to 5 %"]


def test_stages_that_only_one_run_has_are_named_and_not_compared() -> None:
    random = np.random.default_rng(7)
    comparison = compare([sampled(random, title="a"), sampled(random, title="b", sizes=(1000, 2000, 3000))])
    assert {row.size for row in comparison.rows} == {1000, 2000}
    assert comparison.not_comparable == [
        "claim and extend at 3000 leases: only in b",
        "claim and extend at 4000 leases: only in a",
    ]


def test_a_storm_is_compared_with_a_storm_only() -> None:
    calm = made_stage(1, 1000, {"claim.ok": [5.0] * 1000})
    storm = made_stage(2, 1000, {"claim.ok": [5000.0] * 1000}, kind="storm")
    both = made_run([calm, storm], title="a")
    comparison = compare([both, made_run([calm], title="b")])
    assert not any(row.storm for row in comparison.rows)
    assert comparison.not_comparable == ["claim in the storm of 1000 leases: only in a"]
    assert {row.storm for row in compare([both, both]).rows} == {False, True}


def test_every_run_is_held_against_the_first() -> None:
    random = np.random.default_rng(8)
    runs = [
        sampled(random, title="old"),
        sampled(random, slower=2.0, title="slow"),
        sampled(random, slower=0.5, title="fast"),
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
    assert comparison.not_comparable == ["claim and extend at 3000 and 5000 leases: not in d"]


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
        "2.5.1 tips beyond 4,000 leases; 2.5.2 at 2,000 to 4,000; 2.5.0 at 1,000 to 2,000"
    )
    assert compare([ramp("a", None), ramp("b", None)]).sentence == "a and b tip beyond 4,000 leases."
    many = compare([*(ramp(title, None) for title in "abcdef"), ramp("g", 1000)])
    assert many.sentence.startswith("6 runs tip beyond 4,000 leases; g at 1,000 or before")


def test_runs_without_a_load_in_common_are_held_together_by_where_they_tip() -> None:
    comparison = compare([ramp("a", None), ramp("b", 6000, (1500, 3000, 6000))])
    assert comparison.sentence == "a tips beyond 4,000 leases; b at 3,000 to 6,000."
    assert comparison.changes.startswith("No load of a was measured in another run")
    assert not comparison.regressed


def test_what_the_main_operation_costs_is_said_when_it_is_certain() -> None:
    random = np.random.default_rng(11)
    runs = [sampled(random, title="a"), sampled(random, title="b", slower=2.0)]
    told = compare(runs).sentence
    found = re.search(r"; claim p50 ([\d.]+)x and p99 ([\d.]+)x at 4,000 leases\.$", told)
    assert found is not None, told
    assert [float(ratio) for ratio in found.groups()] == pytest.approx([2, 2], rel=0.2)
    assert "claim" not in compare([sampled(random, 4, title="a"), sampled(random, 4, title="b")]).sentence


def test_what_it_costs_is_told_of_a_load_that_neither_broke_at() -> None:
    def run(title: str, slower: float, lost_at: int | None) -> RunData:
        random = np.random.default_rng(12)
        stages: list[StageResult] = []
        for number, size in enumerate(SIZES, start=1):
            slow = slower if size < 4000 else 1.0
            samples = {"claim.ok": 20 * slow * np.exp(random.normal(0, 0.5, 3000)), "extend.ok": [5.0] * 1000}
            lost = {"extend.lost": [5.0] * (100 if lost_at and size >= lost_at else 0)}
            stages.append(made_stage(number, size, {**samples, **lost}))
        return made_run(stages, title=title)

    assert (
        "claim p50 3x and p99 3x at 2,000 leases" in compare([run("a", 1, None), run("b", 3, 4000)]).sentence
    )
    assert "claim" not in compare([run("a", 1, None), run("b", 3, None)]).sentence


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
        return made_run(stages, title=title, workload="spawn")

    comparison = compare([run("a", 1.0, True), run("b", 2.0, True)])
    assert {row.operation for row in comparison.rows if not row.destroy} == {"add-unit", "status"}
    assert {row.operation for row in comparison.rows if row.destroy} == {"remove-unit"}
    assert all(line.startswith("add-unit p") and "at 1000 units" in line for line in comparison.worse)
    assert len(comparison.worse) == 4
    comparison = compare([run("a", 1.0, True), run("b", 1.0, False)])
    assert comparison.not_comparable == ["remove-unit while removing from 1000 units: only in a"]


def test_leases_and_units_are_not_compared() -> None:
    leases = made_run([made_stage(1, 1000, {"claim.ok": [5.0]})])
    units = made_run([made_stage(1, 1000, {"add-unit.ok": [5.0]})], workload="spawn")
    with pytest.raises(UserError, match="stages in leases and units"):
        compare([leases, units])
