"""Compares the resource cost of the load in several runs, such as messages for each server booted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from statistics import fmean

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.cost import Cost
from tippingpoint.rundir.resources import titles_of


@dataclass(frozen=True)
class CostComparison:
    """The cost of one figure, or one part of it (such as a virtual host), per unit of load or operation, by run."""

    title: str
    part: str
    unit: str
    """The unit; empty for plain counts."""
    per: str
    """1000 leases, operation, boot ..."""
    costs: list[Cost | None]
    """One cost per run, of all hosts together; None if unknown."""
    ratios: list[float | None]
    """For each run after the first, the ratio of what a further unit adds to that of the first run."""


def compare_costs(runs: Sequence[Analysis]) -> list[CostComparison]:
    """Return the costs that at least two runs (or the only run) have, if one of them exceeds noise; see cost.py.

    A single load gives no interval, but still a cost if the idle state is known.
    """
    found: dict[tuple[str, str, str], dict[int, Cost]] = {}
    titles = titles_of(
        figure
        for run in (analysis.run for analysis in runs)
        if run.resources is not None
        for figure in run.resources.figures
        if figure.cost
    )
    for number, analysis in enumerate(runs):
        for cost in analysis.costs:
            if cost.role == "all" and cost.slope is not None:
                found.setdefault((cost.figure, cost.part, cost.per), {})[number] = cost
    return [
        _compared(len(runs), titles[figure], costs)
        for (figure, _, _), costs in found.items()
        if len(costs) >= min(2, len(runs)) and any(map(is_shown, costs.values()))
    ]


def costs_together(compared: Sequence[CostComparison], counts: Sequence[int]) -> list[CostComparison]:
    """Join the costs of repeats; `counts` is the number of repeats of each release, in order.

    The cost of a further unit is their mean, and its interval is their range. A release has a cost if all runs show it.
    """
    ends = list(accumulate(counts))
    joined: list[CostComparison] = []
    for cost in compared:
        costs = [_joined(cost.costs[end - count : end]) for end, count in zip(ends, counts, strict=True)]
        if sum(one is not None for one in costs) >= min(2, len(counts)):
            joined.append(replace(cost, costs=costs, ratios=[_ratio(costs[0], other) for other in costs[1:]]))
    return joined


def _joined(costs: Sequence[Cost | None]) -> Cost | None:
    if len(costs) == 1:
        return costs[0]
    shown = [cost for cost in costs if cost is not None and is_shown(cost)]
    if len(shown) < len(costs):
        return None
    slopes = [cost.slope or 0.0 for cost in shown]
    bases = [cost.base for cost in shown if cost.base is not None]
    return replace(
        shown[0],
        slope=fmean(slopes),
        base=fmean(bases) if len(bases) == len(shown) else None,
        low=min(slopes),
        high=max(slopes),
        level=None,
        withheld=f"{len(shown)} runs",
    )


def is_shown(cost: Cost) -> bool:
    """Return whether a cost is shown: it is certain, or its certainty is unknown."""
    return cost.is_told or (cost.level is None and cost.slope is not None and cost.slope > 0)


def _compared(runs: int, title: str, of_runs: dict[int, Cost]) -> CostComparison:
    first = next(iter(of_runs.values()))
    costs = [of_runs.get(number) for number in range(runs)]
    ratios = [_ratio(costs[0], other) for other in costs[1:]]
    return CostComparison(title, first.part, first.unit, first.per, costs, ratios)


def _ratio(base: Cost | None, other: Cost | None) -> float | None:
    if base is None or other is None or not (is_shown(base) and is_shown(other)):
        return None
    return (other.slope or 0.0) / (base.slope or 1.0)
