"""Finds the knee: the load at which an operation's latency leaves its plateau.

The curve of a run is the typical latency of each load. knee_fit.py computes the chance that the curve has a knee, its
place, and its interval. There is a knee if that chance is at least CONFIDENT.

An operation may be past its knee at the smallest load measured. Most calls then wait in a queue, while some find it
empty and show the time of an unloaded call. The spread within that stage shows this (see QUEUEING).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tippingpoint.analysis.knee_fit import RISE, Fit, fit_curve
from tippingpoint.analysis.latency import freed_costs, resampled
from tippingpoint.rundir.histogram import FloatArray, Histogram
from tippingpoint.rundir.stages import StageResult
from tippingpoint.util.numbers import show_rounded
from tippingpoint.util.text import show_calls, show_size

LEAST_STAGES = 4
LEAST_SAMPLES = 3
CONFIDENT = 0.8
FEW_LOADS = 6
CONFIDENT_OF_FEW = 0.9
"""The same with fewer than FEW_LOADS loads, which hardly show how much they scatter."""
QUEUEING = 20.0
"""The least ratio of the median to the 10th percentile past the knee. An exponential queue gives 6.6 at any load."""
STILL_RISING = 1.5
"""The least growth from the smallest to the largest load if the smallest is already past the knee."""

_QUARTILES = [25.0, 50.0, 75.0]
_BEYOND = float(np.log(1.4))
"""A load with a log latency this far above the plateau is beyond it, even if stages scatter more."""
_REPLICATES = 100


@dataclass(frozen=True)
class Knee:
    """The load at which an operation's latency leaves its plateau. Loads are in the manifest's load unit."""

    operation: str
    at: float
    """The load at the bend: the best estimate within `low`..`high`."""
    low: float
    high: float
    """The 95 % interval of the load; at least the bracket of the two stages around the knee."""
    confidence: float
    """The chance (0..1) that there is a knee, given the model of knee_fit.py."""
    after_stage: int | None
    """Number of the last stage on the plateau; None if the smallest load measured was already beyond it."""
    before_stage: int
    """Number of the first stage beyond the knee."""
    after_size: float | None
    """Size of `after_stage`."""
    before_size: float
    """Size of `before_stage`."""
    plateau_us: float
    """Typical latency on the plateau, microseconds."""
    beyond_us: float
    """Typical latency at the largest load, microseconds."""
    slope: float
    """Growth beyond the knee: log latency per log load (1.0: proportional to the load)."""


@dataclass(frozen=True)
class NoKnee:
    """Why an operation has no knee; `on_plateau` if its latency stayed on its plateau."""

    reason: str
    on_plateau: bool = False


@dataclass(frozen=True)
class _Load:
    size: float
    stage: int
    latencies: Histogram


def find_knee(stages: Iterable[StageResult], operation: str) -> Knee | NoKnee:
    """Return the knee of one operation, or why there is none. The result is deterministic.

    `stages` may have any order. Stages of the same size are taken together; those of size 0 are ignored. The caller
    leaves out storms and removals.
    """
    loads = _loads(stages, operation)
    if not loads:
        return NoKnee(f"no load without a fault has at least {LEAST_SAMPLES} {show_calls(operation)}")
    random = np.random.default_rng(20190206)
    already = _already_beyond(loads, operation, random)
    if already is not None:
        return already
    if len(loads) < LEAST_STAGES:
        return NoKnee(
            f"too few loads: {len(loads)} with at least {LEAST_SAMPLES} {show_calls(operation)} each, "
            f"{LEAST_STAGES} are needed"
        )
    log_load = np.log([load.size for load in loads])
    curve = np.asarray([_typical(np.asarray([load.latencies.percentiles(_QUARTILES)]))[0] for load in loads])
    sampling = np.asarray(
        [_typical(resampled(load.latencies, _QUARTILES, _REPLICATES, random)).var() for load in loads]
    )
    fit = fit_curve(log_load, curve, sampling)
    if fit.chance < (CONFIDENT if len(loads) >= FEW_LOADS else CONFIDENT_OF_FEW):
        return _why_none(fit, loads)
    at = float(np.clip(np.exp(fit.knee), loads[0].size, loads[-1].size))
    last = max(place for place, load in enumerate(loads[:-1]) if load.size <= at)
    # If the knee is at a measured load, the estimate is a little below or above it. That load's latency decides.
    least = fit.at_knee + min(fit.scatter, _BEYOND)
    while last + 2 < len(loads) and curve[last + 1] - fit.plateau <= least:
        last += 1
        at = float(loads[last].size)
    after, before = loads[last], loads[last + 1]
    if curve[-1] <= fit.plateau:
        return NoKnee(
            f"the typical latency at {show_size(loads[-1].size)} is no longer than on the plateau: it bends back"
        )
    return Knee(
        operation=operation,
        at=min(at, float(np.nextafter(before.size, 0.0))),
        low=min(float(np.exp(fit.low)), float(after.size)),
        high=max(float(np.exp(fit.high)), float(before.size)),
        confidence=fit.chance,
        after_stage=after.stage,
        before_stage=before.stage,
        after_size=after.size,
        before_size=before.size,
        plateau_us=float(np.exp(fit.plateau)),
        beyond_us=float(np.exp(curve[-1])),
        slope=fit.slope,
    )


def _loads(stages: Iterable[StageResult], operation: str) -> list[_Load]:
    found: dict[float, _Load] = {}
    answered: set[float] = set()
    """The loads at which any call succeeded. Beyond them the duration of failures is arbitrary, and not a latency."""
    for stage in stages:
        if stage.count(operation):
            answered.add(stage.size)
        latencies = freed_costs(stage, operation)  # a bend caused by the generator is not the target's
        known = found.get(stage.size)
        if known is not None:
            known.latencies.add(latencies)
        else:
            found[stage.size] = _Load(stage.size, stage.number, latencies)
    enough = [found[size] for size in sorted(found) if found[size].latencies.total >= LEAST_SAMPLES]
    while enough and enough[-1].size not in answered:
        enough.pop()
    return [load for load in enough if load.size > 0]


def _typical(quartiles: FloatArray) -> FloatArray:
    """Return the mean of the logs of the quartiles, which neither a burst nor a few quick answers dominate."""
    return np.log(np.maximum(quartiles, 1.0)).mean(axis=1)


def _why_none(fit: Fit, loads: list[_Load]) -> NoKnee:
    rise = float(np.exp(fit.line_rise))
    span = f"from {show_size(loads[0].size)} to {show_size(loads[-1].size)}"
    if fit.chance >= 1 - CONFIDENT:
        return NoKnee(
            f"too uncertain: the chance that there is a knee is {show_rounded(100 * fit.chance, 2)} %"
        )
    if rise < RISE:
        grew = f"it rises {show_rounded(rise, 2)} times" if rise >= 1.25 else "it is flat"
        return NoKnee(
            f"the typical latency never left its plateau: {grew} {span} (a knee takes {show_size(RISE)} times)",
            True,
        )
    return NoKnee(f"the typical latency grows all the way {span}, without a plateau to leave")


def _already_beyond(loads: list[_Load], operation: str, random: np.random.Generator) -> Knee | None:
    """Return a knee below the smallest load measured, found from the calls that did not have to queue; else None."""
    if len(loads) < 2:
        return None
    first, last = loads[0], loads[-1]

    def beyond(at_first: FloatArray, at_last: FloatArray) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return (at_first[:, 1] >= QUEUEING * at_first[:, 0]) & (
            at_last[:, 1] >= STILL_RISING * at_first[:, 1]
        )

    wanted = [10.0, 50.0]
    now_first, now_last = (
        np.asarray([load.latencies.percentiles(wanted)], dtype=float) for load in (first, last)
    )
    if not beyond(now_first, now_last)[0]:
        return None
    confidence = float(
        beyond(
            resampled(first.latencies, wanted, _REPLICATES, random),
            resampled(last.latencies, wanted, _REPLICATES, random),
        ).mean()
    )
    if confidence < CONFIDENT:
        return None
    return Knee(
        operation=operation,
        at=float(first.size),
        low=0.0,
        high=float(first.size),
        confidence=confidence,
        after_stage=None,
        before_stage=first.stage,
        after_size=None,
        before_size=first.size,
        plateau_us=float(now_first[0, 0]),
        beyond_us=float(now_last[0, 1]),
        slope=float(np.log(now_last[0, 1] / now_first[0, 1]) / np.log(last.size / first.size)),
    )
