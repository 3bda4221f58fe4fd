"""Reads the series of a trend from runs of one plan: where they tip, latencies, and costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite, log, sqrt

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.confidence import percentile_interval
from tippingpoint.analysis.latency import freed_costs
from tippingpoint.compare.operation_costs import CostKey, costs_of_run
from tippingpoint.compare.reach import Reach, reach_of
from tippingpoint.compare.trend.changes import LEAST, Measured

LIMIT = "limit"
"""The series of the tipping points, or of the largest loads held."""
PERCENTILES = {"p50": 50.0, "p99": 99.0}
_ONE_SIGMA = 0.6827
_SIGMAS = 2 * 1.96
"""The width of a 95 % interval in standard errors."""
_LEAST_SAMPLES = 20
"""With fewer operations a percentile says little."""


@dataclass(frozen=True)
class Figure:
    """One series: a figure of every run of a history."""

    operation: str
    """The operation; empty for the tipping point and for costs."""
    size: float | None
    """The load; None if the figure does not belong to one load."""
    measure: str
    """limit, p50, p99 (microseconds), or the title of a cost."""
    unit: str
    """The unit of costs; for tipping points, the unit of loads."""
    more_is_worse: bool
    measured: Measured
    reaches: Sequence[Reach | None] = ()
    """For the tipping point, how far each run got; None for a run that does not show it. Empty for other figures."""


def figures_of(runs: Sequence[Analysis]) -> list[Figure]:
    """Return the series of these runs, in their order; each has enough values for two levels."""
    unit = runs[0].run.manifest.load_unit if runs else ""
    reaches = [_reach(analysis) for analysis in runs]
    found = [Figure("", None, LIMIT, unit, False, _limits(runs, reaches), reaches)]
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
    of_operations = {
        (key, cost.what, cost.unit) for analysis in runs for key, cost in costs_of_run(analysis).items()
    }
    for key, what, of_cost in sorted(of_operations):
        found.append(Figure("", None, what, of_cost, True, _each(runs, _operation_cost(key))))
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


def _reach(analysis: Analysis) -> Reach | None:
    """Return how far a run got; None if it shows neither where it tips nor a bound of that."""
    if analysis.found is not None:
        answer = analysis.found.answer
        held = answer.low if answer.low > 0 else None
        reach = Reach(
            held, analysis.found.broken, answer.drifts, "limit", extent="the largest that was sustained"
        )
    else:
        reach = reach_of(analysis)
    known = reach.held or reach.broken
    return reach if known and not reach.doubt else None


def _limits(runs: Sequence[Analysis], reaches: Sequence[Reach | None]) -> Measured:
    """Return where runs tip: the limit that a search found, else the middle of the loads around it, or a bound.

    With bounds, or with ladders of different loads, it is known only for some pairs of runs which one tips lower. So
    each run is ranked by the share of the others that certainly tip lower minus the share that tip higher: the scores
    of Gehan's generalised Wilcoxon test (Biometrika 52 (1965) 203).
    """
    limits = [analysis.found.answer.limit if analysis.found is not None else None for analysis in runs]
    known = [reach for reach in reaches if reach is not None]
    found = [limit for limit, reach in zip(limits, reaches, strict=True) if reach is not None]
    if all(limit is not None for limit in found) and not any(reach.bounded for reach in known):
        return Measured(
            [limit if reach is not None else None for limit, reach in zip(limits, reaches, strict=True)],
            [log((reach.broken or 1) / (reach.held or 1)) / _SIGMAS if reach else 0.0 for reach in reaches],
        )
    values: list[float | None] = []
    placed: list[float | None] = []
    for reach in reaches:
        if reach is None:
            values.append(None)
            placed.append(None)
            continue
        low, high = reach.held or reach.broken or 0.0, reach.broken or reach.held or 0.0
        values.append(sqrt(low * high))
        lower = sum(_tips_lower(other, reach) for other in known)
        higher = sum(_tips_lower(reach, other) for other in known)
        placed.append((lower - higher) / max(1, len(known) - 1))
    return Measured(values, [0.0] * len(runs), placed)


def _tips_lower(one: Reach, other: Reach) -> bool:
    return one.broken is not None and other.holds(one.broken) is True


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


def _operation_cost(key: CostKey) -> _Read:
    def read(analysis: Analysis) -> tuple[float, float] | None:
        cost = costs_of_run(analysis).get(key)
        return None if cost is None else (cost.value, cost.log_error)

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
