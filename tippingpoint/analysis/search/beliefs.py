"""What the probes of a search say about the limit: a posterior distribution on a grid.

The limit is the load at which the chance that a hold meets every threshold is one half. The model of a probe at the
load x, with all loads as logs:

- The chance to hold falls from 1 to 0 around the limit: it is Phi((limit - x) / softness), a probit curve, as in
  adaptive psychometric methods (Watson, QUEST+, Journal of Vision 17 (2017) 3:10).
- The margin that binds grows with the load near the limit: slope * (x - limit), with the scatter slope * softness from
  one hold to the next, the sampling error, and `_CURVED` of itself because no margin is straight. Beyond `_FAR` only
  its side counts, because queues and timeouts bend it there.
- Or the margin jumps at the limit. Then it resembles the earlier ones on its side, and shows nothing but its side.
- A share of the probes lapses: their results have nothing to do with the load.
- The limit may drift during the search, linearly in time.
- A load that broke may leave the target hurt: its limit is lower until it starts from nothing again, or for some holds
  even then.

All of this is unknown. Integrating out everything else gives the posterior of the limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite, pi, sqrt
from typing import Any

import numpy as np

from tippingpoint.analysis.search.normal import FloatArray, below

_Logs = np.ndarray[tuple[Any, ...], np.dtype[np.float32]]
"""Logs of chances: seven digits are enough, and take half the time."""

LAPSE = 0.01
"""The share of probes whose results have nothing to do with their load."""
_FAR = 0.7
"""Of a margin farther from 0 than this (ln 2), only the side counts."""
_CURVED = 0.15
"""How far a margin may deviate from a straight line, as a share of itself."""
SOFTNESS: FloatArray = np.geomspace(0.0025, 0.4, 10)
"""The possible softnesses of a limit: standard deviations of the limit's log from hold to hold."""
_SOFTNESS_PRIOR: FloatArray = np.asarray([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.3, 0.05])
"""Sharp limits are as likely as soft ones on a log scale: a prior with fewer sharp limits overestimates the width of
their intervals. The softest limits are rare."""
_SLOPES: FloatArray = np.geomspace(0.5, 24.0, 7)
_JUMPS = 0.15
"""The chance that the margin jumps at the limit: the last cell of the grid's slopes."""
_SLOPE_PRIOR: FloatArray = np.append(np.full(len(_SLOPES), (1 - _JUMPS) / len(_SLOPES)), _JUMPS)
_ALIKE = 0.12
"""The standard deviation of margins on one side of a jump."""
_WIDEST = 3.0
"""The first margin on one side of a jump may be anywhere up to this."""


@dataclass(frozen=True)
class _Hypothesis:
    """What may happen to the target during the search."""

    prior: float
    drift: float = 0.0
    """How far the limit drifts during one hold."""
    hurt: float = 0.0
    """By how much a load that broke lowers the limit."""
    halves: float = 0.0
    """The number of holds after which this halves; 0 if it lasts exactly until the target starts from nothing."""


