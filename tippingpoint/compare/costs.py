"""What the load cost the targets of several runs, such as messages for each server booted, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.cost import Cost
from tippingpoint.rundir.resources import titles_of


@dataclass(frozen=True)
class CostComparison:
    """What one figure (of one part, such as a virtual host) cost per unit of load or operation in every run."""

    title: str
    part: str
    unit: str
    """Empty for what is only counted."""
    per: str
    """1000 leases, operation, boot ..."""
    costs: list[Cost | None]
    """One per run, of all hosts together; None where it is not known."""
    ratios: list[float | None]
    """One per run after the first: what a further one adds, to what it adds in the first run."""


def compare_costs(runs: Sequence[Analysis]) -> list[CostComparison]:
    """What two runs or more (or the only one) have a cost of that is more than noise in one of them; see cost.py.

    One load gives no interval, and a cost all the same where what there was without load is known.
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


def is_shown(cost: Cost) -> bool:
    """Whether a cost stands as it is: it is for certain, or nothing can be said of how certain it is."""
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
