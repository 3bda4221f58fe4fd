"""How well changes are found in histories of runs, beside `ruptures` (PELT) on the same figures.

    .venv/bin/python tests/benchmarks/bench_trend.py [--histories 1000] [--seed 2026] [--markdown]

A history has 40 runs. A row is a kind of scatter between runs of 1, 2 or 3 %: normal, Student's t with 4 degrees of
freedom, or normal with 5 % of runs four times as far off. `false alarms` is the share of histories without a change in
which one is told. `growing` is the same share for histories that are looked at after each run from the tenth on. A
change of 10 % begins with the run before the last one, or with the fifth last: `within two` and `within five` are how
often it is told, at its run. `figures` are looked at together; only the first has a change. PELT's penalty is that of
BIC (2 s^2 ln n, with the scatter of the differences), and its levels have two runs or more.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import ruptures

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from tests.benchmarks.bench_find import show  # noqa: E402
from tippingpoint.compare.trend.changes import Measured, find_changes  # noqa: E402

RUNS, CHANGE, FIRST_LOOK = 40, 1.10, 10
Logs = np.ndarray
SCATTER: dict[str, Callable[[np.random.Generator, int], Logs]] = {
    "normal": lambda random, count: random.normal(size=count),
    "t(4)": lambda random, count: random.standard_t(4, size=count) / np.sqrt(2),
    "outliers": lambda random, count: random.normal(size=count) * np.where(random.random(count) < 0.05, 4, 1),
}
Finder = Callable[[Sequence[Logs]], list[list[tuple[int, int]]]]
"""Returns for each series the ranges of runs at which its changes may begin."""


def ours(series: Sequence[Logs]) -> list[list[tuple[int, int]]]:
    found = find_changes([Measured(np.exp(logs).tolist(), [0.0] * len(logs)) for logs in series])
    return [[(change.earliest, change.latest) for change in changes] for changes in found]


def pelt(series: Sequence[Logs]) -> list[list[tuple[int, int]]]:
    found: list[list[tuple[int, int]]] = []
    for logs in series:
        scatter = float(np.median(np.abs(np.diff(logs)))) / 0.6745 / np.sqrt(2)
        model = ruptures.Pelt(model="l2", min_size=2, jump=1).fit(logs)
        places = model.predict(pen=2 * scatter**2 * np.log(len(logs)))[:-1]
        found.append([(place, place) for place in places])
    return found


FINDERS: dict[str, Finder] = {"ours": ours, "pelt": pelt}


def drawn(kind: str, sigma: float, figures: int, random: np.random.Generator) -> list[Logs]:
    return [sigma * SCATTER[kind](random, RUNS) for _ in range(figures)]


def one(kind: str, sigma: float, figures: int, finder: str, seed: str) -> tuple[bool, bool, bool]:
    """Return whether a history gave a false alarm, and whether a change was told within two and within five runs."""
    random = np.random.default_rng([*map(ord, f"{kind} {sigma} {figures} {seed}")])
    series = drawn(kind, sigma, figures, random)
    alarm = any(FINDERS[finder](series))
    told: list[bool] = []
    for at in (RUNS - 2, RUNS - 5):
        planted = [series[0] + np.where(np.arange(RUNS) >= at, np.log(CHANGE), 0.0), *series[1:]]
        told.append(any(first <= at <= last for first, last in FINDERS[finder](planted)[0]))
    return alarm, told[0], told[1]


def growing(kind: str, sigma: float, figures: int, finder: str, seed: str) -> bool:
    """Return whether a history without a change gave a false alarm at any length."""
    random = np.random.default_rng([*map(ord, f"growing {kind} {sigma} {figures} {seed}")])
    series = drawn(kind, sigma, figures, random)
    return any(
        any(FINDERS[finder]([logs[:length] for logs in series])) for length in range(FIRST_LOOK, RUNS + 1)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--histories", type=int, default=1000)
    parser.add_argument("--seed", default="2026")
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    print(f"{asked.histories} histories a row, seed {asked.seed}, {os.cpu_count()} cores")
    head = ["scatter", "finder", "of", "figures", "false alarms", "growing", "within two", "within five"]
    show(head, asked.markdown)
    if asked.markdown:
        show(["---"] * len(head), True)
    with Pool() as pool:
        for figures in (1, 10):
            for kind in SCATTER:
                for sigma in (0.01, 0.02, 0.03):
                    for finder in FINDERS:
                        seeds = [f"{asked.seed} {number}" for number in range(asked.histories)]
                        of = partial(one, kind, sigma, figures, finder)
                        alarms, two, five = (
                            np.mean(column) for column in zip(*pool.map(of, seeds), strict=True)
                        )
                        grown = pool.map(partial(growing, kind, sigma, figures, finder), seeds[::20])
                        shares = [
                            f"{100 * float(share):.1f} %" for share in (alarms, np.mean(grown), two, five)
                        ]
                        show([kind, finder, f"{100 * sigma:.0f} %", str(figures), *shares], asked.markdown)


if __name__ == "__main__":
    main()
