"""Finds the knee: the load at which an operation's latency leaves its plateau.

Three shapes are fitted to log latency over log load: a plateau with a rising line (the hinge regression of D. J.
Hudson, JASA 61 (1966) 1097), the same under a ceiling, and the M/M/1 queue. There is a knee if

- the fitted shape rises at least RISE times above its plateau within the loads measured. An M/M/1 queue does so
  at three quarters of its capacity. Random differences between stages stay below;
- it leaves at most MISFIT of what a straight power law leaves unexplained. Latency that grows in step with the load
  from the start has no plateau to leave;
- at least CONFIDENT of the bootstrap replicates agree. Each resamples the histograms and adds the scatter of the
  stages around the fit, because samples of one stage come in bursts and are not independent.

An operation may be past its knee at the smallest load measured. Most calls then wait in a queue, while some find it
empty and show the time of an unloaded call. The spread within that stage shows this (see QUEUEING).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tippingpoint.analysis.latency import freed_costs, resampled
from tippingpoint.rundir.histogram import FloatArray, Histogram
from tippingpoint.rundir.stages import StageResult
from tippingpoint.util.text import show_calls, show_size

LEAST_STAGES = 4
LEAST_SAMPLES = 3
RISE = 4.0
MISFIT = 0.35
CONFIDENT = 0.8
CEILING_WORTH = 0.5
"""A ceiling above the rise is one more parameter, so it must remove at least this share of the misfit."""
QUEUEING = 20.0
"""The least ratio of the median to the 10th percentile past the knee. An exponential queue gives 6.6 at any load."""
STILL_RISING = 1.5
"""The least growth from the smallest to the largest load if the smallest is past the knee already."""

_QUARTILES = [25.0, 50.0, 75.0]
_ROUGH = 0.1
"""The standard deviation of log latency below which a curve's shape is not worth explaining: 10 %."""
_BEYOND = float(np.log(1.4))
"""The log latency above the plateau from which a load is beyond it, even if stages scatter more."""
_REPLICATES = 400
_POSITIONS = 32
"""The number of positions tried for the bend between each pair of neighbouring loads."""


@dataclass(frozen=True)
class Knee:
    """The load at which an operation's latency leaves its plateau. Loads are in the manifest's load unit."""

    operation: str
    at: float
    """The load at the bend: the best estimate within `low`..`high`."""
    low: float
    high: float
    """95 % bootstrap interval of the load; at least the bracket of the two stages around the bend."""
    confidence: float
    """Share (0..1) of bootstrap replicates in which there is a knee."""
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
    """Growth beyond the knee: log latency per log load (1.0: in step with the load)."""


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
    observed = np.asarray([_typical(np.asarray([load.latencies.percentiles(_QUARTILES)])) for load in loads])
    curve = observed[:, 0]
    fit = _hinge(log_load, curve[np.newaxis, :])
    drawn = np.stack(
        [_typical(resampled(load.latencies, _QUARTILES, _REPLICATES, random)) for load in loads], axis=1
    )
    sampling = np.var(drawn, axis=0).mean()
    free = max(1, len(loads) - 3)
    scatter = np.sqrt(max(0.0, float(fit.misfit[0]) / free - sampling))
    replicates = _hinge(log_load, drawn + random.normal(0.0, scatter, drawn.shape))
    confidence = float(replicates.is_knee.mean())
    if not fit.is_knee[0] or confidence < CONFIDENT:
        return _why_none(fit, confidence, loads)
    at = max(float(np.exp(fit.bend[0])), float(loads[0].size))
    found = np.exp(replicates.bend[replicates.is_knee])
    last = max(place for place, load in enumerate(loads) if load.size <= at)
    # If the knee is at a measured load, the fitted bend is a little below or above it. That load's latency decides.
    least = fit.at_bend[0] + min(float(scatter), _BEYOND)
    while last + 2 < len(loads) and curve[last + 1] - fit.plateau[0] <= least:
        last += 1
        at = float(loads[last].size)
    after, before = loads[last], loads[last + 1]
    return Knee(
        operation=operation,
        at=at,
        low=min(float(np.quantile(found, 0.025)), float(after.size)),
        high=max(float(np.quantile(found, 0.975)), float(before.size)),
        confidence=confidence,
        after_stage=after.stage,
        before_stage=before.stage,
        after_size=after.size,
        before_size=before.size,
        plateau_us=float(np.exp(fit.plateau[0])),
        beyond_us=float(np.exp(curve[-1])),
        slope=float(fit.slope[0]),
    )


def _loads(stages: Iterable[StageResult], operation: str) -> list[_Load]:
    found: dict[float, _Load] = {}
    for stage in stages:
        latencies = freed_costs(stage, operation)  # a bend caused by the generator is not the target's
        known = found.get(stage.size)
        if known is not None:
            known.latencies.add(latencies)
        else:
            found[stage.size] = _Load(stage.size, stage.number, latencies)
    enough = [found[size] for size in sorted(found) if found[size].latencies.total >= LEAST_SAMPLES]
    return [load for load in enough if load.size > 0]


def _typical(quartiles: FloatArray) -> FloatArray:
    """Return the mean of the logs of the quartiles, which neither a burst nor a few quick answers decide alone."""
    return np.log(np.maximum(quartiles, 1.0)).mean(axis=1)


