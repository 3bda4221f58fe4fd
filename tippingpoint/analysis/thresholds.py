"""Evaluates thresholds: what a stage measured for each limit, what is allowed, and by how much it was met or missed.

The verdict, the margins of a search, early warning and recovery all use the limits and checks of this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, log
from sys import float_info
from typing import NamedTuple

from tippingpoint.analysis.latency import costs
from tippingpoint.analysis.operation_costs import OperationCost
from tippingpoint.plan.base import Threshold
from tippingpoint.rundir.stages import StageResult
from tippingpoint.util.durations import format_duration
from tippingpoint.util.numbers import show_quantity, show_rate, show_share, show_us
from tippingpoint.util.text import show_list

RATES: dict[str, tuple[str, ...]] = {"error_rate": ("error", "timeout"), "lost_rate": ("lost",)}
"""The limits on a share of the attempts, with the outcomes that each counts."""
FIGURE = "at_most"
"""The limit on a Prometheus figure."""
_PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p999": 99.9, "max": 100.0}
_THROUGHPUT = "throughput"
_CPU = "cpu"
_LEAST = 1e-3
"""A figure below this share of its limit counts as being at this share."""


@dataclass(frozen=True)
class Limit:
    """One limit of a threshold."""

    operation: str
    """What is limited: an operation, or a figure and whose figure it is."""
    limit: str
    """The threshold's field: p50 p90 p95 p99 p999 max error_rate lost_rate throughput cpu at_most."""
    allowed: float
    """The plan's limit: microseconds for latencies and CPU time, a share in 0..1 for rates, operations per second; for
    a figure in `unit`."""
    unit: str
    """The unit of a figure's limit: seconds, bytes, or none."""
    written: str
    """The plan's limit as a person writes it: 250ms, 0.01, 300MB."""

    @property
    def percentile(self) -> float | None:
        """The percentile of the response times that is limited, in 0..100; None for other limits."""
        return _PERCENTILES.get(self.limit)

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The outcomes whose share of the attempts is limited; none for other limits."""
        return RATES.get(self.limit, ())

    @property
    def is_figure(self) -> bool:
        """Whether the limit is on a Prometheus figure rather than an operation."""
        return self.limit == FIGURE

    @property
    def is_cpu(self) -> bool:
        """Whether the target's CPU time for one operation is limited, which is known only after the run."""
        return self.limit == _CPU

    @property
    def is_least(self) -> bool:
        """Whether values below the limit miss it, as for a throughput; other limits are missed by values above."""
        return self.limit == _THROUGHPUT

    @property
    def name(self) -> str:
        """The name in journals: extend p999, etcd-memory of the leader."""
        return self.operation if self.is_figure else f"{self.operation} {self.limit}"

    @property
    def title(self) -> str:
        """The name for people: extend p99.9, extend error rate."""
        if self.is_figure:
            return self.operation
        names = {"p999": "p99.9", _CPU: "CPU"}
        return f"{self.operation} {names.get(self.limit, self.limit.replace('_', ' '))}"

    def show(self, value: float) -> str:
        """Format a value in the unit of `allowed`, with that unit."""
        if self.is_figure:
            return show_quantity(value, self.unit)
        if self.percentile is not None or self.is_cpu:
            return show_us(value)
        return show_share(value) if self.outcomes else show_rate(value)


@dataclass(frozen=True)
class Check(Limit):
    """One limit checked in one stage."""

    observed: float | None
    """The measured value, in the unit of `allowed`; None if there was nothing to measure."""
    stage: int | None
    """The stage's number; None if no stage was run."""
    size: float | None
    """The stage's size, in the manifest's load unit."""
    met: bool | None
    """Whether the limit was met; None if nothing was measured, or the value says nothing about the target (`why`)."""
    margin: float | None
    """How far the value was from the limit: ln(observed / allowed), and for a throughput ln(allowed / observed). Above
    0 the limit was missed. Counts of failures are smoothed. None if nothing was measured, or too little to decide:
    hosts without a figure while the others meet its limit, or a throughput without attempts."""
    why: str
    """Why `met` is None, in a few words."""

    @property
    def is_doubtful(self) -> bool:
        """Whether it is unknown if the limit was met, although there was something to measure.

        A figure is requested in every stage, so one that was not measured never counts as met.
        """
        return self.met is None and (self.observed is not None or self.is_figure)


def limits_of(threshold: Threshold) -> list[Limit]:
    """Return the limits of a threshold, in the order in which they are judged."""
    if threshold.at_most is not None:
        allowed, unit = threshold.quantity
        return [Limit(threshold.subject, FIGURE, allowed, unit, threshold.at_most)]
    limits: list[Limit] = []
    for name in (*_PERCENTILES, *RATES, _THROUGHPUT, _CPU):
        value: float | None = getattr(threshold, name)
        if value is not None:
            is_time = name in _PERCENTILES or name == _CPU
            written = format_duration(value) if is_time else f"{value:g}"
            limits.append(Limit(threshold.operation, name, value * 1e6 if is_time else value, "", written))
    return limits


