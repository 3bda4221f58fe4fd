"""The measurements of a run's stages, joined exactly from all of its workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any, cast

import numpy as np

from tippingpoint.plan.fields import StageKind
from tippingpoint.rundir.figure_values import FigureValue
from tippingpoint.rundir.gauges import GAUGES, add_gauges, phase_medians
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.journal import is_number
from tippingpoint.rundir.operations import BRINGING_UP
from tippingpoint.rundir.tags import FAILURES, tag
from tippingpoint.rundir.waited import waited_outcomes
from tippingpoint.rundir.worker_journal import WorkerData

_GROWTH_SECONDS = 5.0


@dataclass
class StageResult:
    """One stage as it was measured; `number` counts from 1 in the order in which stages were run.

    `size` is the stage's load, or for a stage of kind destroy the load before it. `histograms` cover the stage from
    its begin, `held` only the part after it was brought up (`hold_begin`).
    """

    number: int
    size: float
    kind: StageKind
    begin: float
    hold_begin: float | None = None
    end: float | None = None
    histograms: dict[str, Histogram] = field(default_factory=dict[str, Histogram])
    held: dict[str, Histogram] = field(default_factory=dict[str, Histogram])
    gauges: dict[str, float] = field(default_factory=dict[str, float])
    """Medians during the stage's hold: all leases held, `cpu` (cores) of the busiest worker; see Gauges."""
    growth: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """Moments from the stage's begin to its hold (or its end without one), some seconds apart, and the load at
    each."""

    figures: dict[str, FigureValue] = field(default_factory=dict[str, FigureValue])
    """The Prometheus figures that thresholds refer to, by Threshold.subject."""

    @property
    def is_step(self) -> bool:
        """Whether it is a step in the ladder of loads; storms, the removal of things and lower loads after the last
        are none."""
        return self.kind not in ("storm", "destroy", "recover")

    def overlaps(self, begin: float, end: float) -> bool:
        """Return whether a span of time overlaps this stage; a stage without an end goes on forever."""
        return begin < (inf if self.end is None else self.end) and end > self.begin

    def response(self, operation: str, outcome: str = "ok") -> Histogram:
        """Return the response times of one operation and outcome (empty if there are none)."""
        return self.histograms.get(tag(operation, outcome)) or Histogram()

    def service(self, operation: str) -> Histogram:
        """Return the service times of the successes of one operation (empty if there are none)."""
        return self.histograms.get(tag(operation, service=True)) or Histogram()

    def count(self, operation: str, outcome: str = "ok") -> int:
        """Return how often an operation ended with an outcome in this stage."""
        found = self.histograms.get(tag(operation, outcome))
        return found.total if found else 0

    def attempts(self, operation: str) -> int:
        """Return how often an operation ended, without denied claims and calls refused by a rate limit."""
        return self.count(operation) + self.failures(operation)

    def failures(self, operation: str) -> int:
        """Return how often an operation was lost, timed out or ended in an error."""
        return sum(self.count(operation, outcome) for outcome in FAILURES)

    def waited(self, operation: str) -> tuple[str, ...]:
        """Return the outcomes of an operation whose times are its cost in this stage; see waited_outcomes."""
        return waited_outcomes(self.histograms, operation, Histogram.merged)

    def served(self, operation: str) -> tuple[int, float] | None:
        """Return the successes during the hold, and its seconds; None if there was no hold, or the clock is unknown.

        Operations that connect, make or remove things are over by then. For those, the successes until the hold began
        count; None means that the stage needed none of them.
        """
        held = self.held.get(tag(operation))
        during_hold = held.total if held else 0
        if operation in BRINGING_UP:
            if self.hold_begin is None or self.hold_begin <= self.begin or not self.attempts(operation):
                return None
            return self.count(operation) - during_hold, self.hold_begin - self.begin
        if self.hold_begin is None or self.end is None or self.end <= self.hold_begin:
            return None
        return during_hold, self.end - self.hold_begin

    def throughput(self, operation: str) -> float | None:
        """Return the successes per second; None where `served` has none."""
        found = self.served(operation)
        return found[0] / found[1] if found is not None else None


