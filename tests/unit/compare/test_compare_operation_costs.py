"""What a comparison says of what an operation takes: beside tipping points, where repeats do not explain it."""

from __future__ import annotations

import pytest

from tests.unit.made.sliced_runs import noisy, sliced_run
from tippingpoint.analysis.analyse import analyse
from tippingpoint.compare.compare import compare
from tippingpoint.compare.comparison import Comparison
from tippingpoint.compare.trend.series import figures_of
from tippingpoint.rundir.results import RunData


def release(
    version: str, seed: int, extend: float = 120e-6, *, runs: int = 3, scatter: float = 0.004
) -> list[RunData]:
    """Runs of a release, which differ by this share or so."""
    made: list[RunData] = []
    for number in range(runs):
        own = extend * (1 + scatter * (-1, 0, 1, 0.5, -0.5)[number % 5])
        run = sliced_run(extend=own, noise=noisy(100 * seed + number, 0.02), title=f"{version}-{number}")
        run.manifest.target.version = version
        made.append(run)
    return made


def compared(slower: float, seed: int = 1, **options: float) -> Comparison:
    return compare([release("3.5", seed, **options), release("3.6", seed + 50, 120e-6 * slower, **options)])


@pytest.mark.parametrize("slower", [1.06, 1.12, 0.88])
def test_more_or_less_cpu_for_an_operation_is_said_first(slower: float) -> None:
    # given two releases that hold the same loads, of which one takes more CPU for an extension
    comparison = compared(slower)
    # then that is the first sentence, with its interval
    first = comparison.sentence.split(";")[0]
    assert first.startswith("3.6 takes ")
    assert " times the CPU of 3.5 for each extend (95 %: " in first
    (extend,) = [one for one in comparison.operation_costs if one.costs.key.operation == "extend"]
    against = extend.against[0]
    assert against.change == pytest.approx(slower, rel=0.03)
    assert against.low is not None
    assert against.high is not None
    assert against.low < against.change < against.high


def test_beyond_the_tolerance_it_is_worse() -> None:
    comparison = compared(1.25)
    assert comparison.outcome == "worse"
    assert any(
        line.startswith("CPU for each extend: 120 µs to 150 µs (1.25x, 95 % ") for line in comparison.worse
    )


def test_within_it_is_said_and_not_worse() -> None:
    comparison = compared(1.06)
    assert "times the CPU of 3.5" in comparison.sentence
    assert comparison.outcome == "none"


def test_the_same_release_is_said_to_differ_hardly_ever() -> None:
    said = [compared(1.0, seed=seed).sentence for seed in range(1, 13)]
    assert sum("times the CPU" in sentence for sentence in said) <= 1


def test_one_run_each_has_a_ratio_that_is_not_judged() -> None:
    comparison = compared(1.2, runs=1)
    (extend,) = [one for one in comparison.operation_costs if one.costs.key.operation == "extend"]
    assert extend.against[0].change == pytest.approx(1.2, rel=0.05)
    assert extend.against[0].judgement == "unsure"
    assert "times the CPU" not in comparison.sentence


def test_the_reverse_is_the_reciprocal() -> None:
    one, other = release("3.5", 1), release("3.6", 51, 132e-6)
    there, back = (compare(pair).operation_costs[0].against[0] for pair in ([one, other], [other, one]))
    assert there.change is not None
    assert back.change is not None
    assert there.change * back.change == pytest.approx(1.0)
    assert there.low is not None
    assert back.high is not None
    assert there.low * back.high == pytest.approx(1.0)


def test_a_trend_follows_what_an_operation_takes() -> None:
    runs = [analyse(run) for run in release("3.5", 1, runs=5)]
    (series,) = [figure for figure in figures_of(runs) if figure.measure == "CPU for each extend"]
    assert series.unit == "seconds"
    assert series.measured.values == pytest.approx([120e-6] * 5, rel=0.03)
