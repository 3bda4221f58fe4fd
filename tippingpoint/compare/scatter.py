"""Distinguishes a difference between releases from the scatter of their runs: the run is the unit of the statistics.

Each run gives one value for a figure. Runs of one release scatter, and all figures of a run scatter together, because a
busy machine slows all of them. So the figures are tested together, by a rotation test (Langsrud, Statistics and
Computing 15 (2005) 53). If releases do not differ, the difference between them is as long as in any other direction of
the space of runs. Random directions give its distribution, including the correlation of all figures. Three runs of each
are enough, whereas an exact permutation test would have no probability below 0.1. The test is exact for normal values,
and conservative for outliers. The probabilities are those of the largest statistic of all figures (step-down max-T:
Westfall and Young, Resampling-Based Multiple Testing, 1993, section 2.6).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt

import numpy as np

from tippingpoint.analysis.confidence import student_quantile
from tippingpoint.rundir.histogram import FloatArray

ROTATIONS = 3999
"""Random directions; the standard error of a probability of 0.025 is then 0.0025."""
BORROWED = 4.0
"""Degrees of freedom of the scatter that a figure borrows from the figures of its kind; three runs of each give 4."""
_SEED = 20


@dataclass(frozen=True)
class Measured:
    """One figure of each run of two releases, on a scale on which runs scatter equally, such as a logarithm."""

    kind: str
    """Figures of one kind, such as all p99 of one operation, borrow scatter from each other."""
    before: Sequence[float]
    after: Sequence[float]
    floor: float = 0.0
    """The least variance between runs: that of the samples within a run."""


@dataclass(frozen=True)
class Tested:
    """The difference in one figure: the mean of one release's runs minus that of the other's."""

    difference: float
    low: float
    high: float
    """The 95 % interval of this figure alone."""
    probability: float
    """The probability of such a difference in any figure of the family, if releases do not differ at all."""


def tested_together(family: Sequence[Measured], level: float) -> list[Tested]:
    """Test figures of the same runs together. `level` is the confidence of the intervals.

    Without a repeat of either release, nothing is known: probabilities are 1, and intervals are unbounded.
    """
    if not family:
        return []
    if [one.after for one in family] < [one.before for one in family]:
        # Use the same random directions for either order, so that swapping the releases mirrors the result.
        swapped = tested_together([replace(one, before=one.after, after=one.before) for one in family], level)
        return [Tested(-one.difference, -one.high, -one.low, one.probability) for one in swapped]
    before, after = len(family[0].before), len(family[0].after)
    values = np.array([[*one.before, *one.after] for one in family], dtype=np.float64).T
    difference = values[before:].mean(axis=0) - values[:before].mean(axis=0)
    free = before + after - 2
    if free < 1:
        return [Tested(float(one), -inf, inf, 1.0) for one in difference]
    spread = sqrt(1 / before + 1 / after)
    centred = values - values.mean(axis=0)
    squares = (centred**2).sum(axis=0)
    kinds = _same_kind([one.kind for one in family])
    floors = np.array([one.floor for one in family])
    length = difference / spread
    variance = _variance(length, squares, free, kinds, floors)
    observed = _ratio(np.abs(length), variance)
    # The space of runs without their mean; any orthonormal basis will do, because directions are uniform.
    basis = np.linalg.svd(np.eye(before + after) - 1 / (before + after))[0][:, : free + 1]
    directions = np.random.default_rng(_SEED).standard_normal((ROTATIONS, free + 1))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    lengths = directions @ (basis.T @ centred)
    rotated = _ratio(np.abs(lengths), _variance(lengths, squares, free, kinds, floors))
    probabilities = _step_down(observed, rotated)
    reach = student_quantile(free, level) * spread * np.sqrt(variance)
    return [
        Tested(float(one), float(one - far), float(one + far), float(probability))
        for one, far, probability in zip(difference, reach, probabilities, strict=True)
    ]


def _same_kind(kinds: Sequence[str]) -> FloatArray:
    """Return the matrix that averages over the figures of each figure's kind."""
    numbers = np.unique(np.asarray(kinds), return_inverse=True)[1]
    same = (numbers[:, None] == numbers[None, :]).astype(np.float64)
    return same / same.sum(axis=0)


def _variance(
    lengths: FloatArray, squares: FloatArray, free: int, kinds: FloatArray, floors: FloatArray
) -> FloatArray:
    """Return the variance between runs: half a figure's own, half that of its kind, for three runs of each."""
    own = np.maximum(squares - lengths**2, 0.0) / free
    return np.maximum((free * own + BORROWED * (own @ kinds)) / (free + BORROWED), floors)


def _ratio(lengths: FloatArray, variance: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(lengths > 1e-12, lengths / np.sqrt(variance), 0.0)


def _step_down(observed: FloatArray, rotated: FloatArray) -> FloatArray:
    order = np.argsort(-observed, kind="stable")
    # In each rotation, the largest statistic of a figure and all that come after it.
    largest = np.maximum.accumulate(rotated[:, order[::-1]], axis=1)[:, ::-1]
    as_large = (largest >= observed[order] * (1 - 1e-9)).sum(axis=0)
    found = np.empty_like(observed)
    found[order] = np.maximum.accumulate((1 + as_large) / (1 + rotated.shape[0]))
    return found
