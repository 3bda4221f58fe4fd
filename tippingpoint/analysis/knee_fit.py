"""Weighs the possible shapes of a latency curve, with and without a knee, against each other.

Log latency over log load is one of three shapes:

- a straight line: a power law, flat if its exponent is 0. It has no knee;
- a hinge: a plateau, and a line that rises from the knee (D. J. Hudson, JASA 61 (1966) 1097);
- the latency of an M/M/1 queue, which grows as 1 / (1 - load / capacity). Its knee is at half its capacity, where
  latency is twice that of an idle queue.

Line and hinge may end in a ceiling, such as a timeout, that begins at one of the loads measured. Each load deviates
from the shape for two reasons: it has a limited number of samples, and stages differ by about `TYPICAL_SCATTER` for no
apparent reason. One load may be an outlier, which is far off.

The unknowns (the shape, its knee, the capacity, the scatter, the outlier) have priors and are weighed on a grid. Level
and rise of a line are integrated in closed form (with a normal prior for the rise and a flat one for the level; see C.
M. Bishop, Pattern Recognition and Machine Learning, 2006, 3.5). The weights are the chances of each combination, given
the model. No random numbers are used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tippingpoint.rundir.histogram import FloatArray

RISE = 2.0
"""The least growth of latency within the loads measured that counts as a knee: that of an M/M/1 queue at its knee."""
TYPICAL_SCATTER = 0.1
"""The prior standard deviation of log latency from stage to stage: 10 %."""

_SCATTERS: FloatArray = np.asarray([0.05, 0.08, 0.125, 0.2, 0.32, 0.5])
_SCATTER_UNSURE = 0.7
"""The standard deviation of the log of the scatter."""
_OUTLIER = 1.5
"""The standard deviation of an outlier's log latency: a factor of 4.5."""
_OUTLIER_CHANCE = 0.02
"""The chance of each load being an outlier."""
_LOG_RISE = 4.0
"""The prior standard deviation of the log growth over all loads."""
_HINGE_CHANCE = 0.3
_QUEUE_CHANCE = 0.1
_CEILING_CHANCE = 0.2
"""The chance that a hinge ends in a ceiling."""
_STRAIGHT_CEILING_CHANCE = 0.05
"""The same for a line: a target that reaches its timeout usually started from a plateau."""
_AT_THE_EDGE = 0.3
"""How likely a knee is between the two smallest or the two largest loads, relative to any other pair. There, only a
single load shows the plateau or the rise."""
_POSITIONS = 16
"""The number of candidate knees between each pair of neighbouring loads."""
_CAPACITIES = 40


@dataclass(frozen=True)
class Fit:
    """What is known about a curve. Loads and latencies are logs."""

    chance: float
    """The chance (0..1) that it has a knee."""
    line_rise: float
    """Growth from the smallest to the largest load if there is no knee."""
    knee: float
    """The median of the knee, if there is one; so are the following."""
    low: float
    high: float
    """The ends of the knee's 95 % interval."""
    at_knee: float
    """How far latency at the knee is above the plateau: log 2 if a queue is likelier, 0 if a hinge is."""
    plateau: float
    slope: float
    scatter: float
    """The standard deviation of stages around the shape."""


@dataclass(frozen=True)
class _Family:
    """Variants of one shape, one per row of `log_chance`; its columns are combinations of outlier and scatter."""

    log_chance: FloatArray
    knee: FloatArray
    plateau: FloatArray
    """Of each combination."""
    rise: FloatArray
    """Growth over all loads, for each combination."""
    slope: FloatArray
    """Of each combination."""


@dataclass(frozen=True)
class _Noise:
    """Combinations of outlier and scatter: one per row of `weights`, which has a column per load."""

    weights: FloatArray
    """One over the variance."""
    log_prior: FloatArray
    scatter: FloatArray