_STORIES = (
    _Hypothesis(0.34),
    *(_Hypothesis(prior, drift=drift) for drift, prior in ((-0.012, 0.08), (-0.005, 0.09))),
    *(_Hypothesis(prior, drift=drift) for drift, prior in ((0.012, 0.08), (0.005, 0.09))),
    *(
        _Hypothesis(prior, hurt=hurt)
        for hurt, prior in ((0.08, 0.03), (0.15, 0.05), (0.3, 0.03), (0.7, 0.01))
    ),
    *(_Hypothesis(0.025, hurt=hurt, halves=halves) for hurt in (0.1, 0.2, 0.3, 0.4) for halves in (1.5, 3.0)),
)
"""Exactly one of these is true: a target that both drifts and is hurt is too rare to consider.

Drift has more than its share of the prior: ten probes hardly show it, and the interval must allow for it.
"""
_PRIOR: FloatArray = np.asarray([story.prior for story in _STORIES])
_DRIFTS: FloatArray = np.asarray([story.drift for story in _STORIES])
_STILL = float(_PRIOR[_DRIFTS == 0].sum())
"""The chance that the limit does not drift."""
_HURTS: FloatArray = np.asarray([story.hurt for story in _STORIES])
_HALVES: FloatArray = np.asarray([story.halves for story in _STORIES])
_HEALS = _HALVES == 0
_RARELY = 0.03
"""The share of targets that drift, as used for reporting: that takes more evidence than widening an interval."""
_STEPS = 112
"""The number of limits on the grid."""
_FINEST = 5
"""The minimum number of grid steps within a standard deviation of the limit; with fewer, a finer grid is made."""
_NEGLIGIBLE = 1e-4
"""Cases with a smaller chance are ignored when choosing a load."""
_ALL_BUT = 1e-4
"""The chance that may lie outside a finer grid."""


@dataclass(frozen=True)
class Evidence:
    """The result of one probe, as the model uses it."""

    load: float
    """The log of the load."""
    held: bool
    margin: float | None
    """The margin that binds; None if only its side is known."""
    error: float
    """Its standard error from sampling."""
    at: float
    """When the probe was taken, in holds since the search began."""
    hurt: bool
    """Whether a load broke before this probe and the target has not started from nothing since."""
    since: float
    """How many holds ago a load last broke; infinite if none did."""


