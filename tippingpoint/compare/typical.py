"""Compares how long a typical call took over a whole ramp: one figure of each run, past its cliff too.

A percentile at one load scatters a lot, and so does the step of a ramp at which a run tips. The mean of all latencies
scatters less. A target with less capacity answers later at each load, and past its cliff a queue makes all calls late.
So this one figure shows differences of capacity that no other figure shows.

It counts loads past a cliff too, where other figures are not judged. Calls were answered there, and all runs had the
same ramp so far. It ends where calls failed instead: a target that fails fast is not quicker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.cliff import fault_times
from tippingpoint.analysis.findings import StageFindings
from tippingpoint.analysis.latency import freed_costs
from tippingpoint.compare.repeats import Figure
from tippingpoint.compare.scatter import Measured
from tippingpoint.rundir.histogram import Histogram, middle_values
from tippingpoint.rundir.operations import OWN_CALLS

FEW = 0.01
"""The largest share of an operation's calls that may fail at a load: the others say how long a typical call took."""
_ALIKE_S = 0.5
"""Holds that differ by no more than this are the same: workers learn of their begin and end one after the other."""


@dataclass(frozen=True)
class Step:
    """One step of a ramp at which calls were answered."""

    size: float
    hold: float
    """Seconds for which it was held."""
    calls: dict[str, tuple[float, float]]
    """By operation, the mean of the logarithms of its latencies, and the variance that its samples alone give it."""


Ramp = list[Step]
Part = tuple[int, str]
"""The number of a step, and an operation."""


def ramp_of(analysis: Analysis) -> Ramp:
    """Return the steps of a run before the first one at which calls failed, or which says nothing of the target."""
    run = analysis.run
    if run.manifest.timeline == "order":
        return []  # it is unknown for how long loads were held
    faults = fault_times(run.events)
    operations = [name for name in run.operations if name not in OWN_CALLS]
    ramp: Ramp = []
    for found in analysis.findings.stages:
        stage = found.stage
        disturbed = any(stage.overlaps(begin, until) for begin, until, _ in faults)
        if stage.kind != "ramp" or disturbed or not _is_answered(found, operations):
            break
        measured = {name: freed_costs(stage, name) for name in operations}
        calls = {name: _typical(latencies) for name, latencies in measured.items() if latencies.total}
        ramp.append(Step(stage.size, (stage.end or 0.0) - (stage.hold_begin or 0.0), calls))
    return ramp


def _is_answered(found: StageFindings, operations: Sequence[str]) -> bool:
    stage = found.stage
    if found.cut_short or found.late_by_us or found.leader_changed:
        return False
    return all(stage.failures(name) <= FEW * stage.attempts(name) for name in operations)


def _typical(latencies: Histogram) -> tuple[float, float]:
    slots, counts = latencies.filled()
    logs = np.log(np.maximum(middle_values(slots), 1))
    mean = float((logs * counts).sum() / counts.sum())
    return mean, float(((logs - mean) ** 2 * counts).sum() / counts.sum() ** 2)


def parts_of(ramps: Sequence[Ramp]) -> list[Part]:
    """Return what all runs measured, up to the first step that is not the same for all of them."""
    parts: list[Part] = []
    for number, steps in enumerate(zip(*ramps, strict=False)):
        first = steps[0]
        if any(step.size != first.size or abs(step.hold - first.hold) > _ALIKE_S for step in steps):
            break
        parts += [(number, name) for name in first.calls if all(name in step.calls for step in steps)]
    return parts


def typical_figure(parts: Sequence[Part], before: Sequence[Ramp], after: Sequence[Ramp]) -> Figure:
    """Return the mean over all parts, which count alike: the geometric mean of their latencies."""
    values = [
        [fmean(ramp[step].calls[name][0] for step, name in parts) for ramp in of] for of in (before, after)
    ]
    variances = [ramp[step].calls[name][1] for ramp in (*before, *after) for step, name in parts]
    return Figure(Measured("typical", values[0], values[1], fmean(variances) / len(parts)), rate=False)
