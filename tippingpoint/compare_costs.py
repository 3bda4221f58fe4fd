"""What one operation cost the targets of several runs, such as messages for each server booted, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tippingpoint.cost import Cost, costs_of
from tippingpoint.resources import titles_of
from tippingpoint.results import RunData


@dataclass(frozen=True)
class CostComparison:
    """What one figure (of one part, such as a virtual host) cost per operation in every run, against load."""

    title: str
    part: str
    unit: str
    """Empty for what is only counted."""
    per: str
    """operation, boot ..."""
    sizes: list[int]
    costs: list[list[float | None]]
    """For each run, and in it for each of `sizes`, of all hosts together; None where it is not known."""
    ratios: list[list[float | None]]
    """For each run after the first, and in it for each of `sizes`: to the first one's cost."""


def compare_costs(runs: Sequence[RunData]) -> list[CostComparison]:
    """What two runs or more (or the only one) have a cost per operation of; see cost.py."""
    found: dict[tuple[str, str, str], dict[int, Cost]] = {}
    of_runs = [run.resources.figures if run.resources is not None else [] for run in runs]
    titles = titles_of(figure for told in of_runs for figure in told if figure.cost)
    for number, (run, told) in enumerate(zip(runs, of_runs, strict=True)):
        named = {figure.name for figure in told if figure.cost == "operations"}
        for cost in costs_of(run):
            if cost.role == "all" and cost.stages and cost.figure in named:
                found.setdefault((cost.figure, cost.part, cost.per), {})[number] = cost
    return [
        _compared(len(runs), titles[figure], costs)
        for (figure, _, _), costs in found.items()
        if len(costs) >= min(2, len(runs))
    ]


def _compared(runs: int, title: str, of_runs: dict[int, Cost]) -> CostComparison:
    first = next(iter(of_runs.values()))
    by_size = [dict(of_runs[number].stages) if number in of_runs else {} for number in range(runs)]
    sizes = sorted({size for costs in by_size for size in costs})
    costs = [[of_run.get(size) for size in sizes] for of_run in by_size]
    ratios = [
        [_ratio(base, other) for base, other in zip(costs[0], of_run, strict=True)] for of_run in costs[1:]
    ]
    return CostComparison(title, first.part, first.unit, first.per, sizes, costs, ratios)


def _ratio(base: float | None, other: float | None) -> float | None:
    return None if base is None or other is None or base <= 0 or other < 0 else other / base
