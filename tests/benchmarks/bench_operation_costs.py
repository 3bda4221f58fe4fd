"""How often the intervals of what an operation takes hold the truth, on simulated targets.

    .venv/bin/python tests/benchmarks/bench_operation_costs.py [--trials 2000] [--seed 2026] [--markdown]

A run rests for 120 s, then claims leases up to four loads over 15 s each and holds each of them while it renews each
lease every 5 s, and rests for 60 s. The target takes 0.05 cores as it is, 300 us of CPU for a claim and 120 us for an
extension. A slice is 1, 5 or 15 s. Calls come by chance (Poisson), CPU time is read to 10 ms, and slices have
autoregressive noise. A row says how alike neighbouring slices are (`rho`), how the noise grows with the level (`law`:
`even`, the `root` of the level, or the level itself), and with which noise: normal, bursts (each slice in 20 has ten
times the noise), or a program that comes and goes and makes each call take 5 % more.

`claim` and `extend` are how often the 95 % interval of one run holds the truth, `width` how far it reaches in the
median, as a share. Then releases are compared by three runs and three, whose costs scatter by 1 % from run to run
beside that noise: `ratio` is how often its 95 % interval holds the true ratio, `same` how often a release is said to
differ from itself, and the last columns how often slowdowns of 3, 5 and 10 % are found.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from math import sqrt
from multiprocessing import Pool
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from tests.benchmarks.bench_find import show  # noqa: E402
from tippingpoint.analysis.slices import Fit, Slices, fit  # noqa: E402
from tippingpoint.compare.repeats import changes, level_figure  # noqa: E402

BASE, CLAIM, EXTEND = 0.05, 300e-6, 120e-6
LOADS = (1000, 2000, 4000, 8000)
REST_BEFORE, UP, REST_AFTER, RENEWED_EVERY, TICK = 120.0, 15.0, 60.0, 5.0, 0.01
REPEATS = 3
SCATTER = 0.01
SLOWER = (1.0, 1.03, 1.05, 1.10)
LEVEL = 0.95
ROWS = [
    *((slice_, 60.0, rho, "level", "normal") for slice_ in (5.0, 15.0) for rho in (0.0, 0.5, 0.8)),
    (1.0, 30.0, 0.5, "level", "normal"),
    (5.0, 60.0, 0.5, "even", "normal"),
    (5.0, 60.0, 0.5, "root", "normal"),
    (5.0, 60.0, 0.5, "level", "bursts"),
    (5.0, 60.0, 0.5, "level", "beside"),
]


def run(
    random: np.random.Generator, slice_: float, hold: float, rho: float, law: str, kind: str, extend: float
) -> Fit:
    """Return what the regression makes of one run."""
    edges = np.arange(-REST_BEFORE, len(LOADS) * (UP + hold) + REST_AFTER + 1e-9, slice_)
    middle = (edges[1:] + edges[:-1]) / 2
    held, claims, before = np.zeros(len(middle)), np.zeros(len(middle)), 0
    for number, load in enumerate(LOADS):
        begin = number * (UP + hold)
        up = (middle > begin) & (middle <= begin + UP)
        on = (middle > begin + UP) & (middle <= begin + UP + hold)
        claims[up] = (load - before) / UP
        held[up] = before + (load - before) * (middle[up] - begin) / UP
        held[on] = load
        before = load
    extends = random.poisson(held / RENEWED_EVERY * slice_)
    claimed = random.poisson(claims * slice_)
    taken = BASE * slice_ + CLAIM * claimed + extend * extends
    noise = np.zeros(len(middle))
    state = random.normal()
    for place, drawn in enumerate(random.normal(size=len(middle))):
        state = rho * state + sqrt(1 - rho**2) * drawn
        noise[place] = state
    if kind == "bursts":
        noise *= np.where(random.random(len(noise)) < 0.05, 10.0, 1.0)
    typical = float(taken.mean())
    size = {"even": typical, "root": np.sqrt(taken * typical), "level": taken}[law]
    taken = taken + 0.05 / sqrt(slice_ / 5.0) * size * noise
    if kind == "beside":
        is_on = np.cumsum(random.random(len(middle)) < slice_ / 20.0) % 2 == 1
        taken = taken * np.where(is_on, 1.05, 1.0)
    taken = np.round(taken / TICK) * TICK
    kept = Slices(edges[:-1], edges[1:], taken).joined()
    seconds = kept.end - kept.begin
    calls = [
        np.interp([kept.begin, kept.end], edges, np.append(0, np.cumsum(of))) for of in (claimed, extends)
    ]
    columns = np.column_stack([np.ones(len(kept)), *((end - begin) / seconds for begin, end in calls)])
    return fit(columns, kept.amount / seconds, LEVEL)


def trial(row: tuple[float, float, float, str, str], seed: tuple[int, int]) -> list[float]:
    random = np.random.default_rng([*seed, ROWS.index(row)])
    slice_, hold, rho, law, kind = row
    truth = 1.025 if kind == "beside" else 1.0
    one = run(random, slice_, hold, rho, law, kind, EXTEND)
    found = [
        *(
            float(one.low[place] <= cost * truth <= one.high[place])
            for place, cost in ((1, CLAIM), (2, EXTEND))
        ),
        float((one.high[2] - one.low[2]) / 2 / EXTEND),
    ]
    sides: list[list[Fit]] = []
    for slower in (1.0, *SLOWER):
        costs = EXTEND * slower * np.exp(SCATTER * random.normal(size=REPEATS))
        sides.append([run(random, slice_, hold, rho, law, kind, cost) for cost in costs])
    for slower, after in zip(SLOWER, sides[1:], strict=True):
        floor = float(np.mean([(each.errors[2] / each.values[2]) ** 2 for each in (*sides[0], *after)]))
        values = [[float(each.values[2]) for each in side] for side in (sides[0], after)]
        (change,) = changes([level_figure("cpu extend", *values, floor)], None)
        if slower == 1.0:
            found.append(float(change.low <= 1.0 <= change.high))
        found.append(float(change.certain and (slower == 1.0 or change.change > 1)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    print(f"{asked.trials} trials a row, seed {asked.seed}, {os.cpu_count()} cores")
    head = ["slice", "rho", "law", "noise", "claim", "extend", "width"]
    head += ["ratio", "same", "3 %", "5 %", "10 %"]
    show(head, asked.markdown)
    if asked.markdown:
        show(["---"] * len(head), True)
    with Pool() as pool:
        for row in ROWS:
            seeds = [(asked.seed, number) for number in range(asked.trials)]
            found = np.array(pool.map(partial(trial, row), seeds, chunksize=8))
            shares = [100 * float(share) for share in found.mean(axis=0)]
            shares[2] = 100 * float(np.median(found[:, 2]))
            slice_, _, rho, law, kind = row
            show(
                [f"{slice_:g} s", f"{rho:g}", law, kind, *(f"{share:.1f} %" for share in shares)],
                asked.markdown,
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
