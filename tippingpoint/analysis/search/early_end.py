"""Decides when the result of a hold is clear before its end: when the rest can hardly change what it shows.

What a latency or a rate shows is a count: a p99 is met when at most one call in a hundred takes longer. So the
question is how many more such calls the rest of the hold may have. Their number has a negative binomial distribution,
because the rate is known only from a part of the hold (Jeffreys' prior). So a hold with few calls is never clear, and
the distribution of latencies does not matter.

Slow calls may come in bursts, because the target pauses. Then bursts are counted instead of calls, and the largest
burst observed at this load or a smaller one may occur at any moment. Two things are assumed. A pause that was not
observed in `_ON_END` or `_IN_ALL` seconds of loads that held does not occur in the rest of a hold. An event for which a
rate of zero is required does not occur if it was not observed at this load or a smaller one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor, isfinite, sqrt

import numpy as np

from tippingpoint.analysis.search.normal import FloatArray, below
from tippingpoint.analysis.search.probes import Margin

LEAST_OF_HOLD = 0.4
"""The minimum share of a hold after which it may end early: the effects of the ramp are over by then."""
CHANCE = 1 / 2000
"""A hold ends early if the chance that the rest changes its result is below this, at one look."""
_ERRORS = 3.3
"""The same in standard errors, for figures and throughputs, which are not counts of bad calls."""
_CLEAR_BROKEN, _CLEAR_HELD = 0.4, -0.7
"""And beyond these margins: a latency may still grow in the rest of a hold, so holding takes half of the limit."""
_ON_END, _IN_ALL = 30.0, 60.0
"""Loads that held must be watched for this many seconds, in one hold or in all, before any hold ends early as held."""
_BURST = 3.0
"""A second belongs to a burst if its share of slow calls is this many times the allowed share,"""
_FEWEST_IN_BURST = 2
"""and if it has at least this many slow calls."""
_APART = 10.0
"""A burst is a pause if its calls were slow this many times as often as those of the rest of its hold."""
_SHORT = 0.1
"""A burst of at most this share of its hold may be a pause even if it lasts to the end: a hold that it breaks ends
during it."""
_MOST_TERMS = 200_000
"""With more terms than this, the normal distribution is accurate enough."""


@dataclass(frozen=True)
class Tally:
    """How many calls were beyond one limit in each of several equal parts of a hold."""

    name: str
    """The name of its margin."""
    allowed: float
    """The share of calls that may be beyond the limit."""
    tries: tuple[int, ...]
    beyond: tuple[int, ...]
    """How many were beyond the limit."""
    near: tuple[int, ...]
    """How many were beyond half of it."""
    largest: bool = False
    """Whether the limit applies to the largest of all calls, which is unknown until the last one."""


@dataclass(frozen=True)
class _Burst:
    load: float
    seconds: float
    """How many bad calls it had, expressed in seconds of calls."""
    pause: bool
    """Whether it was over or short, and stood out from the rest of its hold: such a burst may occur at any load."""


class EarlyEnds:
    """Decides when holds of one search end early. It remembers the results of earlier holds, but only within a run."""

    def __init__(self, hold: float) -> None:
        """`hold` is the maximum time for which a load is held, in seconds."""
        self._hold = hold
        self._longest = self._watched = 0.0
        self._bursts: dict[str, list[_Burst]] = {}

    def remember(
        self, load: float, margins: Sequence[Margin], tallies: Sequence[Tally], held_for: float
    ) -> None:
        """Take a finished hold into account, with its overall result."""
        if margins and all(margin.value <= 0 for margin in margins):
            self._longest = max(self._longest, held_for)
            self._watched += held_for
        for tally in tallies:
            burst = _burst(tally, load, held_for)
            if burst is not None:
                self._bursts.setdefault(tally.name, []).append(burst)

    def clear(
        self,
        load: float,
        margins: Sequence[Margin],
        tallies: Sequence[Tally],
        held_for: float,
        hold: float | None = None,
    ) -> bool | None:
        """Return the result of an unfinished hold: True if it holds, False if it breaks, None if it must continue.

        `margins` and `tallies` are those of the hold so far, `held_for` its seconds. `hold` is its planned duration, if
        that differs from the others'.
        """
        hold = self._hold if hold is None else hold
        if not margins or held_for < LEAST_OF_HOLD * hold:
            return None
        seen = min(1.0, held_for / hold)
        counted = {tally.name: tally for tally in tallies}
        if any(self._breaks(load, margin, counted, held_for, seen) for margin in margins):
            return False
        if max(self._longest, held_for) < _ON_END and self._watched + held_for < _IN_ALL:
            return None
        if all(self._holds(load, margin, counted, held_for, seen) for margin in margins):
            return True
        return None

    def _breaks(
        self, load: float, margin: Margin, counted: Mapping[str, Tally], held_for: float, seen: float
    ) -> bool:
        tally = counted.get(margin.name)
        if margin.value <= _CLEAR_BROKEN or not isfinite(margin.error):
            return False
        if tally is None:
            return margin.value > _ERRORS * margin.error
        more, together = self._room(load, tally, held_for, seen)
        # The rest of the hold may have more calls than its share of the time.
        more += tally.allowed * _ERRORS * sqrt(sum(tally.tries) * (1 - seen) / seen) + bool(tally.allowed)
        return more < 0 or _at_most(more / together, sum(tally.beyond) / together, seen) < CHANCE

    def _holds(
        self, load: float, margin: Margin, counted: Mapping[str, Tally], held_for: float, seen: float
    ) -> bool:
        tally = counted.get(margin.name)
        if margin.value >= _CLEAR_HELD or not isfinite(margin.error):
            return False
        if tally is None:
            return margin.value < -_ERRORS * margin.error
        if tally.largest:
            return False
        if not tally.allowed:
            seen_before = any(burst.load <= load for burst in self._bursts.get(margin.name, ()))
            return not sum(tally.beyond) and not seen_before and margin.value < -_ERRORS * margin.error
        more, together = self._room(load, tally, held_for, seen)
        return more >= 0 and 1 - _at_most(more / together, sum(tally.beyond) / together, seen) < CHANCE

    def _room(self, load: float, tally: Tally, held_for: float, seen: float) -> tuple[float, float]:
        """Return how many more calls may be beyond the limit until the hold ends, and how many arrive together."""
        tries, beyond = sum(tally.tries), sum(tally.beyond)
        a_second = tries / max(held_for, 1e-9)
        together = _together(tally)
        for burst in self._bursts.get(tally.name, ()):
            if burst.pause or burst.load <= load:
                together = max(together, burst.seconds * a_second)
        own = _burst(tally, load, held_for)
        if own is not None:
            together = max(together, own.seconds * a_second)
        return tally.allowed * tries / seen - beyond, together


def _together(tally: Tally) -> float:
    """Return how many bad calls arrive together: by how much their counts per second vary more than by chance."""
    tried = [(bad, tries) for bad, tries in zip(tally.beyond, tally.tries, strict=True) if tries]
    bad, tries = sum(tally.beyond), sum(tally.tries)
    if len(tried) < 2 or not 0 < bad < tries:
        return 1.0
    share = bad / tries
    between = sum((each - share * of) ** 2 for each, of in tried) * len(tried) / (len(tried) - 1)
    return max(1.0, between / (tries * share * (1 - share)))


def _burst(tally: Tally, load: float, held_for: float) -> _Burst | None:
    """Return the largest burst of slow calls in a hold: consecutive seconds with many of them."""
    tries = sum(tally.tries)
    if not tries or not sum(tally.near):
        return None
    a_second = tries / max(held_for, 1e-9)
    if not tally.allowed:
        return _Burst(load, sum(tally.near) / a_second, pause=False)
    bursts: list[list[int]] = [[]]
    for place, (slow, of) in enumerate(zip(tally.near, tally.tries, strict=True)):
        if slow >= _FEWEST_IN_BURST and slow > _BURST * tally.allowed * of:
            bursts[-1].append(place)
        elif bursts[-1]:
            bursts.append([])
    inside = {place for burst in bursts for place in burst}
    if not inside:
        return None
    largest = max(bursts, key=lambda burst: sum(tally.near[place] for place in burst))
    slow, of = (sum(column[place] for place in largest) for column in (tally.near, tally.tries))
    rest = [place for place in range(len(tally.tries)) if place not in inside]
    others, of_others = (sum(column[place] for place in rest) for column in (tally.near, tally.tries))
    passing = largest[-1] < len(tally.tries) - 1 or len(largest) <= max(1.0, _SHORT * len(tally.tries))
    return _Burst(load, slow / a_second, passing and _APART * others * of <= slow * of_others)


def _at_most(count: float, known: float, seen: float) -> float:
    """Return the chance that the rest of a hold has at most `count` more events.

    `known` is the number of events in the share `seen` of the hold.
    """
    if count < 0:
        return 0.0
    if seen >= 1:
        return 1.0
    last, shape = floor(count + 1e-9), known + 0.5
    if last > _MOST_TERMS:
        mean = shape * (1 - seen) / seen
        return float(below(np.asarray((last + 0.5 - mean) / sqrt(mean / seen))))
    steps: FloatArray = np.arange(1, last + 1, dtype=np.float64)
    logs = shape * np.log(seen) + np.concatenate(
        ([0.0], np.cumsum(np.log((steps - 1 + shape) / steps) + np.log1p(-seen)))
    )
    return min(1.0, float(np.exp(logs).sum()))
