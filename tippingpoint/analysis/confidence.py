"""Computes confidence intervals of percentiles, ratios of percentiles and differences of shares, from counts alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gamma, inf, log, pi, sqrt
from statistics import NormalDist

import numpy as np

from tippingpoint.rundir.histogram import Histogram, highest_values, lowest_values
from tippingpoint.rundir.recorder import rank_of


@dataclass(frozen=True)
class Interval:
    """An estimate and its two-sided confidence interval; infinite where the sample gives no bound."""

    estimate: float
    low: float
    high: float


def percentile_interval(histogram: Histogram, percentile: float, level: float) -> Interval:
    """Estimate a percentile (0..100) of a non-empty histogram, in microseconds.

    The bounds are order statistics. Their ranks come from the binomial distribution, for latencies of any
    distribution (David and Nagaraja, Order Statistics, 2003, section 7.1). A side with too few samples for a
    rank stays open: 0 or infinity.
    """
    slots, counts = histogram.filled()
    cumulative = np.cumsum(counts)
    total = int(cumulative[-1])
    low_rank, high_rank = _ranks(total, percentile / 100.0, (1 - level) / 2)

    def slot(rank: int) -> int:
        return int(slots[np.searchsorted(cumulative, rank, side="left")])

    return Interval(
        estimate=float(highest_values(np.asarray(slot(rank_of(percentile, total))))),
        low=float(lowest_values(np.asarray(slot(low_rank)))) if low_rank >= 1 else 0.0,
        high=float(highest_values(np.asarray(slot(high_rank)))) if high_rank <= total else inf,
    )


def ratio_of_percentiles(base: Histogram, other: Histogram, percentile: float, level: float) -> Interval:
    """Estimate the ratio of a percentile of `other` to that of `base`; neither may be empty.

    The two intervals are joined on the log scale by the method of variance estimates recovery
    (Zou and Donner, Statistics in Medicine 27 (2008) 1693), which keeps their asymmetry.
    """
    a, b = percentile_interval(base, percentile, level), percentile_interval(other, percentile, level)
    ratio = log(max(b.estimate, 1.0)) - log(max(a.estimate, 1.0))
    low = ratio - sqrt(_distance(b.estimate, b.low) ** 2 + _distance(a.estimate, a.high) ** 2)
    high = ratio + sqrt(_distance(b.estimate, b.high) ** 2 + _distance(a.estimate, a.low) ** 2)
    return Interval(float(np.exp(ratio)), float(np.exp(low)), float(np.exp(high)))


def difference_of_shares(
    hits_before: int, tries_before: int, hits_after: int, tries_after: int, level: float
) -> Interval:
    """Estimate the share after minus the share before (Newcombe's method 10, Statistics in Medicine 17 (1998) 873)."""
    p, p_low, p_high = _wilson(hits_after, tries_after, level)
    q, q_low, q_high = _wilson(hits_before, tries_before, level)
    return Interval(
        estimate=p - q,
        low=p - q - sqrt((p - p_low) ** 2 + (q_high - q) ** 2),
        high=p - q + sqrt((p_high - p) ** 2 + (q - q_low) ** 2),
    )


def _wilson(hits: int, tries: int, level: float) -> tuple[float, float, float]:
    z2 = NormalDist().inv_cdf(0.5 + level / 2) ** 2
    share = hits / tries
    centre = (hits + z2 / 2) / (tries + z2)
    half = sqrt(z2 * (share * (1 - share) / tries + z2 / (4 * tries**2))) / (1 + z2 / tries)
    return share, max(0.0, centre - half), min(1.0, centre + half)


def _distance(estimate: float, bound: float) -> float:
    """Return the distance of a bound from its estimate, in logs; infinite without a bound."""
    if bound == inf or bound == 0.0:
        return inf
    return abs(log(max(bound, 1.0)) - log(max(estimate, 1.0)))


def _ranks(total: int, share: float, tail: float) -> tuple[int, int]:
    """Return the ranks of the order statistics around a quantile, each missing it with probability `tail` at most.

    Let B be the number of samples below the quantile. The ranks are the largest l with P(B < l) <= tail and the
    smallest u with P(B >= u) <= tail. Without such ranks they are l = 0 and u = total + 1.
    """
    first, below = _binomial(total, share)
    # below[i] = P(B <= first + i); P(B < l) is below at l - 1, P(B >= u) is 1 - P(B <= u - 1).
    low = first + int(np.searchsorted(below, tail, side="right"))
    high = first + int(np.searchsorted(-(1 - below), -tail, side="left")) + 1
    return low, high


def _binomial(total: int, share: float) -> tuple[int, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Return the first count that matters and the cumulative binomial distribution from there.

    Less than 1e-30 lies beyond 12 standard deviations.
    """
    reach = 12 * sqrt(total * share * (1 - share)) + 60
    first, last = max(0, int(total * share - reach)), min(total, int(total * share + reach) + 1)
    counts = np.arange(first, last, dtype=np.float64)
    steps = np.log((total - counts) / (counts + 1)) + log(share) - log(1 - share)
    logs = np.concatenate(([0.0], np.cumsum(steps)))
    weights = np.exp(logs - logs.max())
    return first, np.cumsum(weights) / weights.sum()


@cache
def student_quantile(free: int, level: float) -> float:
    """Return the half-width of a two-sided interval of Student's distribution, in standard errors."""
    ends = np.tan(np.linspace(0.0, pi / 2, 200_001)[:-1])  # gives the far tail points too
    density = (
        gamma((free + 1) / 2)
        / (sqrt(free * pi) * gamma(free / 2))
        * (1 + ends**2 / free) ** (-(free + 1) / 2)
    )
    inside = np.concatenate(([0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(ends))))
    return float(np.interp(level / 2, inside, ends))
