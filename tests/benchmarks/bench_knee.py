"""How well the knee finder finds a planted knee, and how often it names one that is not there; peers beside it.

    .venv/bin/python tests/benchmarks/bench_knee.py [--curves 1000] [--seed 2026] [--sides ours,segments,...]
        [--rows flat,...] [--markdown]

Kneedle (`kneed`) and the segmented fits (`pwlf`) are in the dependency group `benchmark`; without them these sides are
left out. Rows are kinds of curves, see ROWS. The place of the knee, how far latency rises above its plateau, and the
smallest load are drawn anew for each curve. All sides see the same curves; peers get the mean of the logs of the
quartiles of each load, which ours fits too. A side is a finder:

ours          find_knee of tippingpoint/analysis/knee.py
kneedle       Kneedle (Satopaa et al., 2011) on load and latency, sensitivity 1, a convex rising curve
kneedle, logs the same on their logs
segments      two straight lines on logs, by pwlf. A knee is named if they bend upward and an F-test prefers them to one
              line at 5 %, so that five loads are the least. The interval is 1.96 standard errors of the bend.

Columns: how many curves with a knee are given one (found), how many without one are (false alarms); of the knees named,
the median and 90th percentile of the error of the load, how many intervals hold the truth, and the median ratio of an
interval's ends; milliseconds of CPU a curve. The truth is the load at which the hinge bends; of an M/M/1 queue, half of
its capacity, where latency doubles.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from math import exp, inf, log
from multiprocessing import Pool
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

from tests.unit.made.made_runs import made_stage  # noqa: E402
from tippingpoint.analysis.knee import Knee, find_knee  # noqa: E402
from tippingpoint.rundir.stages import StageResult  # noqa: E402

PLATEAU_MS = 20.0
SMALLEST = (50.0, 2000.0)
LEVEL = 0.05
"""The largest chance of an F-test by which `segments` prefers two lines to one."""


@dataclass(frozen=True)
class Row:
    """A kind of curve. Pairs are ranges that are drawn from."""

    knee: bool = True
    rise: tuple[float, float] = (20.0, 200.0)
    """Latency at the largest load over the plateau; of a queue, the same of its theory."""
    power: float = 0.0
    """Without a knee: log latency per log load."""
    queue: bool = False
    ceiling: float = inf
    """The largest latency over the plateau: a timeout."""
    bursts: float = 0.0
    """The chance that a tenth of a load's calls are 20 times as slow."""
    outlier: bool = False
    """One load, drawn, is 5 to 20 times as slow as it should be."""
    loads: int = 8
    samples: int = 300
    between: float = 0.1
    """The standard deviation of log latency from load to load."""
    spread: float = 0.6
    """The same within a load; a queue has its own."""


ROWS: Mapping[str, Row] = {
    "flat": Row(knee=False),
    "flat, few samples": Row(knee=False, samples=10),
    "flat, loads scatter": Row(knee=False, between=0.3),
    "flat, one outlier": Row(knee=False, outlier=True),
    "flat, 4 loads": Row(knee=False, loads=4),
    "flat, 12 loads": Row(knee=False, loads=12),
    "power 0.5": Row(knee=False, power=0.5),
    "power 1": Row(knee=False, power=1.0),
    "power 2": Row(knee=False, power=2.0),
    "hinge, rises 2-4": Row(rise=(2.0, 4.0)),
    "hinge, rises 5-10": Row(rise=(5.0, 10.0)),
    "hinge, rises 20-200": Row(),
    "hinge, timeouts": Row(rise=(100.0, 1000.0), ceiling=30.0),
    "hinge, bursts": Row(bursts=0.3),
    "hinge, one outlier": Row(outlier=True),
    "hinge, loads scatter": Row(between=0.3),
    "hinge, 4 loads": Row(loads=4),
    "hinge, 6 loads": Row(loads=6),
    "hinge, 12 loads": Row(loads=12),
    "hinge, 10 samples": Row(samples=10),
    "hinge, 30 samples": Row(samples=30),
    "hinge, 3000 samples": Row(samples=3000),
    "M/M/1": Row(queue=True, rise=(5.0, 50.0)),
    "M/M/1, 4 loads": Row(queue=True, rise=(5.0, 50.0), loads=4),
    "M/M/1, 12 loads": Row(queue=True, rise=(5.0, 50.0), loads=12),
}


@dataclass(frozen=True)
class Named:
    """The knee that a side names; `low` and `high` are None if it states no interval."""

    at: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Outcome:
    truth: float | None
    named: Named | None
    cpu: float
    """Seconds."""


def between(draw: np.random.Generator, ends: tuple[float, float]) -> float:
    """Return a number from a range, uniform in its log."""
    return exp(draw.uniform(log(ends[0]), log(ends[1])))


