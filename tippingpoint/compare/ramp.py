"""The steps of a run's ramp that describe the target: the rate served at each, and how long a call took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.fault_spans import fault_spans
from tippingpoint.analysis.latency import freed_costs
from tippingpoint.rundir.histogram import Histogram, middle_values
from tippingpoint.rundir.operations import LAUNCHES, OWN_CALLS
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult

FEW = 0.01
"""The largest share of an operation's calls that may fail at a load if the others are to show a typical call."""
_ALIKE_S = 0.5
"""Holds that differ by no more than this are the same: workers learn of their start and end one after the other."""

_CLAIMS = "claims/s"
"""The load that consists of claims. At other loads, claims replace what was lost, and more are not better."""


@dataclass(frozen=True)
class Step:
    """One step of a ramp."""

    size: float
    hold: float
    """How long it was held, in seconds."""
    served: dict[str, tuple[int, float]]
    """For each operation of the offered load, how many calls succeeded, and in how many seconds."""
    calls: dict[str, tuple[float, float]]
    """For each operation, the mean of the logarithms of its latencies, and the variance from sampling alone.

    Empty where calls failed: a target that fails fast is not quicker.
    """


Ramp = list[Step]


def ramp_of(analysis: Analysis) -> Ramp:
    """Return the steps of a run before the first one that is inconclusive about the target.

    Such a step has a fault, may have been limited by the generator itself, or was cut short.
    """
    run = analysis.run
    if run.manifest.timeline == "order":
        return []  # it is unknown how long loads were held
    faults = fault_spans(run.events)
    operations = [name for name in run.operations if name not in OWN_CALLS]
    offered = _offered(run)
    ramp: Ramp = []
    for found in analysis.findings.stages:
        stage = found.stage
        disturbed = any(stage.overlaps(fault.begin, fault.until) for fault in faults)
        unsaid = found.cut_short or found.not_its_doing or found.leader_changed
        if stage.kind != "ramp" or disturbed or unsaid:
            break
        hold = (stage.end or 0.0) - (stage.hold_begin or 0.0)
        ramp.append(Step(stage.size, hold, _served(stage, offered), _calls(stage, operations)))
    return ramp


def alike(ramps: Sequence[Ramp]) -> int:
    """Return how many steps are alike in all runs, up to the first that differs in size or duration of the hold."""
    number = 0
    for steps in zip(*ramps, strict=False):
        first = steps[0]
        if any(step.size != first.size or abs(step.hold - first.hold) > _ALIKE_S for step in steps):
            break
        number += 1
    return number


def _offered(run: RunData) -> Sequence[str]:
    """Return the operations that offer the load, without those that replace what was lost."""
    if run.instances:
        return LAUNCHES  # the steps of a launch may be tried again
    return [name for name in run.own_load if name != "claim" or run.manifest.load_unit == _CLAIMS]


def _served(stage: StageResult, operations: Sequence[str]) -> dict[str, tuple[int, float]]:
    found = {name: stage.served(name) for name in operations if stage.attempts(name)}
    return {name: served for name, served in found.items() if served is not None}


def _calls(stage: StageResult, operations: Sequence[str]) -> dict[str, tuple[float, float]]:
    if any(stage.failures(name) > FEW * stage.attempts(name) for name in operations):
        return {}
    measured = {name: freed_costs(stage, name) for name in operations}
    return {name: _typical(latencies) for name, latencies in measured.items() if latencies.total}


def _typical(latencies: Histogram) -> tuple[float, float]:
    slots, counts = latencies.filled()
    logs = np.log(np.maximum(middle_values(slots), 1))
    mean = float((logs * counts).sum() / counts.sum())
    return mean, float(((logs - mean) ** 2 * counts).sum() / counts.sum() ** 2)
