"""The level of one operation before a fault, and what counts as worse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, lgamma, log, log1p, sqrt

import numpy as np

from tippingpoint.analysis.thresholds import limits_of
from tippingpoint.plan.base import Threshold
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.intervals import Interval
from tippingpoint.rundir.tags import tag

FEWEST = 20
"""The minimum number of answers before a fault that show a level."""
WORSE = 2.0
"""Without a threshold, an answer is late beyond this multiple of the earlier 99th percentile plus `NOTICED_US`."""
NOTICED_US = 10_000
"""A delay in microseconds that no client notices."""
FAR = 2.0
"""A single answer is enough to count as late if it took this many times what was allowed, and what any took before."""
CHANCE = 0.001
"""The probability below which late answers of one interval are more than chance."""
_MANY = 500
"""Beyond this many hits, the normal distribution is used, at `_SIGMAS` standard deviations."""
_SIGMAS = 4.0


@dataclass(frozen=True)
class Level:
    """What was usual or allowed for one operation when the fault came."""

    operation: str
    limits: tuple[tuple[float, float], ...]
    """Microseconds, ascending, and the share of answers that may take longer; empty if nothing is known."""
    failing: float
    """The share of attempts that may fail."""
    losing: float
    """The share of attempts that may be lost."""
    far: float
    """Microseconds beyond which a single late answer is enough."""
    p99_us: int | None
    """The 99th percentile before the fault; None if too little was measured."""
    allowed: bool
    """Whether the limits are the plan's thresholds, not the usual level before."""

    @property
    def limit_us(self) -> float | None:
        """The time beyond which an answer counts as late; None if none does."""
        return self.limits[-1][0] if self.limits else None

    def late(self, interval: Interval, chance: float) -> int:
        """Return how many answers of an interval were late: beyond the lowest limit that too many exceeded.

        If chance explains all of them, it counts those beyond the largest limit.
        """
        limit = self.exceeded(interval, chance)
        limit = self.limit_us if limit is None else limit
        return 0 if limit is None else interval.above(self.operation, limit)

    def exceeded(self, interval: Interval, chance: float) -> float | None:
        """Return the lowest limit that more answers exceeded than chance explains; None if there is none.

        A single answer that was far too late is enough to exceed the largest.
        """
        answered = interval.count(self.operation)
        if not answered or not self.limits:
            return None
        for limit, share in self.limits:
            if more_than_chance(interval.above(self.operation, limit), answered, share, chance):
                return limit
        return self.limit_us if interval.above(self.operation, self.far) else None

    def is_failing(self, interval: Interval, chance: float) -> bool:
        """Return whether more attempts of an interval failed or were lost than chance explains."""
        failed, lost = failures(interval, self.operation), interval.count(self.operation, "lost")
        tried = interval.count(self.operation) + failed + lost
        return more_than_chance(failed, tried, self.failing, chance) or more_than_chance(
            lost, tried, self.losing, chance
        )


def level_of(operation: str, thresholds: Iterable[Threshold], before: Sequence[Interval]) -> Level:
    """Return the level of an operation.

    The plan's thresholds are the limits if they were met before the fault. Otherwise the usual level before is.
    """
    answers = Histogram()
    for interval in before:
        if tag(operation) in interval.counts:
            slots, counts = interval.counts[tag(operation)]
            answers.counts[slots] += counts
    answered = answers.total
    longest = max((interval.longest(operation) for interval in before), default=0)
    failed = sum(failures(interval, operation) for interval in before)
    lost = sum(interval.count(operation, "lost") for interval in before)
    tried = answered + failed + lost
    limits: list[tuple[float, float]] = []
    failing, losing = (failed / tried, lost / tried) if tried else (0.0, 0.0)
    for threshold in thresholds:
        if threshold.operation != operation:
            continue
        for limit in limits_of(threshold):
            if limit.percentile is None:
                continue
            share = 1 - limit.percentile / 100
            late = sum(interval.above(operation, limit.allowed) for interval in before)
            if not more_than_chance(late, answered, share, CHANCE):
                limits.append((limit.allowed, share))
        failing = max(failing, threshold.error_rate or 0.0)
        losing = max(losing, threshold.lost_rate or 0.0)
    by_threshold = bool(limits)
    p99 = answers.percentile(99) if answered >= FEWEST else None
    if not limits and p99 is not None:
        limits.append((max(WORSE * p99, p99 + NOTICED_US), 0.01))
    limits.sort()
    return Level(
        operation=operation,
        limits=tuple(limits),
        failing=failing,
        losing=losing,
        far=FAR * max(limits[-1][0] if limits else 0.0, float(longest)),
        p99_us=p99,
        allowed=by_threshold,
    )


def failures(interval: Interval, operation: str) -> int:
    """Return how many attempts ended in an error or a timeout."""
    return interval.count(operation, "error") + interval.count(operation, "timeout")


def more_than_chance(hits: int, tries: int, share: float, chance: float) -> bool:
    """Return whether this many hits are less probable than `chance`, if each try hits with probability `share`."""
    if hits <= 0 or share >= 1:
        return False
    if share <= 0:
        return True
    if hits <= share * tries:
        return False
    if hits > _MANY:
        return hits > share * tries + _SIGMAS * sqrt(tries * share * (1 - share))
    fewer = np.arange(hits)
    logs = [
        lgamma(tries + 1)
        - lgamma(k + 1)
        - lgamma(tries - k + 1)
        + k * log(share)
        + (tries - k) * log1p(-share)
        for k in fewer.tolist()
    ]
    return 1 - sum(map(exp, logs)) < chance