def made(row: Row, draw: np.random.Generator) -> tuple[list[StageResult], float | None]:
    """Return the stages of one curve, and the load of its knee or None.

    Loads double, or grow threefold if there are only four. A hinge bends between the second and the last but one.
    """
    step = 2.0 if row.loads > 4 else 3.0
    smallest = between(draw, SMALLEST)
    sizes = [round(smallest * step**place) for place in range(row.loads)]
    rise = between(draw, row.rise)
    truth: float | None = None
    if row.queue:
        # (1 - first / capacity) / (1 - last / capacity) = rise
        capacity = (rise * sizes[-1] - sizes[0]) / (rise - 1)
        truth = capacity / 2
        levels = [1 / (1 - size / capacity) for size in sizes]
    elif row.knee:
        truth = between(draw, (float(sizes[1]), float(sizes[-2])))
        slope = log(rise) / log(sizes[-1] / truth)
        levels = [min(row.ceiling, max(1.0, size / truth) ** slope) for size in sizes]
    else:
        levels = [(size / sizes[0]) ** row.power for size in sizes]
    if row.outlier:
        levels[int(draw.integers(row.loads))] *= between(draw, (5.0, 20.0))
    stages: list[StageResult] = []
    for number, (size, level) in enumerate(zip(sizes, levels, strict=True), start=1):
        typical = PLATEAU_MS * level * exp(draw.normal(0.0, row.between))
        drawn = (
            draw.exponential(1.0, row.samples)
            if row.queue
            else np.exp(draw.normal(0.0, row.spread, row.samples))
        )
        if draw.random() < row.bursts:
            drawn[: row.samples // 10] *= 20.0
        stages.append(made_stage(number, size, {"claim.ok": typical * drawn}))
    return stages, truth


def points(stages: Sequence[StageResult]) -> tuple[np.ndarray, np.ndarray]:
    """Return log load and the typical log latency of each stage."""
    quartiles = [stage.response("claim").percentiles([25.0, 50.0, 75.0]) for stage in stages]
    return np.log([stage.size for stage in stages]), np.log(quartiles).mean(axis=1)


def ours(stages: Sequence[StageResult]) -> Named | None:
    found = find_knee(stages, "claim")
    return Named(found.at, found.low, found.high) if isinstance(found, Knee) else None


def kneedle(stages: Sequence[StageResult], *, logs: bool) -> Named | None:
    from kneed import KneeLocator

    load, latency = points(stages)
    if not logs:
        load, latency = np.exp(load), np.exp(latency)
    found = KneeLocator(load, latency, S=1.0, curve="convex", direction="increasing").knee
    if found is None:
        return None
    return Named(exp(found) if logs else float(found))


def segments(stages: Sequence[StageResult]) -> Named | None:
    import pwlf
    from scipy.stats import f

    load, latency = points(stages)
    free = load.size - 4
    if free < 1:
        return None
    fit = pwlf.PiecewiseLinFit(load, latency, seed=1)
    fit.fitfast(1)
    one = float(((latency - fit.predict(load)) ** 2).sum())
    breaks = fit.fitfast(2, pop=4)
    two = max(float(((latency - fit.predict(load)) ** 2).sum()), 1e-12)
    chance = float(f.sf((one - two) / 2 / (two / free), 2, free))
    if chance > LEVEL or fit.slopes[1] <= fit.slopes[0]:
        return None
    at = float(breaks[1])
    try:
        error = float(fit.standard_errors(method="non-linear")[-1])
    except np.linalg.LinAlgError:
        error = inf
    # far outside of all loads an interval says no more than that it is unbounded
    reach = min(1.96 * error, 50.0) if error == error else 50.0
    return Named(exp(at), exp(at - reach), exp(at + reach))


SIDES: Mapping[str, Callable[[Sequence[StageResult]], Named | None]] = {
    "ours": ours,
    "kneedle": partial(kneedle, logs=False),
    "kneedle, logs": partial(kneedle, logs=True),
    "segments": segments,
}
NEEDS = {"kneedle": "kneed", "kneedle, logs": "kneed", "segments": "pwlf"}


def one(row: str, side: str, seed: tuple[int, int]) -> Outcome:
    """Find the knee of one curve. Rows share no curves, sides share all."""
    if side in NEEDS:
        import_module(NEEDS[side])  # once a process, and outside of what is timed
    draw = np.random.default_rng([*seed, *row.encode()])
    stages, truth = made(ROWS[row], draw)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a peer says by a warning that it finds none
        begun = time.process_time()
        named = SIDES[side](stages)
        return Outcome(truth, named, time.process_time() - begun)


def line(row: str, side: str, outcomes: Sequence[Outcome]) -> list[str]:
    """Return a row of the table."""
    knees = [(each.truth, each.named) for each in outcomes if each.truth is not None and each.named]
    share = f"{100 * sum(each.named is not None for each in outcomes) / len(outcomes):.1f} %"
    errors = sorted(abs(log(named.at / truth)) for truth, named in knees)
    whole = [
        (truth, named.low, named.high)
        for truth, named in knees
        if named.low is not None and named.high is not None
    ]
    held = [low <= truth <= high for truth, low, high in whole]
    # an interval down to 0, or to what the peer calls unbounded, is without an end
    widths = [high / low if low > 0 and high / low < 1e6 else inf for _, low, high in whole]
    wide = statistics.median(widths) if widths else None
    planted = ROWS[row].knee
    return [
        row,
        side,
        share if planted else "",
        "" if planted else share,
        f"{100 * (exp(statistics.median(errors)) - 1):.0f} %" if errors else "",
        f"{100 * (exp(errors[int(0.9 * len(errors))]) - 1):.0f} %" if errors else "",
        f"{100 * statistics.mean(held):.1f} %" if held else "",
        "" if wide is None else ("no end" if wide == inf else f"{wide:.1f}x"),
        f"{1000 * statistics.mean(each.cpu for each in outcomes):.1f}",
    ]


HEAD = [
    "curve",
    "finder",
    "found",
    "false alarms",
    "error p50",
    "error p90",
    "coverage",
    "width",
    "CPU ms",
]


SUMMARY = [
    "finder",
    "most false alarms",
    "with one outlier",
    "found at 5-10",
    "least found above",
    "least coverage",
]


def summary(side: str, outcomes: Mapping[str, Sequence[Outcome]]) -> list[str]:
    """Return a row of the summary: the worst of a finder. `outcomes` are those of each row."""
    named = {row: statistics.mean(each.named is not None for each in of) for row, of in outcomes.items()}
    covered: dict[str, float] = {}
    for row, of in outcomes.items():
        held = [
            each.named.low <= each.truth <= each.named.high
            for each in of
            if each.truth is not None
            and each.named
            and each.named.low is not None
            and each.named.high is not None
        ]
        if held:
            covered[row] = statistics.mean(held)

    def worst(shares: Mapping[str, float], *, most: bool) -> str:
        if not shares:
            return ""
        row = (max if most else min)(shares, key=lambda each: shares[each])
        return f"{100 * shares[row]:.1f} % ({row})"

    flat = {row: share for row, share in named.items() if not ROWS[row].knee and not ROWS[row].outlier}
    above = {row: share for row, share in named.items() if ROWS[row].knee and ROWS[row].rise[0] >= 20}
    return [
        side,
        worst(flat, most=True),
        f"{100 * named['flat, one outlier']:.1f} %" if "flat, one outlier" in named else "",
        f"{100 * named['hinge, rises 5-10']:.1f} %" if "hinge, rises 5-10" in named else "",
        worst(above, most=False),
        worst(covered, most=False),
    ]


def show(cells: Sequence[str], markdown: bool) -> None:
    if markdown:
        print(f"| {' | '.join(cells)} |", flush=True)
    else:
        print(f"{cells[0]:21}{cells[1]:14}" + "".join(f"{cell:>13}" for cell in cells[2:]), flush=True)


def show_summary(rows: Sequence[Sequence[str]], markdown: bool) -> None:
    for cells in [SUMMARY, *([["---"] * len(SUMMARY)] if markdown else []), *rows]:
        if markdown:
            print(f"| {' | '.join(cells)} |")
        else:
            print(f"{cells[0]:15}" + "".join(f"{cell:>30}" for cell in cells[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--curves", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=2026)
    # names have commas of their own, which a list of them writes as semicolons
    parser.add_argument("--sides", default=",".join(SIDES).replace(", ", ";"))
    parser.add_argument("--rows", default=",".join(name.replace(", ", ";") for name in ROWS))
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    sides = [name.replace(";", ", ") for name in asked.sides.split(",")]
    rows = [name.replace(";", ", ") for name in asked.rows.split(",")]
    for kind, names, known in (("rows", rows, tuple(ROWS)), ("sides", sides, tuple(SIDES))):
        for name in names:
            if name not in known:
                accepted = ", ".join(each.replace(", ", ";") for each in known)
                parser.error(f"--{kind}: {name!r} is unknown; accepted: {accepted}")
    sides = [name for name in sides if name not in NEEDS or find_spec(NEEDS[name])]
    print(f"{asked.curves} curves a row, seed {asked.seed}, {os.cpu_count()} cores")
    show(HEAD, asked.markdown)
    if asked.markdown:
        show(["---"] * len(HEAD), True)
    outcomes: dict[str, dict[str, list[Outcome]]] = {side: {} for side in sides}
    with Pool() as pool:
        for row in rows:
            for side in sides:
                seeds = [(asked.seed, number) for number in range(asked.curves)]
                outcomes[side][row] = pool.map(partial(one, row, side), seeds, chunksize=4)
                show(line(row, side, outcomes[side][row]), asked.markdown)
    print()
    show_summary([summary(side, outcomes[side]) for side in sides], asked.markdown)


if __name__ == "__main__":
    main()