class Beliefs:
    """The posterior distribution of the limit, from evidence in the order in which it was taken."""

    def __init__(self, lowest: float, highest: float) -> None:
        """The limit may be anywhere between these logs of loads, with equal probability."""
        self._span = lowest, highest
        self._evidence: list[Evidence] = []
        self._make(lowest, highest)

    def learn(self, evidence: Evidence) -> None:
        """Take a probe into account."""
        self._logs += self._likelihood(evidence, self._evidence)
        self._evidence.append(evidence)
        self._normalise()
        if self._too_coarse():
            low, high = self._quantiles_of_base((_ALL_BUT / 2, 1 - _ALL_BUT / 2))
            wide = max(high - low, 1e-9)
            self._make(max(self._span[0], low - wide / 2), min(self._span[1], high + wide / 2))

    def limit(self, at: float, shares: Sequence[float]) -> list[float]:
        """Return quantiles of the limit's log at a time (in holds since the start), for these shares in 0..1."""
        values, weights = self._limits(at)
        summed = np.cumsum(weights)
        return [
            float(np.interp(share, summed - weights / 2, values)) if len(values) > 1 else float(values[0])
            for share in shares
        ]

    def chance(self, loads: FloatArray, at: float) -> tuple[FloatArray, FloatArray]:
        """Return the chance to hold at logs of loads for every possible case, and the probability of each case.

        The chances have one row for each case and one column for each load. They apply to loads that start from
        nothing.
        """
        cases = self._weights.sum(axis=3)  # story, limit, softness
        story, limit, soft = np.nonzero(cases > cases.max() * 1e-4)
        weights = cases[story, limit, soft]
        here = self._grid[limit] + _DRIFTS[story] * at
        return below((here[:, None] - loads[None, :]) / SOFTNESS[soft][:, None]), weights / weights.sum()

    def gain(self, loads: FloatArray, at: float, *, hurt: bool, since: float) -> FloatArray:
        """Return how many nats the outcome of a probe at each of these logs of loads is expected to reveal about the
        limit.

        This is the mutual information of the outcome and the limit (Lindley, Annals of Mathematical Statistics 27
        (1956) 986), minus what a load that breaks would lose: the target may be hurt for a long time, and its results
        then say little about its limit. `hurt` and `since` are those of the probe's evidence.
        """
        chances, weights = self._told(loads, at, _lower(hurt, since))
        mean = weights @ chances
        return (_entropy(mean) - weights @ _entropy(chances)) * (1 - self.hurt_for_long * (1 - mean))

    @property
    def softness(self) -> FloatArray:
        """The chance of each softness of SOFTNESS."""
        return self._weights.sum(axis=(0, 1, 3))

    @property
    def drifts(self) -> float:
        """The chance that the limit drifts, with the more likely sign; `_RARELY` is the prior share that do."""
        each = self._of_stories / np.where(_DRIFTS == 0, _STILL / (1 - _RARELY), (1 - _STILL) / _RARELY)
        down, up, still = (float(each[place].sum()) for place in (_DRIFTS < 0, _DRIFTS > 0, _DRIFTS == 0))
        chance = (up + down) / (up + down + still)
        return chance if up >= down else -chance

    @property
    def hurt(self) -> float:
        """The chance that a load that broke hurts the target until it is emptied."""
        return float(self._of_stories[_HEALS & (_HURTS > 0)].sum())

    @property
    def hurt_for_long(self) -> float:
        """The chance that a load that broke hurts the target even after it is emptied."""
        return float(self._of_stories[~_HEALS].sum())

    @property
    def _of_stories(self) -> FloatArray:
        return self._weights.sum(axis=(1, 2, 3))

    # -- the grid: story, limit, softness, slope ----------------------------------------------------

    def _make(self, lowest: float, highest: float) -> None:
        self._grid: FloatArray = np.linspace(lowest, highest, _STEPS)
        prior = np.log(_PRIOR)[:, None, None, None] + np.log(np.outer(_SOFTNESS_PRIOR, _SLOPE_PRIOR))
        shape = (len(_STORIES), _STEPS, len(SOFTNESS), len(_SLOPE_PRIOR))
        self._logs: _Logs = np.broadcast_to(prior.astype(np.float32), shape).copy()
        for place, evidence in enumerate(self._evidence):
            self._logs += self._likelihood(evidence, self._evidence[:place])
        self._normalise()

    def _normalise(self) -> None:
        self._logs -= self._logs.max()
        weights = np.exp(self._logs).astype(np.float64)
        self._weights: FloatArray = weights / weights.sum()

    def _likelihood(self, evidence: Evidence, before: Sequence[Evidence]) -> _Logs:
        """Return the log likelihood of a probe's result, given the probes before it, for every cell of the grid."""
        # Many stories predict the same for a probe, for example before the first load that broke.
        shifts, each = np.unique(
            np.round(_lower(evidence.hurt, evidence.since) - _DRIFTS * evidence.at, 4), return_inverse=True
        )
        over = (evidence.load - self._grid[None, :] + shifts[:, None])[..., None]
        held = below(-over / SOFTNESS)
        chance = held if evidence.held else 1.0 - held
        margin = evidence.margin
        if margin is None or not isfinite(evidence.error) or abs(margin) > _FAR:
            return np.log((1 - LAPSE) * chance + LAPSE / 2).astype(np.float32)[each][..., None]
        expected = over.astype(np.float32)[..., None] * _SLOPES.astype(np.float32)
        own = ((SOFTNESS[:, None] * _SLOPES) ** 2 + (evidence.error**2 + 1e-6)).astype(np.float32)
        variance = (_CURVED * expected) ** 2 + own
        likely = np.empty((*expected.shape[:-2], len(SOFTNESS), len(_SLOPE_PRIOR)), np.float32)
        likely[..., :-1] = np.exp(-0.5 * (margin - expected) ** 2 / variance) / np.sqrt(2 * pi * variance)
        likely[..., -1] = chance * _alike(evidence, before)
        likely *= 1 - LAPSE
        likely += LAPSE / (3 * 2 * _FAR)
        return np.log(likely, out=likely)[each]

    def _limits(self, at: float) -> tuple[FloatArray, FloatArray]:
        """Return the distinct logs of the limit at a time, ascending, and the chance of each."""
        each = self._weights.sum(axis=(2, 3))  # story, limit
        # Stories without drift share their limits, whose order in a sort depends on the processor.
        values, which = np.unique(self._grid[None, :] + (_DRIFTS * at)[:, None], return_inverse=True)
        return values, np.bincount(which.ravel(), each.ravel()).astype(np.float64, copy=False)

    def _told(self, loads: FloatArray, at: float, lower: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the chance to hold for each limit (rows) at each load (columns), and the limits' chances."""
        each = self._weights.sum(axis=3)  # story, limit, softness
        stories = np.flatnonzero(each.sum(axis=(1, 2)) > _NEGLIGIBLE)
        soft = np.flatnonzero(each.sum(axis=(0, 1)) > _NEGLIGIBLE)
        # Bin limits with the width of the grid, so that stories with the same result are combined.
        step = max(self._grid[1] - self._grid[0], 1e-12)
        drifted = np.rint(_DRIFTS[stories] * at / step).astype(np.int64)
        hurt = np.rint(lower[stories] / step).astype(np.int64)
        first, last = int((drifted - hurt).min()), int(drifted.max()) + _STEPS
        here = self._grid[0] + step * np.arange(first, last)
        held = below((here[:, None, None] - loads) / SOFTNESS[soft][:, None])  # limit, softness, load
        of_limit, chances = np.zeros(last - first), np.zeros((last - first, len(loads)))
        for story, drift, down in zip(stories, drifted - first, hurt, strict=True):
            weights = each[story][:, soft]
            of_limit[drift : drift + _STEPS] += weights.sum(axis=1)
            chances[drift : drift + _STEPS] += np.einsum(
                "ls,lsx->lx", weights, held[drift - down : drift - down + _STEPS]
            )
        known = of_limit > of_limit.max() * 1e-6
        chances, of_limit = chances[known] / of_limit[known, None], of_limit[known]
        return LAPSE / 2 + (1 - LAPSE) * chances, of_limit / of_limit.sum()

    def _too_coarse(self) -> bool:
        each = self._weights.sum(axis=(0, 2, 3))
        mean = float(each @ self._grid)
        deviation = float(np.sqrt(each @ (self._grid - mean) ** 2))
        step = float(self._grid[1] - self._grid[0])
        at_edge = (each[0] > 1e-3 and self._grid[0] > self._span[0]) or (
            each[-1] > 1e-3 and self._grid[-1] < self._span[1]
        )
        if at_edge:
            self._make(*self._span)
            return True
        return deviation < _FINEST * step and step > 1e-4

    def _quantiles_of_base(self, shares: Sequence[float]) -> list[float]:
        summed = np.cumsum(self._weights.sum(axis=(0, 2, 3)))
        return [float(self._grid[min(int(np.searchsorted(summed, share)), _STEPS - 1)]) for share in shares]


def _lower(hurt: bool, since: float) -> FloatArray:
    """Return by how much the limit is lower in each story, `since` holds after a load that broke."""
    return _HURTS * np.where(_HEALS, float(hurt), 0.5 ** (since / np.where(_HEALS, 1.0, _HALVES)))


def _alike(evidence: Evidence, before: Sequence[Evidence]) -> float:
    """Return the density of a margin that jumps at the limit: it resembles the earlier ones on its side."""
    assert evidence.margin is not None
    away = [
        evidence.margin - other.margin
        for other in before
        if other.margin is not None and other.held == evidence.held
    ]
    near = sum(exp(-0.5 * (each / _ALIKE) ** 2) / (_ALIKE * sqrt(2 * pi)) for each in away)
    return (1 / _WIDEST + near) / (1 + len(away))


def _entropy(chance: FloatArray) -> FloatArray:
    """Return the entropy of outcomes with these chances, in nats."""
    some = np.clip(chance, 1e-9, 1 - 1e-9)
    return -some * np.log(some) - (1 - some) * np.log1p(-some)
