"""What a run measured for each operation at each load, as used to compare releases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean

from tippingpoint.analysis.fault_spans import fault_spans
from tippingpoint.analysis.latency import freed_costs
from tippingpoint.analysis.thresholds import RATES
from tippingpoint.plan.fields import StageKind
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0}


@dataclass(frozen=True)
class Cell:
    """One run's measurements of one operation at one load."""

    latencies: Histogram
    attempts: int
    failures: dict[str, int]

    def value(self, measure: str) -> float | None:
        """Return a percentile in microseconds, or a rate; None for a percentile of nothing."""
        if measure in RATES:
            return self.failures[measure] / self.attempts
        return float(self.latencies.percentile(PERCENTILES[measure])) if self.latencies.total else None


Key = tuple[StageKind, float, str]
"""Kind (ramp means every step of the ladder), size, operation."""
Table = dict[Key, Cell]


def rates_of(operation: str) -> list[str]:
    """Return the rates that an operation has."""
    return ["error_rate", "lost_rate"] if operation == "extend" else ["error_rate"]


def mean_of(cells: Sequence[Cell], measure: str) -> float | None:
    """Return the mean over runs, geometric for percentiles; None unless all have a value."""
    values = [value for cell in cells if (value := cell.value(measure)) is not None]
    if not values or len(values) < len(cells):
        return None
    if len(values) == 1:
        return values[0]
    return fmean(values) if measure in RATES else exp(fmean(log(max(value, 1.0)) for value in values))


def table_of(run: RunData) -> Table:
    """Merge the stages of each size; storms and removals are kept apart, and lower loads after the last are left out.

    If a size was tried with and without an injected fault, only the stages without one count.
    """
    faults = fault_spans(run.events)
    stages: dict[tuple[StageKind, float], dict[bool, list[StageResult]]] = {}
    for stage in run.stages:
        if stage.kind == "recover":
            continue  # such a load is judged relative to what came before it
        faulted = any(stage.overlaps(fault.begin, fault.until) for fault in faults)
        of_size = stages.setdefault(("ramp" if stage.is_step else stage.kind, stage.size), {})
        of_size.setdefault(faulted, []).append(stage)
    table: Table = {}
    for (kind, size), of_size in stages.items():
        same = of_size.get(False) or of_size[True]
        for operation in run.operations:
            attempts = sum(stage.attempts(operation) for stage in same)
            if attempts:
                failures = {
                    rate: sum(stage.count(operation, outcome) for stage in same for outcome in outcomes)
                    for rate, outcomes in RATES.items()
                }
                latencies = Histogram.merged(freed_costs(stage, operation) for stage in same)
                table[kind, size, operation] = Cell(latencies, attempts, failures)
    return table
