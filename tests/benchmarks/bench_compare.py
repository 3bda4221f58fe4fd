"""Measures how often a comparison of repeats errs, and what it finds, on made-up runs that scatter.

    python tests/benchmarks/bench_compare.py [COMPARISONS]

A run has 8 figures (percentiles of two operations) at 8 loads, and a typical call, the mean of them all. Figures
scatter with their run as a whole (half of the variance), by themselves, and in bursts of foreign load: one run in five
is slowed by 1.5 in half of its loads. Then a quarter less capacity makes each latency higher, the more so the closer
the load is to the capacity (M/M/1).
"""

from __future__ import annotations

import sys

import numpy as np

from tippingpoint.compare.pair import CAPACITY_ERRS, FIGURES_ERRS
from tippingpoint.compare.repeats import ERRS, Figure, changes, level_figure, over_loads
from tippingpoint.rundir.histogram import FloatArray

LOADS = np.arange(1, 9) / 16
"""As shares of the capacity of the first release."""
FIGURES = 8


def runs(
    random: np.random.Generator, count: int, scatter: float, capacity: float
) -> tuple[FloatArray, FloatArray]:
    """Return the loads at which runs tip, and latencies by run, figure and load."""
    whole = random.normal(0, scatter * np.sqrt(0.5), (count, 1, 1))
    own = random.normal(0, scatter * np.sqrt(0.5), (count, FIGURES, LOADS.size))
    burst = (random.random((count, 1, 1)) < 0.2) & (random.random((count, 1, LOADS.size)) < 0.5)
    latency = np.exp(whole + own + np.log(1.5) * burst) / (1 - LOADS / capacity)
    return capacity * np.exp(random.normal(0, scatter / 2, count)), latency


def different(random: np.random.Generator, before: int, after: int, scatter: float, capacity: float) -> bool:
    """Compare made-up runs as compare/pair.py does, and tell whether anything differs."""
    tips, latencies = runs(random, before, scatter, 1.0)
    other_tips, other = runs(random, after, scatter, capacity)
    typical, other_typical = (np.exp(np.log(of).mean(axis=(1, 2))).tolist() for of in (latencies, other))
    shown = [
        level_figure("tip", tips.tolist(), other_tips.tolist()),
        level_figure("typical", typical, other_typical),
    ]
    found = any(change.certain for change in changes(shown, None, CAPACITY_ERRS))
    figures: list[Figure] = [
        over_loads(
            [
                level_figure(f"p{number % 4}", latencies[:, number, at], other[:, number, at])
                for at in range(LOADS.size)
            ]
        )
        for number in range(FIGURES)
    ]
    errs = ERRS if found else FIGURES_ERRS
    return found or any(change.certain for change in changes(figures, None, errs))


def main() -> None:
    """Print how many comparisons call runs different: of one release, and with a quarter less capacity."""
    comparisons = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"{comparisons} comparisons each; shares that are called different")
    print("scatter of runs   runs   same release   25 % less capacity")
    for scatter in (0.05, 0.1, 0.2, 0.3):
        for before, after in ((3, 3), (6, 3), (5, 5)):
            random = np.random.default_rng(1)
            same, planted = (
                np.mean([different(random, before, after, scatter, capacity) for _ in range(comparisons)])
                for capacity in (1.0, 0.75)
            )
            print(f"{scatter:15.0%}  {before} + {after}  {same:13.1%}  {planted:19.1%}", flush=True)


if __name__ == "__main__":
    main()