def stage_checks(
    stage: StageResult,
    thresholds: Sequence[Threshold],
    *,
    clock_known: bool = True,
    cpu: Mapping[str, OperationCost] | None = None,
) -> list[Check]:
    """Check every limit of every threshold in one stage.

    Latency limits use the response times of `latency.costs`. The error rate is errors and timeouts over attempts. The
    lost rate is lost leases over attempts to extend. Throughput is successes per second (see StageResult.throughput).
    `clock_known` is False if the run's times only give an order: then there are no rates.

    `cpu` is the target's CPU time for each operation, over the whole run and at each load; its limits apply only to
    loads. During a run it is unknown (None), and these limits are not checked.
    """
    # Only loads and storms have figures.
    without_figures = stage.kind in ("destroy", "recover")
    without_cpu = cpu is None or not stage.is_step
    return [
        _check(stage, limit, clock_known, cpu or {})
        for threshold in thresholds
        for limit in limits_of(threshold)
        if not (limit.is_figure and without_figures and limit.operation not in stage.figures)
        and not (limit.is_cpu and without_cpu)
    ]


class _Measured(NamedTuple):
    """What a stage measured for a limit: `observed`, `margin` and `why` of its check."""

    observed: float | None = None
    margin: float | None = None
    why: str = "not measured"


def _check(stage: StageResult, limit: Limit, clock_known: bool, cpu: Mapping[str, OperationCost]) -> Check:
    if limit.is_figure:
        observed, margin, why = _of_figure(stage, limit)
    elif limit.is_cpu:
        observed, margin, why = _of_cpu(stage, limit, cpu)
    elif limit.percentile is not None:
        observed, margin, why = _of_percentile(stage, limit, limit.percentile)
    elif limit.outcomes:
        observed, margin, why = _of_share(stage, limit)
    else:
        observed, margin, why = _of_throughput(stage, limit) if clock_known else _Measured()
    met = None
    if observed is not None and not why:
        met = observed >= limit.allowed if limit.is_least else observed <= limit.allowed
    return Check(
        **vars(limit),
        observed=observed,
        stage=stage.number,
        size=stage.size,
        met=met,
        margin=margin,
        why=why,
    )


def _of_figure(stage: StageResult, limit: Limit) -> _Measured:
    found = stage.figures.get(limit.operation)
    if found is None:
        return _Measured(why="this stage was not queried from Prometheus")
    # A host without a value may be beyond a limit that the others meet.
    if found.value is None or (found.why and found.value <= limit.allowed):
        return _Measured(found.value, why=found.why)
    return _Measured(found.value, log(max(found.value / limit.allowed, _LEAST)), "")


def _of_cpu(stage: StageResult, limit: Limit, cpu: Mapping[str, OperationCost]) -> _Measured:
    """Measure the CPU time of one operation at the load of a stage.

    It misses its limit only if its whole interval is above the limit, and includes nothing but this operation at this
    load.
    """
    cost = cpu.get(limit.operation)
    if cost is None:
        other = next((name for name, of in cpu.items() if limit.operation in of.includes), "")
        unknown = cpu.get("")
        if other:
            return _Measured(why=f"its CPU time cannot be separated from that of {other}")
        return _Measured(why=unknown.withheld) if unknown is not None else _Measured()
    found = cost.at(stage.size)
    if found is None and cost.loads:
        return _Measured(why="there were too few calls at this load")
    value, low = (cost.value, cost.low) if found is None else (found.value, found.low)
    observed = value * 1e6
    margin = log(max(observed / max(limit.allowed, 1e-3), _LEAST))
    why = ""
    if observed > limit.allowed:
        if cost.includes:
            why = f"that includes {show_list(list(cost.includes))}"
        elif found is None:
            why = "that is the mean of all loads"
        elif low * 1e6 <= limit.allowed:
            why = f"it may be as low as {limit.show(max(low * 1e6, 0.0))} (95 %)"
    return _Measured(observed, margin, why)


def _of_percentile(stage: StageResult, limit: Limit, percentile: float) -> _Measured:
    waited = costs(stage, limit.operation)
    if not waited.total:
        return _Measured()
    observed = float(waited.percentile(percentile))
    return _Measured(observed, log(max(observed, 1.0) / max(limit.allowed, 1.0)), "")


def _of_share(stage: StageResult, limit: Limit) -> _Measured:
    """Measure a share of the attempts.

    A count of events is smoothed by half an event (Jeffreys). The allowed value is the smallest count that is too many,
    so the margin is negative exactly when the share is within the limit. If one event is too many, no margin is large,
    because the attempts cannot show more.
    """
    attempts = stage.attempts(limit.operation)
    if not attempts:
        return _Measured()
    events = sum(stage.count(limit.operation, outcome) for outcome in limit.outcomes)
    least = floor(limit.allowed * attempts * (1 + 1e-12)) + 1
    too_many = attempts if least == 1 and not events else least
    return _Measured(events / attempts, log((events + 0.5) / too_many), "")


def _of_throughput(stage: StageResult, limit: Limit) -> _Measured:
    """Measure the successes per second. If there were none, half a success makes the margin finite."""
    observed = stage.throughput(limit.operation)
    if observed is None:
        return _Measured()
    if not stage.attempts(limit.operation):
        return _Measured(observed, why="")
    hold = stage.end - stage.hold_begin if stage.end is not None and stage.hold_begin is not None else 1.0
    least = limit.allowed / observed if observed else limit.allowed * max(hold, 1.0) / 0.5
    return _Measured(observed, log(max(least, float_info.min)), "")
