"""Regresses the target's resource use in slices of time on what happened in each slice.

Noise in neighbouring slices is correlated: garbage collection or another program runs for a while. So the correlation
is estimated from the residuals (Yule-Walker, with the order of the lowest AIC, at least one). The fit makes the
residuals less correlated than the noise is, which is corrected. Noise may also grow with the load: the likeliest of
three laws weights the slices. The interval is Student's, with the degrees of freedom of the noise (F. E. Satterthwaite,
Biometrics Bulletin 2 (1946) 110). tests/benchmarks/bench_operation_costs.py measures how often it contains the true
value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log

import numpy as np

from tippingpoint.analysis.confidence import student_quantile
from tippingpoint.rundir.histogram import FloatArray

MOST = 120
"""The most slices of a fit. More are joined, because the time of a fit grows with the cube of their number."""
FEWEST = 6
"""The minimum number of slices for each column of a fit."""
_POWERS = (0.0, 0.5, 1.0)
"""The powers of the level with which the noise may grow."""
_FLOOR = 0.02
"""No level counts as less than this share of the largest one, because noise remains while the target is idle."""
_ROUNDS = 3


@dataclass(frozen=True)
class Slices:
    """How much of something a target used in non-overlapping slices of time, in order."""

    begin: FloatArray
    """Seconds since the run's start."""
    end: FloatArray
    amount: FloatArray
    """What was used in the slice, such as CPU-seconds; always known."""

    def __len__(self) -> int:
        return len(self.amount)

    def outside(self, spans: Sequence[tuple[float, float]]) -> Slices:
        """Return the slices that overlap none of these spans of time."""
        kept = np.ones(len(self), dtype=np.bool_)
        for begin, end in spans:
            kept &= (self.end <= begin) | (self.begin >= end)
        return Slices(self.begin[kept], self.end[kept], self.amount[kept])

    def joined(self, most: int = MOST) -> Slices:
        """Return at most `most` slices, by joining adjacent ones."""
        group = -(-len(self) // most)
        if group <= 1:
            return self
        apart = np.concatenate(([False], self.begin[1:] > self.end[:-1] + 1e-6))
        part = np.cumsum(apart)
        place = np.arange(len(self)) - np.searchsorted(part, part)
        first = np.flatnonzero(place % group == 0)
        last = np.append(first[1:], len(self)) - 1
        return Slices(self.begin[first], self.end[last], np.add.reduceat(self.amount, first))


def rate_slices(times: Sequence[float], rates: Sequence[float | None], window: float) -> Slices:
    """Return non-overlapping slices for rates per second, each the mean over a window before its moment.

    `window` is in seconds; 0 for rates that apply since the previous moment.
    """
    begin: list[float] = []
    end: list[float] = []
    amount: list[float] = []
    for place, (t, rate) in enumerate(zip(times, rates, strict=True)):
        since = t - window if window else times[place - 1] if place else t
        overlaps = bool(end) and since < end[-1] - 1e-6 * max(1.0, window)
        if rate is not None and since < t and not overlaps:
            begin.append(since)
            end.append(t)
            amount.append(rate * (t - since))
    return Slices(*(np.asarray(column, dtype=np.float64) for column in (begin, end, amount)))


@dataclass(frozen=True)
class Fit:
    """What one more unit of each column adds, with its interval."""

    values: FloatArray
    variance: FloatArray
    """The variances of the values and their covariances."""
    reach: float
    """How many standard errors the interval reaches to either side."""

    @property
    def errors(self) -> FloatArray:
        """The standard error of each value."""
        return np.sqrt(np.maximum(np.diag(self.variance), 0.0))

    @property
    def low(self) -> FloatArray:
        """The lower bounds of the intervals."""
        return self.values - self.reach * self.errors

    @property
    def high(self) -> FloatArray:
        """The upper bounds of the intervals."""
        return self.values + self.reach * self.errors

    def mixed(self, shares: FloatArray) -> Fit:
        """Return the sum of the columns, weighted by `shares`, as a fit of a single column."""
        variance = np.atleast_2d(shares @ self.variance @ shares)
        return Fit(np.atleast_1d(shares @ self.values), variance, self.reach)


def fit(columns: FloatArray, levels: FloatArray, level: float) -> Fit:
    """Fit levels by a weighted sum of columns; `level` is the confidence of the intervals.

    Both are per second and in the order of time: one row of `columns` for each level. The columns are independent of
    each other, and there are FEWEST rows for each of them.
    """
    scale = np.abs(columns).max(axis=0)
    size = float(np.abs(levels).max()) or 1.0
    columns, levels = columns / scale, levels / size
    weights = max((_weights(columns, levels, power) for power in _POWERS), key=lambda found: found[0])[1]
    weighted = columns * weights[:, None]
    known = np.linalg.inv(weighted.T @ weighted)
    values = known @ weighted.T @ (levels * weights)
    residual = levels * weights - weighted @ values
    rest = np.eye(len(levels)) - weighted @ known @ weighted.T
    alike = _alike(residual, rest)
    left = rest @ alike
    trace = float(np.trace(left))
    variance = float(residual @ residual) / trace * known @ weighted.T @ alike @ weighted @ known
    free = trace**2 / float(np.sum(left * left.T))
    back = size / scale
    return Fit(values * back, variance * np.outer(back, back), student_quantile(max(1, int(free)), level))


def _weights(columns: FloatArray, levels: FloatArray, power: float) -> tuple[float, FloatArray]:
    """Return the likelihood of noise that grows with this power of the level, and the resulting slice weights."""
    weights, fitted = np.ones(len(levels)), levels
    for _ in range(_ROUNDS if power else 1):
        fitted = columns @ _least_squares(columns * weights[:, None], levels * weights)
        weights = np.maximum(fitted, _FLOOR * float(np.abs(fitted).max()) + 1e-12) ** -power
    residual = (levels - fitted) * weights
    spread = float(residual @ residual) / len(levels)
    return 2 * float(np.log(weights).sum()) - len(levels) * log(max(spread, 1e-30)), weights


def _alike(residual: FloatArray, rest: FloatArray) -> FloatArray:
    """Return the correlation matrix of the noise in any two slices.

    `rest` maps noise to what the fit leaves of it.
    """
    count = len(residual)
    order = max(1, int(count ** (1 / 3)))
    found = np.array([residual[lag:] @ residual[: count - lag] for lag in range(order + 1)])
    if found[0] <= 1e-24 * count:
        return np.eye(count)
    lags = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    alike = np.eye(count)
    for _ in range(_ROUNDS):
        left = rest @ alike @ rest
        # The correlations that residuals of such noise would have, and its true ones: the fit causes the
        # difference.
        expected = np.array([np.trace(left, lag) for lag in range(order + 1)])
        true = np.array([np.trace(alike, lag) for lag in range(order + 1)])
        corrected = found / found[0] - expected / expected[0] + true / count
        alike = _correlations(corrected, count)[lags]
    return alike


def _correlations(found: FloatArray, count: int) -> FloatArray:
    """Return the correlations at each lag of the autoregressive noise to which these few belong."""
    best, error = inf, 1.0
    coefficients = tried = np.zeros(0)
    for order in range(1, len(found)):
        reflected = (found[order] - float(tried @ found[order - 1 : 0 : -1])) / error
        reflected = min(max(reflected, -0.97), 0.97)
        tried = np.append(tried - reflected * tried[::-1], reflected)
        error *= 1 - reflected**2
        worth = count * log(error) + 2 * order
        if worth < best:
            best, coefficients = worth, tried
    order = len(coefficients)
    correlations = np.zeros(count)
    correlations[0] = 1.0
    # Yule-Walker: solve for the first ones together, then derive each from those before it.
    equations, right = np.eye(order), np.zeros(order)
    for lag in range(1, order + 1):
        for back in range(1, order + 1):
            if lag == back:
                right[lag - 1] += coefficients[back - 1]
            else:
                equations[lag - 1, abs(lag - back) - 1] -= coefficients[back - 1]
    correlations[1 : order + 1] = np.linalg.solve(equations, right)
    for lag in range(order + 1, count):
        correlations[lag] = coefficients @ correlations[lag - 1 : lag - order - 1 : -1]
    return correlations


def left_over(columns: FloatArray, column: FloatArray) -> float:
    """Return the share of a column, in 0..1, that no weighted sum of the other columns explains."""
    total = float(column @ column)
    if not total:
        return 0.0
    if not columns.shape[1]:
        return 1.0
    scaled = columns / np.abs(columns).max(axis=0)
    left = column - scaled @ _least_squares(scaled, column)
    return float(left @ left) / total


def _least_squares(columns: FloatArray, levels: FloatArray) -> FloatArray:
    return np.linalg.lstsq(columns, levels, rcond=None)[0].astype(np.float64)