@dataclass(frozen=True)
class _Hinge:
    """Fits of many curves at once, one entry per curve. All values are logs."""

    bend: FloatArray
    plateau: FloatArray
    slope: FloatArray
    rise: FloatArray
    at_bend: FloatArray
    """How far above the plateau the bend itself is."""
    misfit: FloatArray
    straight_misfit: FloatArray

    def replaced(self, where: np.ndarray[tuple[int], np.dtype[np.bool_]], other: _Hinge) -> _Hinge:
        """Return these fits, with the entries of `other` where `where` is true."""

        def pick(new: FloatArray, old: FloatArray) -> FloatArray:
            return np.where(where, new, old)

        return _Hinge(
            bend=pick(other.bend, self.bend),
            plateau=pick(other.plateau, self.plateau),
            slope=pick(other.slope, self.slope),
            rise=pick(other.rise, self.rise),
            at_bend=pick(other.at_bend, self.at_bend),
            misfit=pick(other.misfit, self.misfit),
            straight_misfit=self.straight_misfit,
        )

    @property
    def is_knee(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return (self.rise >= np.log(RISE)) & self.bends

    @property
    def bends(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether the hinge explains more than a straight power law."""
        return self.misfit <= MISFIT * self.straight_misfit


def _hinge(log_load: FloatArray, curves: FloatArray) -> _Hinge:
    """Fit plateau and rise to each row of `curves`, and a ceiling where that fits far better.

    A timeout of the target puts a ceiling on a knee. The ceiling begins at one of the loads measured, below the
    largest. Misfits are sums of squares, and at least the roughness.
    """
    straight = log_load - log_load.mean()
    centred = curves - curves.mean(axis=1, keepdims=True)
    rough = log_load.size * _ROUGH**2
    straight_misfit = (centred**2).sum(axis=1) - (centred @ straight) ** 2 / (straight**2).sum() + rough
    best = _capped(log_load, curves, log_load.size - 1, straight_misfit)
    worth = CEILING_WORTH * best.misfit
    for ceiling in range(1, log_load.size - 1):
        capped = _capped(log_load, curves, ceiling, straight_misfit)
        better = (capped.misfit < worth) & (capped.misfit < best.misfit)
        best = best.replaced(better, capped)
    queue = _queue(log_load, curves, straight_misfit)
    return best.replaced(queue.misfit < best.misfit, queue)


def _queue(log_load: FloatArray, curves: FloatArray, straight_misfit: FloatArray) -> _Hinge:
    """Fit the best M/M/1 queue, whose latency grows as 1 / (1 - load / capacity). Its bend is where that is 2.

    It has one parameter less than a hinge, so a better fit is reason enough to prefer it.
    """
    rough = log_load.size * _ROUGH**2
    load = np.exp(log_load)
    capacity: FloatArray = load[-1] * (1 + 10 ** (np.arange(60) / 24 - 2))
    growth = -np.log1p(-load / capacity[:, np.newaxis])
    plateaus = curves.mean(axis=1, keepdims=True) - growth.mean(axis=1)
    variances = np.stack([(curves - shape).var(axis=1) for shape in growth])
    chosen = variances.argmin(axis=0)
    row = np.arange(curves.shape[0], dtype=np.int64)
    return _Hinge(
        bend=np.clip(np.log(capacity[chosen] / 2), log_load[0], log_load[-2]),
        plateau=plateaus[row, chosen],
        slope=(growth[chosen, -1] - growth[chosen, -2]) / (log_load[-1] - log_load[-2]),
        rise=growth[chosen, -1] - growth[chosen, 0],
        at_bend=np.full(row.size, np.log(2.0), dtype=np.float64),
        misfit=variances[chosen, row] * log_load.size + rough,
        straight_misfit=straight_misfit,
    )


def _capped(log_load: FloatArray, curves: FloatArray, ceiling: int, straight_misfit: FloatArray) -> _Hinge:
    """Fit the best hinge that stops rising at the load with index `ceiling`."""
    rough = log_load.size * _ROUGH**2
    load = np.minimum(log_load, log_load[ceiling])
    bends: FloatArray = load[0] + (load[-1] - load[0]) * np.arange(_POSITIONS * ceiling) / (
        _POSITIONS * ceiling
    )
    rises = np.maximum(load - bends[:, np.newaxis], 0.0)
    rise_centred = rises - rises.mean(axis=1, keepdims=True)
    strength = (rise_centred**2).sum(axis=1)
    means = curves.mean(axis=1)
    centred = curves - means[:, np.newaxis]
    total = (centred**2).sum(axis=1)
    slopes = np.maximum((centred @ rise_centred.T) / strength, 0.0)
    misfits = total[:, np.newaxis] - slopes**2 * strength
    best = misfits.min(axis=1)
    near = misfits <= best[:, np.newaxis] + 0.01 * rough
    # Every bend between two neighbouring loads may fit equally well. The estimate is the middle of the best ones.
    so_far = np.cumsum(near, axis=1)
    chosen = np.argmax(so_far > so_far[:, -1:] // 2, axis=1)
    slope = slopes[np.arange(curves.shape[0]), chosen]
    return _Hinge(
        bend=bends[chosen],
        plateau=means - slope * rises.mean(axis=1)[chosen],
        slope=slope,
        rise=slope * rises[chosen, -1],
        at_bend=0.0 * best,
        misfit=best + rough,
        straight_misfit=straight_misfit,
    )


def _why_none(fit: _Hinge, confidence: float, loads: list[_Load]) -> NoKnee:
    rise = float(np.exp(fit.rise[0]))
    span = f"from {show_size(loads[0].size)} to {show_size(loads[-1].size)}"
    if rise < RISE:
        grew = f"it rises {rise:.2g} times" if rise >= 1.25 else "it is flat"
        return NoKnee(f"latency never left its plateau: {grew} {span} (a knee takes {RISE:g} times)", True)
    if not fit.bends[0]:
        return NoKnee(f"latency grows all the way {span}, without a plateau to leave")
    return NoKnee(f"too uncertain: only {confidence:.0%} of bootstrap replicates show a knee")


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
