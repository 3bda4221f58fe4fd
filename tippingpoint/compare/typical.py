"""Compares how long a typical call took over all loads that every run held: one figure for each run.

A percentile at one load scatters widely; the mean of all latencies scatters less. A target with less capacity answers
later at each load.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from statistics import fmean

from tippingpoint.compare.ramp import Ramp, alike
from tippingpoint.compare.repeats import Figure
from tippingpoint.compare.scatter import Measured

Part = tuple[int, str]
"""The number of a step, and an operation."""


def parts_of(ramps: Sequence[Ramp], held: Container[float]) -> list[Part]:
    """Return what all runs measured at held loads, among the steps that are alike."""
    return [
        (number, name)
        for number in range(alike(ramps))
        if ramps[0][number].size in held
        for name in ramps[0][number].calls
        if all(name in ramp[number].calls for ramp in ramps)
    ]


def typical_figure(parts: Sequence[Part], before: Sequence[Ramp], after: Sequence[Ramp]) -> Figure:
    """Return the geometric mean of the latencies over all parts, which have equal weight."""
    values = [
        [fmean(ramp[step].calls[name][0] for step, name in parts) for ramp in of] for of in (before, after)
    ]
    variances = [ramp[step].calls[name][1] for ramp in (*before, *after) for step, name in parts]
    return Figure(Measured("typical", values[0], values[1], fmean(variances) / len(parts)), rate=False)
