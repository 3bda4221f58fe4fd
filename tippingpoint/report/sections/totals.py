"""Sums up each operation of a run over all of its stages, as load generators do at their end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tippingpoint.analysis.latency import costs
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.operations import OWN_CALLS
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult


@dataclass(frozen=True)
class Totals:
    """An operation over all stages. Response times are in microseconds; failures count with the time they took."""

    operation: str
    count: int
    """Attempts."""
    rate: float | None
    """Attempts per second from the start of the first stage to the end of the last; None if the run has no clock."""
    p50: int | None
    p90: int | None
    p99: int | None
    max: int | None
    failed: float
    """The share of attempts that failed."""


def build_totals(run: RunData) -> list[Totals]:
    """Return the operations that were called, in the order of reports."""
    seconds = _seconds(run.stages) if run.manifest.timeline == "seconds" else None
    found: list[Totals] = []
    for operation in run.operations:
        count = sum(stage.attempts(operation) for stage in run.stages)
        if not count or operation in OWN_CALLS:
            continue
        times = Histogram.merged(costs(stage, operation) for stage in run.stages)
        p50, p90, p99 = times.percentiles([50, 90, 99]) if times.total > 1 else (None, None, None)
        failures = sum(stage.failures(operation) for stage in run.stages)
        rate = count / seconds if seconds else None
        most = times.max if times.total else None
        found.append(Totals(operation, count, rate, p50, p90, p99, most, failures / count))
    return found


def _seconds(stages: Sequence[StageResult]) -> float:
    """Return how long the stages took together; 0 if none has an end."""
    ends = [stage.end for stage in stages if stage.end is not None]
    return max(ends) - min(stage.begin for stage in stages) if ends else 0.0
