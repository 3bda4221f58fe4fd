"""Compares what one operation costs the targets of several runs, such as CPU time for each renewal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean
from typing import NamedTuple

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.operation_costs import CPU, OperationCost, cpu_costs
from tippingpoint.compare.repeats import Figure, level_figure


class CostKey(NamedTuple):
    """Identifies one cost of an operation."""

    figure: str
    part: str
    operation: str
    includes: tuple[str, ...]
    """Costs that include other operations are compared only if they include the same ones."""


CostTable = dict[CostKey, OperationCost]
"""The costs of one run's operations, for all hosts together."""


@dataclass(frozen=True)
class OperationCosts:
    """What one operation cost in every release; the first one is the baseline."""

    key: CostKey
    what: str
    words: list[str]
    """One cost per release, the geometric mean of its runs."""
    values: list[float]


def costs_of_run(analysis: Analysis) -> CostTable:
    """Return the costs of a run's operations that exceed noise: the CPU of the whole target first.

    It is called CPU however it was measured, so runs that were measured in different ways have it in common.
    """
    cpu = {_key(cost, CPU): cost for cost in cpu_costs(analysis.operation_costs).values() if cost.is_told}
    known = [id(cost) for cost in cpu.values()]
    others = {
        _key(cost, cost.figure): cost
        for cost in analysis.operation_costs
        if cost.role == "all" and cost.is_told and id(cost) not in known
    }
    return {**cpu, **others}


def _key(cost: OperationCost, figure: str) -> CostKey:
    return CostKey(figure, cost.part, cost.operation, cost.includes)


def cost_figure(before: Sequence[OperationCost], after: Sequence[OperationCost]) -> Figure:
    """Return an operation's cost as a figure, with the variance from the slices of its runs alone."""
    floor = fmean(cost.log_error**2 for cost in (*before, *after))
    kind = f"{before[0].figure} {before[0].operation}"
    return level_figure(kind, [cost.value for cost in before], [cost.value for cost in after], floor)


def operation_costs_together(releases: Sequence[Sequence[CostTable]]) -> list[OperationCosts]:
    """Return the costs that all runs have, in the order of the first; `releases` has one table for each run."""
    runs = [table for release in releases for table in release]
    found: list[OperationCosts] = []
    for key, first in runs[0].items() if runs else ():
        if all(key in table for table in runs):
            values = [geometric_mean([table[key].value for table in release]) for release in releases]
            found.append(OperationCosts(key, first.what, [first.show(value) for value in values], values))
    return found
