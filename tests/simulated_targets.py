"""Targets whose limit is known, for searches: what a probe at a load shows, drawn at random.

Loads and limits are in any unit, times in seconds. `softness` is the width over which the chance to hold falls from
90 % to 10 %, as a share of the load (on the log scale).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf, log, pi, sin, sqrt
from statistics import median
from typing import Literal

from tippingpoint.analysis.search.early_end import EarlyEnds
from tippingpoint.analysis.search.probes import Margin, Probe
from tippingpoint.analysis.search.searcher import Aim, Searcher

Looks = Callable[[float, Sequence[Margin], float], bool | None]
Shape = Literal["line", "queue", "step", "plateau"]
Path = Callable[[float], float]
"""How far the log of a limit is from its first value, by the time in holds."""

_TEN_TO_NINETY = 2.563
"""The standard deviations between the points where a normal distribution has 10 % and 90 %."""
_LOOKS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""The shares of a hold at which a search looks whether it is clear."""
RAMP_S, EMPTYING_S = 3.0, 5.0
"""Seconds until a load is up, and until a target is empty."""


@dataclass(frozen=True)
class Kind:
    """What kind of target it is."""

    softness: float = 0.15
    shape: Shape = "line"
    """How the margin that binds goes on with the load: in a straight line, as a queue's latency, in one step, or with a
    plateau at 0.95 of what is allowed, which ends at the limit."""
    slope: tuple[float, float] = (1.0, 10.0)
    """The range of how much the margin grows with the log of the load, at the limit."""
    error: tuple[float, float] = (0.02, 0.1)
    """The range of the margin's standard error from sampling in a whole hold."""
    lapses: float = 0.0
    """The share of probes whose outcome has nothing to do with the load."""
    drift: float = 0.0
    """How much the log of the limit changes in an hour of 30 s holds (120 of them); the sign is drawn."""
    hurt: float = 0.0
    """How much lower the log of the limit is after a load that broke, until the target is emptied."""
    stays: float = 0.0
    """The same, for the target that emptying does not heal: it decays by a half in each `heals` holds."""
    heals: float = 2.0
    scars: float = 0.0
    """The same, as a share of how far the load was beyond the limit, on the log scale."""
    ages: float = 0.0
    """How much lower the log of the limit is after each hold at the limit; other loads count as they are large."""
    path: Callable[[random.Random], Path] | None = None
    """Draws how the limit moves."""
    recurs: bool = False
    """Whether it moves in the same way for ever: the limit is then the load at which half of all holds meet it."""
    tails: float = 0.0
    """The index of the Pareto distribution of the error of whole holds, in either direction; 0 for a normal one."""


def jumps(draw: random.Random) -> Path:
    """The limit jumps once, up or down, at a moment of the first 16 holds."""
    at, by = draw.uniform(2, 16), draw.choice((-1, 1)) * draw.uniform(0.15, 0.6)
    return lambda holds: by * (holds >= at)


def on_and_off(draw: random.Random, on: float = 4.0, off: float = 6.0) -> Path:
    """Other programs take a part of the target in spells whose mean lengths are `on` and `off` holds."""
    depth, there = draw.uniform(0.3, 0.8), draw.random() < on / (on + off)
    ends, now = list[float](), 0.0
    while now < 400:
        now += draw.expovariate(1 / (on if there == (len(ends) % 2 == 0) else off))
        ends.append(now)
    return lambda holds: -depth * (there == (sum(end <= holds for end in ends) % 2 == 0))


def swings(draw: random.Random, least: float = 8.0, most: float = 40.0) -> Path:
    """The limit follows a sine of 20 %, with a period of so many holds."""
    period, phase = draw.uniform(least, most), draw.uniform(0, 2 * pi)
    return lambda holds: 0.2 * sin(phase + 2 * pi * holds / period)


def settles(draw: random.Random) -> Path:
    """A target that has just started is better or worse than later, and settles."""
    by, within = draw.choice((-1, 1)) * draw.uniform(0.2, 0.6), draw.uniform(3, 10)
    return lambda holds: by * exp(-holds / within)