def fit_curve(log_load: FloatArray, curve: FloatArray, sampling: FloatArray) -> Fit:
    """Weigh the shapes of one curve: log latency at ascending log loads, four or more.

    `sampling` is the variance of each latency due to sampling alone.
    """
    noise = _noise(sampling)
    bends, shapes, ends, prior = _hinges(log_load)
    hinge = _lines(noise, curve, shapes, prior + np.log(_HINGE_CHANCE), least=float(np.log(RISE)))
    hinge = _Family(hinge.log_chance, bends, hinge.plateau, hinge.rise, hinge.slope / (ends - bends)[:, None])
    queue = _queues(noise, log_load, curve)
    straight = _straights(noise, log_load, curve)
    most = max(float(family.log_chance.max()) for family in (hinge, queue, straight))
    hinge_is, queue_is, straight_is = (
        np.exp(family.log_chance - most) for family in (hinge, queue, straight)
    )
    bent = float(hinge_is.sum() + queue_is.sum())
    chance = bent / (bent + float(straight_is.sum()))
    knees = np.concatenate((hinge.knee, queue.knee))
    of_knee = np.concatenate((hinge_is.sum(axis=1), queue_is.sum(axis=1)))
    low, middle, high = _quantiles(knees, of_knee, [0.025, 0.5, 0.975])
    all_is = np.concatenate((hinge_is, queue_is))
    (slope,) = _quantiles(np.concatenate((hinge.slope, queue.slope)).ravel(), all_is.ravel(), [0.5])
    plateau = float((all_is * np.concatenate((hinge.plateau, queue.plateau))).sum() / all_is.sum())
    return Fit(
        chance=chance,
        line_rise=float((straight_is * straight.rise).sum() / straight_is.sum()),
        knee=middle,
        low=low,
        high=high,
        at_knee=float(np.log(2.0)) if queue_is.sum() > hinge_is.sum() else 0.0,
        plateau=plateau,
        slope=slope,
        scatter=float((all_is.sum(axis=0) * noise.scatter).sum() / all_is.sum()),
    )


def _noise(sampling: FloatArray) -> _Noise:
    loads = sampling.size
    prior = -0.5 * (np.log(_SCATTERS / TYPICAL_SCATTER) / _SCATTER_UNSURE) ** 2
    prior -= np.log(np.exp(prior).sum())
    outliers = np.vstack((np.zeros(loads), np.eye(loads) * _OUTLIER**2))
    none = np.log1p(-_OUTLIER_CHANCE) * loads
    odds = np.log(_OUTLIER_CHANCE / (1 - _OUTLIER_CHANCE))
    variances = sampling + _SCATTERS[:, np.newaxis, np.newaxis] ** 2 + outliers
    log_prior = prior[:, np.newaxis] + none + odds * (np.arange(loads + 1) > 0)
    scatter = np.repeat(_SCATTERS, loads + 1)
    return _Noise(1 / variances.reshape(-1, loads), log_prior.ravel(), scatter)