def stages_of(workers: Sequence[WorkerData], growth_parts: int) -> list[StageResult]:
    """Return the stages of a run, ascending; the growth of each has at most this many parts."""
    stages = _joined(workers)
    _set_gauges(stages, workers)
    _set_growth(stages, workers, growth_parts)
    return stages


def _joined(workers: Sequence[WorkerData]) -> list[StageResult]:
    """Join the workers' marks: a stage begins when the first worker begins it and is held when all hold it.

    A stage is left out if no worker has its begin on record (because the line is damaged).
    """
    found: dict[int, StageResult] = {}
    for worker in workers:
        for mark in worker.stages:
            if mark["phase"] == "begin":
                number, t = int(mark["stage"]), float(mark["t"])
                stage = found.setdefault(number, StageResult(number, mark["size"], mark["kind"], begin=t))
                stage.begin = min(stage.begin, t)
    never_ended: set[int] = set()
    for worker in workers:
        still_open: set[int] = set()
        drained: set[int] = set()
        for mark in worker.stages:
            number, t, phase = int(mark["stage"]), float(mark["t"]), mark["phase"]
            stage = found.get(number)
            if stage is None:
                continue
            if phase == "begin":
                still_open.add(number)
            elif phase == "hold":
                stage.hold_begin = max(stage.hold_begin or 0.0, t)
            else:
                if number not in drained:
                    stage.end = max(stage.end or 0.0, t)
                if phase == "drain":
                    drained.add(number)
                else:
                    still_open.discard(number)
        never_ended |= still_open
        for (number, holding, tag_name), parts in worker.stage_counts.items():
            stage = found.get(number)
            if stage is None:
                continue
            for into in (stage.histograms, stage.held) if holding else (stage.histograms,):
                for slots, counts in parts:
                    into.setdefault(tag_name, Histogram()).counts[slots] += counts
    for number in never_ended:
        found[number].end = None  # one of the workers never ended it
    return [found[number] for number in sorted(found)]


def _set_gauges(stages: Iterable[StageResult], workers: Iterable[WorkerData]) -> None:
    """Set the gauges of stages, from each worker's notes on its phases or the medians of its ticks
    (phase_medians)."""
    by_number = {stage.number: stage for stage in stages}
    for worker in workers:
        told = [mark for mark in worker.stages if _has_gauges(mark)]
        found = [(mark, mark["gauges"]) for mark in told] or phase_medians(worker.stages, worker.ticks)
        for mark, medians in found:
            stage = by_number.get(int(mark["stage"]))
            if stage is not None:
                stage.gauges = add_gauges(stage.gauges, medians)


def _has_gauges(mark: Mapping[str, Any]) -> bool:
    """Return whether a mark has gauges: a unit's marks do, because its ticks are too far apart for medians."""
    gauges = mark.get("gauges")
    return isinstance(gauges, dict) and all(
        is_number(cast(dict[str, Any], gauges).get(name)) for name in GAUGES
    )


def _set_growth(stages: Sequence[StageResult], workers: Sequence[WorkerData], most: int) -> None:
    """Set what all workers held while each stage was brought up, in at most this many parts.

    Workers tick at a stage's marks, so the first and last values are exact. A stage that was never up grew until its
    end, or until the last tick.
    """
    ticks = [
        (
            np.asarray([tick["t"] for tick in worker.ticks], dtype=np.float64),
            np.asarray([tick["held"] for tick in worker.ticks], dtype=np.float64),
        )
        for worker in workers
        if worker.ticks
    ]
    last = max((float(times[-1]) for times, _ in ticks), default=0.0)
    for stage in stages:
        until = next((t for t in (stage.hold_begin, stage.end) if t is not None), last)
        if until <= stage.begin or not ticks:
            continue
        parts = int((until - stage.begin) / _GROWTH_SECONDS)
        moments = np.linspace(stage.begin, until, 1 + min(max(parts, 1), most))
        held = np.sum([np.interp(moments, times, values, left=0.0) for times, values in ticks], axis=0)
        stage.growth = [(float(t), float(there)) for t, there in zip(moments, held, strict=True)]