class Target:
    """One target with a limit; `at` of `probe` is never less than that of the probe before."""

    def __init__(self, kind: Kind, limit: float, draw: random.Random) -> None:
        self._kind = kind
        self._limit = log(limit)
        self._draw = draw
        self._slope = exp(draw.uniform(*(log(bound) for bound in kind.slope)))
        self._error = exp(draw.uniform(*(log(bound) for bound in kind.error)))
        self._drift = draw.choice((-1, 1)) * kind.drift
        self._flat = draw.uniform(-2.5, -0.3), draw.uniform(0.4, 3.0)
        self._hurt = self._stays = self._aged = 0.0
        self._last = 0.0
        self._path = kind.path(random.Random(draw.random())) if kind.path is not None else None
        self._over_all = self._of_all_holds() if kind.recurs else None
        self._flat_from = draw.uniform(0.3, 1.5) if kind.shape == "plateau" else 0.0

    def limit(self, at: float, hold: float) -> float:
        """Return the limit of a target that begins from nothing and has not been hurt, at a time."""
        if self._over_all is not None:
            return exp(self._limit + self._over_all)
        return exp(self._here(at, hold))

    def _here(self, at: float, hold: float) -> float:
        """Return the log of the limit at a moment."""
        moved = self._path(at / hold) if self._path is not None else 0.0
        return self._limit + self._drift * at / (hold * 120) + moved - self._aged

    def _of_all_holds(self) -> float:
        assert self._path is not None
        deviation, again = self._kind.softness / _TEN_TO_NINETY, random.Random(1)
        return median(self._path(holds / 5) + deviation * again.gauss(0, 1) for holds in range(2000))

    def probe(self, load: float, *, fresh: bool, at: float, hold: float, looks: Looks | None = None) -> Probe:
        """Return what a load shows from a time on; with `looks`, the hold ends early when that says it is clear."""
        kind, draw = self._kind, self._draw
        if fresh:
            self._hurt = 0.0
        self._stays *= 0.5 ** ((at - self._last) / (kind.heals * hold))
        self._last = at
        here = self._here(at, hold) - self._hurt - self._stays
        deviation = kind.softness / _TEN_TO_NINETY
        over = log(load) - here + deviation * draw.gauss(0, 1)
        if draw.random() < kind.lapses:
            over = draw.choice((-1, 1)) * draw.uniform(0.02, 0.5)
        margin = self._margin(over)
        error = self._error if kind.shape != "step" else 0.02
        begun = at
        at += RAMP_S + EMPTYING_S * fresh
        if kind.tails:
            margin += draw.choice((-1, 1)) * error * (draw.paretovariate(kind.tails) - 1)
        seen = self._seen(margin, error)
        held, value, lasted = seen[-1] <= 0, seen[-1], hold
        for share, so_far in zip(_LOOKS, seen, strict=False):
            told = (
                looks(load, [Margin("extend p99", so_far, error / sqrt(share))], share * hold)
                if looks is not None
                else None
            )
            if told is not None:
                held, value, lasted, error = told, so_far, share * hold, error / sqrt(share)
                break
        if not held:
            self._hurt = kind.hurt
            self._stays = max(self._stays, kind.stays, kind.scars * (log(load) - here))
        self._aged += kind.ages * load / exp(here) * lasted / hold
        return Probe(
            load=load,
            held=held,
            margins=(Margin("extend p99", value, error),),
            fresh=fresh,
            begun=begun,
            seconds=at + lasted - begun,
        )

    def _margin(self, over: float) -> float:
        if self._kind.shape == "step":
            return self._flat[over > 0]
        if self._kind.shape == "plateau" and over < 0:
            return log(0.95) + self._slope * min(0.0, over + self._flat_from)
        margin = self._slope * over
        if self._kind.shape == "queue":
            # The latency of a queue, 1 / (1 - load / capacity), up to a timeout of 20 times the limit.
            return min(3.0, -log(max(0.05, 1 - margin))) if margin < 0.95 else 3.0
        return max(-4.0, min(4.0, margin))

    def _seen(self, margin: float, error: float) -> list[float]:
        """Return the margin as it is seen at each look and at the end: samples come one after the other."""
        shares = (*_LOOKS, 1.0)
        total, before, seen = 0.0, 0.0, list[float]()
        for share in shares:
            total += sqrt(share - before) * self._draw.gauss(0, 1)
            before = share
            seen.append(margin + error * total / share)
        return seen


@dataclass(frozen=True)
class Result:
    """What a search found, beside the truth."""

    truth: float | None
    """The limit at the end of the search; None if it is not within what may be tried."""
    found: float | None
    low: float
    high: float
    ended: str
    probes: int
    seconds: float

    @property
    def covers(self) -> bool:
        """Whether the interval holds the truth; without a limit to find, whether none was named."""
        if self.truth is None:
            return self.found is None
        return self.low <= self.truth <= self.high

    @property
    def error(self) -> float | None:
        """How far the found limit is from the true one, as a share of it."""
        if self.truth is None or self.found is None:
            return None
        return abs(self.found / self.truth - 1)

    @property
    def width(self) -> float | None:
        """The width of the interval, as a share of the found limit."""
        if self.found is None or self.high == inf:
            return None
        return (self.high - self.low) / self.found


def search(target: Target, aim: Aim, *, truth: bool = True) -> Result:
    """Search a simulated target to the end, as a run does."""
    searcher, early, now, count = Searcher(aim), EarlyEnds(aim.hold), 0.0, 0

    def looks(load: float, margins: Sequence[Margin], held_for: float) -> bool | None:
        return early.clear(load, margins, (), held_for)

    while (ask := searcher.ask(now)) is not None:
        probe = target.probe(ask.load, fresh=ask.fresh or not count, at=now, hold=ask.hold, looks=looks)
        searcher.tell(probe)
        early.remember(probe.load, probe.margins, (), probe.seconds - RAMP_S - EMPTYING_S * probe.fresh)
        now += probe.seconds
        count += 1
    answer = searcher.answer
    return Result(
        target.limit(now, aim.hold) if truth else None,
        answer.limit,
        answer.low,
        answer.high,
        answer.ended,
        count,
        now,
    )