def _hinges(log_load: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return for each hinge its knee, its shape (0 on the plateau, 1 where its rise ends), that end, and its prior."""
    steps = (np.arange(_POSITIONS) + 0.5) / _POSITIONS
    bends = (log_load[:-1, np.newaxis] + np.diff(log_load)[:, np.newaxis] * steps).ravel()
    last = log_load.size - 1
    likely = np.ones((last, _POSITIONS))
    likely[[0, -1]] = _AT_THE_EDGE
    found: list[tuple[FloatArray, FloatArray, FloatArray, FloatArray]] = []
    for ceiling in range(1, last + 1):
        some = bends[: ceiling * _POSITIONS]
        end = log_load[ceiling]
        shape = np.maximum(np.minimum(log_load, end) - some[:, np.newaxis], 0.0) / (end - some)[:, np.newaxis]
        chance = 1 - _CEILING_CHANCE if ceiling == last else _CEILING_CHANCE / (last - 1)
        share = likely.ravel()[: some.size] / likely[:ceiling].sum()
        found.append((some, shape, np.full(some.size, end), np.log(chance * share)))
    knees, shapes, ends, priors = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return knees, shapes, ends, priors


def _straights(noise: _Noise, log_load: FloatArray, curve: FloatArray) -> _Family:
    last = log_load.size - 1
    ends = log_load[1:, np.newaxis]
    shapes = (np.minimum(log_load, ends) - log_load[0]) / (ends - log_load[0])
    prior = np.full(last, np.log(_STRAIGHT_CEILING_CHANCE / (last - 1)))
    prior[-1] = np.log(1 - _STRAIGHT_CEILING_CHANCE)
    return _lines(noise, curve, shapes, prior + np.log(1 - _HINGE_CHANCE - _QUEUE_CHANCE), least=None)


def _lines(
    noise: _Noise, curve: FloatArray, shapes: FloatArray, prior: FloatArray, *, least: float | None
) -> _Family:
    """Weigh level + rise * shape for each of `shapes`. The rise is at least `least`, or any if that is None."""
    weights = noise.weights.T
    total = weights.sum(axis=0)
    level = curve @ weights / total
    mean = shapes @ weights / total
    strength = shapes**2 @ weights - mean**2 * total + 1 / _LOG_RISE**2
    rise = ((shapes * curve) @ weights - mean * level * total) / strength
    misfit = curve**2 @ weights - level**2 * total - rise**2 * strength
    log_chance = (
        noise.log_prior
        + prior[:, np.newaxis]
        + 0.5 * (np.log(weights).sum(axis=0) - np.log(total))
        - 0.5 * misfit
        - 0.5 * np.log(strength * _LOG_RISE**2)
    )
    if least is not None:
        log_chance += _log_normal_below((rise - least) * np.sqrt(strength))
        log_chance -= _log_normal_below(np.asarray(-least / _LOG_RISE))
        rise = np.maximum(rise, least)
    return _Family(log_chance, np.zeros(prior.size), level - rise * mean, rise, rise)


def _queues(noise: _Noise, log_load: FloatArray, curve: FloatArray) -> _Family:
    """Weigh M/M/1 queues by their capacity; their latency at least doubles within the loads."""
    load = np.exp(log_load)
    largest = (RISE * load[-1] - load[0]) / (RISE - 1)
    farthest = float(largest / load[-1]) - 1
    beyond = 0.01 * (farthest / 0.01) ** (np.arange(_CAPACITIES) / (_CAPACITIES - 1))
    capacity = load[-1] * (1 + beyond)
    shapes = -np.log1p(-load / capacity[:, np.newaxis])
    left = curve - shapes
    weights = noise.weights.T
    total = weights.sum(axis=0)
    level = left @ weights / total
    misfit = left**2 @ weights - level**2 * total
    log_chance = (
        noise.log_prior
        + np.log(_QUEUE_CHANCE / _CAPACITIES)
        + 0.5 * (np.log(weights).sum(axis=0) - np.log(total))
        - 0.5 * misfit
    )
    slope = (shapes[:, -1] - shapes[:, -2]) / (log_load[-1] - log_load[-2])
    flat = np.zeros_like(level)
    return _Family(
        log_chance,
        np.log(capacity / 2),
        level,
        (shapes[:, -1] - shapes[:, 0])[:, np.newaxis] + flat,
        slope[:, np.newaxis] + flat,
    )


def _log_normal_below(z: FloatArray) -> FloatArray:
    """Return the log of the normal distribution function, to 0.0002 (E. Page, Applied Statistics 26 (1977) 75)."""
    return -np.logaddexp(0.0, -2 * np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))


def _quantiles(values: FloatArray, weights: FloatArray, shares: list[float]) -> list[float]:
    order = np.argsort(values)
    so_far = np.cumsum(weights[order])
    ascending = values[order]
    places = (int(np.count_nonzero(so_far < share * so_far[-1])) for share in shares)
    return [float(ascending[min(place, values.size - 1)]) for place in places]
