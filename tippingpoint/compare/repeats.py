"""Joins the runs of a release, and tests differences between releases against the scatter of one release's runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import asin, exp, inf, isfinite, log, pi, sin, sqrt
from statistics import fmean, median

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.confidence import percentile_interval
from tippingpoint.compare.reach import Judgement, Reach, reach_together
from tippingpoint.compare.scatter import Measured, Tested, tested_together
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.results import RunData

LEVEL = 0.95
"""The confidence of the interval of each figure alone."""
ERRS = 0.025
"""The chance that comparing a release with itself calls anything worse or better.

This is half the usual value: at 5 %, one in four sets of twenty comparisons has at least two such errors; at 2.5 %, one
in eleven.
"""
_ONE_SIGMA = 0.683
_LEAST_US = 1.0
_STEP = 2.0


@dataclass(frozen=True)
class Release:
    """Runs of one release, which are repeats of each other."""

    name: str
    runs: list[RunData]
    analyses: list[Analysis]
    """One analysis per run."""
    reaches: list[Reach]
    """One reach per run."""

    @property
    def reach(self) -> Reach:
        """How far all of its runs got."""
        return reach_together(self.reaches)


@dataclass(frozen=True)
class Change:
    """How one figure of a release differs from that of the first release."""

    change: float
    """The ratio of levels, or the difference of rates."""
    low: float
    high: float
    """The 95 % interval of `change` alone."""
    certain: bool
    """Whether at most a share of ERRS of comparisons of a release with itself show such a change in any figure."""
    withheld: bool
    """Whether the first release differs just as much from its own control."""


@dataclass(frozen=True)
class Figure:
    """One figure of the runs of two releases."""

    measured: Measured
    rate: bool
    """Whether the scale is the arcsine of a share's root (variance 1/n by chance) rather than a logarithm."""

    def change(self, tested: Tested, *, certain: bool, withheld: bool) -> Change:
        """Turn a difference on the figure's scale into a ratio, or into a difference of shares."""
        base = fmean(self.measured.before)

        def away(by: float) -> float:
            return _share(base + by) - _share(base) if self.rate else _exp(by)

        return Change(away(tested.difference), away(tested.low), away(tested.high), certain, withheld)


def level_figure(kind: str, before: Sequence[float], after: Sequence[float], floor: float = 0.0) -> Figure:
    """Return a positive level, such as a percentile, on whose logarithm runs scatter equally."""
    return Figure(Measured(kind, _logs(before), _logs(after), floor), rate=False)


def rate_figure(kind: str, before: Sequence[tuple[int, int]], after: Sequence[tuple[int, int]]) -> Figure:
    """Return a share of attempts, from the hits and tries of each run."""
    angles = [[_angle(hits, tries) for hits, tries in runs] for runs in (before, after)]
    floor = fmean(1 / tries for _, tries in (*before, *after))
    return Figure(Measured(kind, angles[0], angles[1], floor), rate=True)


def over_loads(figures: Sequence[Figure]) -> Figure:
    """Return the mean of one figure over several loads of the same runs, with its own scatter."""
    measured = [figure.measured for figure in figures]
    before, after = (
        [fmean(of_run) for of_run in zip(*of_loads, strict=True)]
        for of_loads in ([one.before for one in measured], [one.after for one in measured])
    )
    floor = fmean(one.floor for one in measured) / len(measured)
    return Figure(Measured(measured[0].kind, before, after, floor), figures[0].rate)


def percentile_level(
    kind: str, percentile: float, before: Sequence[Histogram], after: Sequence[Histogram]
) -> Figure | None:
    """Return a percentile as a figure, with its variance from sampling alone; None if there are too few samples."""
    runs = [percentile_interval(one, percentile, _ONE_SIGMA) for one in (*before, *after)]
    sigmas: list[float] = []
    for one in runs:
        sides = [
            abs(log(max(bound, _LEAST_US)) - log(max(one.estimate, _LEAST_US)))
            for bound in (one.low, one.high)
            if 0 < bound < inf
        ]
        if not sides:
            return None
        sigmas.append(max(sides))
    values = [max(one.estimate, _LEAST_US) for one in runs]
    floor = fmean(sigma**2 for sigma in sigmas)
    return level_figure(kind, values[: len(before)], values[len(before) :], floor)


def tip_level(before: Sequence[Reach], after: Sequence[Reach]) -> Figure:
    """Return where runs tip as a figure, on a logarithmic scale.

    A search measures its limit: the middle of its interval, with the variance of a uniform distribution over it. Any
    other run only shows that it held some loads and not others. So runs are compared by the loads for which this is
    known of all runs: each run tips in one of the cells between these loads. A run that was not tested further tips in
    the cell that is open above, and so do all runs that held as much. This is the order of Gehan's generalised Wilcoxon
    test (Biometrika 52 (1965) 203), in which a bound says nothing about what lies beyond it. The open cells, above and
    below, count as one step of the ladder wide.
    """
    all_of = (*before, *after)
    cells = [(low, high) for reach in all_of if (low := reach.held) and (high := reach.broken)]
    if len(cells) < len(all_of) or any(reach.by != "limit" for reach in all_of):
        cells = _cells(all_of, median(high / low for low, high in cells) if cells else _STEP)
    values = [sqrt(low * high) for low, high in cells]
    floor = fmean(log(high / low) ** 2 / 12 for low, high in cells)
    return level_figure("tip", values[: len(before)], values[len(before) :], floor)


def _cells(reaches: Sequence[Reach], step: float) -> list[tuple[float, float]]:
    """Return the loads between which each run tips, from the loads for which all runs show whether they held them."""
    loads = sorted({load for reach in reaches for load in (reach.held, reach.broken) if load})
    known = [load for load in loads if all(reach.holds(load) is not None for reach in reaches)]
    if not known:
        return [(1.0, step)] * len(reaches)
    edges = [known[0] / step, *known, known[-1] * step]
    held = [sum(reach.holds(load) is True for load in known) for reach in reaches]
    return [(edges[place], edges[place + 1]) for place in held]


def changes(figures: Sequence[Figure], control: Sequence[Figure] | None, errs: float = ERRS) -> list[Change]:
    """Test figures of the same two releases together; `control` are those of the first release and its control.

    `errs` is the chance that any of them is called a certain change although the releases do not differ.
    """
    tested = tested_together([figure.measured for figure in figures], LEVEL)
    own = (
        tested_together([figure.measured for figure in control], LEVEL)
        if control is not None
        else [None] * len(figures)
    )
    return [
        figure.change(
            one,
            certain=one.probability <= errs,
            withheld=again is not None and abs(again.difference) >= abs(one.difference),
        )
        for figure, one, again in zip(figures, tested, own, strict=True)
    ]


def judged(change: Change, low: float, high: float) -> Judgement:
    """Judge a change by the tolerated range; larger figures are worse."""
    if change.certain and not change.withheld:
        if change.change > high:
            return "worse"
        if change.change < low:
            return "better"
    return "same" if low <= change.low and change.high <= high else "unsure"


def _logs(values: Sequence[float]) -> list[float]:
    return [log(max(value, 1e-300)) for value in values]


def _exp(value: float) -> float:
    return exp(value) if value < 700 else inf


def _angle(hits: int, tries: int) -> float:
    return 2 * asin(sqrt(hits / tries))


def _share(angle: float) -> float:
    if not isfinite(angle):
        return 0.0 if angle < 0 else 1.0
    return sin(min(max(angle, 0.0), pi) / 2) ** 2
