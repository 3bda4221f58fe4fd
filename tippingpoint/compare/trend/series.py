"""Reads from runs of one plan the series that a trend looks at: where they tip, latencies, and costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, log, sqrt

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.confidence import percentile_interval
from tippingpoint.analysis.latency import freed_costs
from tippingpoint.compare.reach import reach_of
from tippingpoint.compare.trend.changes import LEAST, Measured

LIMIT = "limit"
"""The series of the tipping points, or of the largest loads held."""
PERCENTILES = {"p50": 50.0, "p99": 99.0}
_ONE_SIGMA = 0.6827
_SIGMAS = 2 * 1.96
"""Standard errors in the width of a 95 % interval."""
_UNIFORM = sqrt(12)
"""The width of a uniform distribution in its standard deviations: a ladder says only between which loads it tips."""
_LEAST_SAMPLES = 20
"""With fewer operations a percentile says little."""


@dataclass(frozen=True)
class Figure:
    """One series: a figure of every run of a history."""

    operation: str
    """The operation; empty for the tipping point and for costs."""
    size: float | None
    """The load; None if the figure is not of one load."""
    measure: str
    """limit, p50, p99 (microseconds), or the title of a cost."""
    unit: str
    """The unit of costs; of tipping points that of loads."""
    more_is_worse: bool
    measured: Measured


def figures_of(runs: Sequence[Analysis]) -> list[Figure]:
    """Return the series of these runs, in their order; each has a value in as many runs as two levels need."""
    unit = runs[0].run.manifest.load_unit if runs else ""
    found = [Figure("", None, LIMIT, unit, False, _each(runs, _limit))]
    keys = {
        (operation, stage.size)
        for analysis in runs
        if analysis.found is None
        for stage in analysis.run.stages
        if stage.is_step
        for operation in analysis.run.operations
    }
    for operation, size in sorted(keys):
        for measure in PERCENTILES:
            measured = _each(runs, _latency(operation, size, measure))
            found.append(Figure(operation, size, measure, "", True, measured))
    costs = {
        (cost.title, cost.part, cost.unit, cost.per)
        for analysis in runs
        for cost in analysis.costs
        if cost.role == "all" and cost.is_told
    }
    for title, part, of_cost, per in sorted(costs):
        name = f"{title}{f' of {part}' if part else ''} for each {per}"
        found.append(Figure("", None, name, of_cost, True, _each(runs, _cost(title, part, per))))
    return [figure for figure in found if _known(figure) >= 2 * LEAST]


def _known(figure: Figure) -> int:
    return sum(value is not None for value in figure.measured.values)


_Read = Callable[[Analysis], tuple[float, float] | None]
"""Returns a run's value and the standard error of its logarithm; None if the run does not have it."""


def _each(runs: Sequence[Analysis], read: _Read) -> Measured:
    read_values = [read(analysis) for analysis in runs]
    return Measured(
        [None if value is None or value[0] <= 0 else value[0] for value in read_values],
        [0.0 if value is None else value[1] for value in read_values],
    )


def _limit(analysis: Analysis) -> tuple[float, float] | None:
    """Return where a run tips: of a search its limit, of a ladder the middle of the two loads around it.

    If no load broke, it is what a next step of the ladder, as wide as the last one, would say at least.
    """
    if analysis.found is not None:
        answer = analysis.found.answer
        if answer.limit is None or not isfinite(answer.high) or answer.low <= 0:
            return None
        return answer.limit, log(answer.high / answer.low) / _SIGMAS
    reach = reach_of(analysis)
    sizes = sorted({stage.size for stage in analysis.run.stages if stage.is_step and stage.size > 0})
    if reach.doubt or not sizes:
        return None
    step = min((after / before for before, after in pairwise(sizes)), default=2.0)
    low = reach.held if reach.held else (reach.broken or 0) / step
    high = reach.broken if reach.broken is not None else low * step
    return (sqrt(low * high), log(high / low) / _UNIFORM) if 0 < low < high else None


def _latency(operation: str, size: float, measure: str) -> _Read:
    def read(analysis: Analysis) -> tuple[float, float] | None:
        if analysis.found is not None or size not in reach_of(analysis).loads:
            return None
        of_size = [stage for stage in analysis.run.stages if stage.is_step and stage.size == size]
        waited = [freed_costs(stage, operation) for stage in of_size]
        of_run = max(waited, key=lambda found: found.total, default=None)
        if of_run is None or of_run.total < _LEAST_SAMPLES:
            return None
        interval = percentile_interval(of_run, PERCENTILES[measure], _ONE_SIGMA)
        if interval.estimate <= 0:
            return None
        high = interval.high if isfinite(interval.high) else interval.estimate**2 / max(interval.low, 1.0)
        return interval.estimate, abs(log(max(high, 1.0) / max(interval.low, 1.0))) / 2

    return read


def _cost(title: str, part: str, per: str) -> _Read:
    def read(analysis: Analysis) -> tuple[float, float] | None:
        for cost in analysis.costs:
            if (cost.title, cost.part, cost.per, cost.role) == (title, part, per, "all") and cost.slope:
                known = cost.low is not None and cost.high is not None and cost.low > 0
                error = log(cost.high / cost.low) / _SIGMAS if known and cost.high and cost.low else 0.0
                return cost.slope, error
        return None

    return read
