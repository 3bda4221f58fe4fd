"""Searches for the load at which a target tips: chooses each next load, and decides when to end.

A search has no state other than its aim and its probes. So an interrupted run, a report and a new leader unit derive
the same loads and the same answer from the same probes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from math import ceil, exp, floor, inf, log

import numpy as np

from tippingpoint.analysis.search.answer import Answer, CurvePoint, Ended, Shape
from tippingpoint.analysis.search.beliefs import SOFTNESS, Beliefs, Evidence
from tippingpoint.analysis.search.normal import FloatArray
from tippingpoint.analysis.search.probes import GENERATOR, Probe, generator_words

LEVEL = 0.95
_UNDER, _NAMED, _OVER = 0.0125, 0.4, 0.0375
"""The shares of the posterior below the 95 % interval, below the named limit, and above the interval.

They are not 0.025, a half and 0.025, because the posterior reaches too far up: lasting damage is rare but hard to
exclude. With those shares, for soft or drifting limits, nine in ten of the missed limits lay below the interval, and
poorly known limits were named 1 to 3 % too high (simulated targets of seeds 2062 to 2066).
"""
_MOST = 60
"""The maximum number of probes of a search."""
_BELOW_ABORTED = 0.9
"""After an aborted load, only loads up to this share of it are tried, because larger ones would harm the target too."""
_ENOUGH = 10
"""The number of probes, since loads both held and broke, after which the search estimates how many more are needed."""
_REACH = 27
"""A search that would need more than this many such probes in total ends."""
_FAIR = 0.2
"""If the requested interval is out of reach, the search still narrows it to this share of the limit, if it can."""
_SETTLED = 20
"""After this many, doubts alone (a soft or drifting limit, or lasting damage) do not keep a search going."""
_OF_MIDDLE_HALF = 2.906
"""The width of a normal distribution's 95 % interval as a multiple of that of its middle half: 1.960 / 0.6745."""
_FEWEST = 8
"""The minimum number of probes, since loads both held and broke, for a credible interval: they show its sharpness."""
_MUTE = 3
"""This many inconclusive probes, at loads above all judged ones, show that larger loads cannot be judged. If a fifth of
all probes are inconclusive, one search in ten has two of them."""
_MUTE_IN_A_ROW = 6
"""After this many inconclusive probes in a row, a search ends, whatever their loads are."""
_DEEPEST = 1000.0
"""Loads below a thousandth of the first are not tried."""
_LEAP_MARGIN = -1.0
"""If all margins are below this (a third of what is allowed), the next load is four times as large, otherwise twice."""
_DOUBT = 0.25
"""If the chance that a broken load hurts the target is larger than this, each probe after one starts from nothing."""
_SURE = 0.9
"""The least chance at which drift, hurt and shape are reported."""
_CLIFF = 0.05 / 2.563
"""The softness of a curve that falls from 90 % to 10 % within a twentieth of the load."""
_BELOW: FloatArray = np.asarray([0.3, 0.2, 0.1])
"""How far below its interval the limit is also searched for: a load that broke may have hurt the target."""
_NEARLY = 0.01
"""A bound of the interval that is this near to a whole load counts as that load."""
_CURVE_POINTS = 61


@dataclass(frozen=True)
class Aim:
    """The task of a search."""

    start: float
    """The first load."""
    limit: float
    """The largest load that may be tried."""
    resolution: float
    """The width of the 95 % interval, as a share of the limit, at which the search ends."""
    hold: float
    """The longest that a load is held, in seconds."""
    within: float | None
    """Seconds after which no further probe begins; None without a time limit."""
    whole: bool
    """Whether loads are whole numbers."""


@dataclass(frozen=True)
class Ask:
    """The next probe."""

    load: float
    fresh: bool
    """Whether the target is emptied first."""
    hold: float
    """The longest that the load is held, in seconds."""


class Searcher:
    """One search."""

    def __init__(self, aim: Aim) -> None:
        self._aim = aim
        self._smallest = max(aim.start / _DEEPEST, 1.0 if aim.whole else 0.0)
        self._probes: list[Probe] = []
        self._beliefs = Beliefs(log(self._smallest) - 0.7, log(aim.limit) + 0.7)
        self._hurt = False
        self._broke = -inf
        """When a load last broke, in holds."""
        self._near = 0
        """The number of probes since loads had both held and broken."""

    def tell(self, probe: Probe) -> None:
        """Take the result of a probe into account."""
        self._probes.append(probe)
        if probe.held is None:
            return
        if probe.fresh:
            self._hurt = False
        middle = (probe.begun + probe.seconds / 2) / max(self._aim.hold, 1e-9)
        worst = max(probe.margins, key=lambda margin: margin.value, default=None)
        agrees = worst is not None and (worst.value <= 0) == probe.held
        self._beliefs.learn(
            Evidence(
                load=log(probe.load),
                held=probe.held,
                margin=worst.value if worst is not None and agrees else None,
                error=worst.error if worst is not None else inf,
                at=middle,
                hurt=self._hurt,
                since=middle - self._broke,
            )
        )
        if not probe.held:
            self._hurt, self._broke = True, middle
        if self._bracketed:
            self._near += 1

    def ask(self, elapsed: float) -> Ask | None:
        """Return the next probe, `elapsed` seconds after the search began; None when it has ended."""
        if self._ended(elapsed) is not None:
            return None
        load = self._next_load()
        return Ask(load, self._should_be_fresh(load), self._aim.hold)

    @property
    def answer(self) -> Answer:
        """The answer of the probes so far."""
        return self.answer_at(max((probe.begun + probe.seconds for probe in self._probes), default=0.0))

    def answer_at(self, elapsed: float) -> Answer:
        """Return the answer of the probes so far, `elapsed` seconds into the search, which may have waited since."""
        return self._answer(self._ended(elapsed) or "going on")

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the limit given the probes so far; None until loads have both held and broken."""
        if not self._bracketed:
            return None
        low, _, high = self._interval
        return low if low >= self._smallest else 0.0, high

    def beside_foreign_work(self) -> Answer:
        """Return the answer of the probes so far if the search ended because other programs did not leave."""
        return self._answer("foreign")

    def _answer(self, ended: Ended) -> Answer:
        known = [probe for probe in self._probes if probe.held is not None]
        held = [probe.load for probe in known if probe.held]
        broken = [probe.load for probe in known if not probe.held]
        nothing = Answer(
            limit=None,
            low=0.0,
            high=inf,
            ended=ended,
            binds="",
            shape="",
            withheld="",
            drifts="",
            stays_hurt="",
            share=None,
            curve=(),
        )
        if ended == "foreign":
            # Loads held even while other programs ran, but misses then do not count, so the result is
            # one-sided.
            why = next(probe.foreign for probe in reversed(self._probes) if probe.foreign)
            return replace(nothing, low=max(held, default=0.0), withheld=why)
        if not known:
            why = self._silent if self._probes else "no load was tried"
            return replace(nothing, withheld=why)
        if not broken:
            why = {
                "generator": self._silent,
                "unmeasured": self._silent,
                "unjudged": f"the last {len(self._last_mute)} probes could not be judged ({self._silent})",
                "within": "its time was over before any load failed",
            }.get(ended, "" if ended == "limit" else "no load has failed yet")
            return replace(nothing, low=max(held), withheld=why)
        if not held:
            why = "" if ended == "broken at start" else "no load has passed yet"
            return replace(nothing, high=min(broken), binds=self._binds(min(broken)), withheld=why)
        low, limit, high = self._interval
        return replace(
            nothing,
            limit=limit,
            low=low if low >= self._smallest else 0.0,  # smaller loads may not be tried
            high=high,
            share=self._surely_held(max(low, self._smallest)),
            binds=self._binds(limit),
            shape=self._shape,
            drifts=self._drift_words,
            stays_hurt=self._hurt_words,
            curve=self._curve(low, high),
        )

    # -- when it ends -----------------------------------------------------------------------------

    def _ended(self, elapsed: float) -> Ended | None:
        aim, known = self._aim, [probe for probe in self._probes if probe.held is not None]
        if self._bracketed and self._is_narrow:
            return "resolution"
        tops = [probe.held is True for probe in known if probe.load >= aim.limit]
        if len(tops) >= 2 and sum(tops) > len(tops) / 2 and self._chance_above(aim.limit) > LEVEL:
            return "limit"
        if known and not any(probe.held for probe in known):
            lowest = min(probe.load for probe in known)
            if lowest <= self._smallest * 1.001 or self._largest < self._smallest:
                return "broken at start"
        if self._is_strained:
            return self._named_silence
        beside = any(probe.foreign for probe in self._last_mute)
        if len(self._last_mute) >= _MUTE_IN_A_ROW:
            return "foreign" if beside else "unjudged"
        if aim.within is not None and elapsed >= aim.within:
            return "foreign" if beside else "within"
        if self._is_out_of_reach or len(self._probes) >= _MOST:
            return "no narrower"
        return None

    @property
    def _bracketed(self) -> bool:
        told = {probe.held for probe in self._probes}
        return True in told and False in told

    @property
    def _is_narrow(self) -> bool:
        """Whether the interval is narrow enough, and the latest load that started from nothing agrees with it.

        Whole loads are rounded outwards from it. Small whole loads would need many more probes for that width.
        """
        (low, limit, high), (from_load, _, to_load) = self._believed, self._interval
        narrow = high - low <= self._aim.resolution * limit or to_load - from_load <= self._asked(limit)
        if not narrow or self._near < _FEWEST:
            return False
        return not self._hurt_before or any(
            probe.fresh and self._is_near(probe.load) for probe in self._known[self._first_broken + 1 :]
        )

    @property
    def _is_out_of_reach(self) -> bool:
        """Whether the requested interval is out of reach: at best its width falls as the root of the number of probes.

        It falls faster if the bulk of the posterior is already narrow and a few doubts account for the remaining width.
        """
        if self._near < _ENOUGH:
            return False
        low, limit, high = self._believed
        asked, width = self._asked(limit), high - low
        from_half, to_half = self._places(0.25, 0.75)
        if self._near < _SETTLED and _OF_MIDDLE_HALF * (to_half - from_half) <= asked:
            return False
        fair = max(asked, _FAIR * limit)
        return self._needs_too_many(width, asked) and (width <= fair or self._needs_too_many(width, fair))

    def _needs_too_many(self, width: float, asked: float) -> bool:
        """Whether it would take more than `_REACH` probes to narrow this width to the requested one."""
        return self._near * (width / asked) ** 2 > _REACH

    def _asked(self, limit: float) -> float:
        """Return the width that the interval should have; for whole loads, at least the step from one to the next."""
        return max(self._aim.resolution * limit, 1.0 if self._aim.whole else 0.0)

    @property
    def _is_strained(self) -> bool:
        """Whether loads as large as the search needs next cannot be judged.

        Inconclusive probes at or below a judged load do not show this, because the generator has produced larger loads.
        """
        beyond = self._beyond
        return len(beyond) >= _MUTE and self._wanted() >= beyond[-_MUTE].load

    @property
    def _silent(self) -> str:
        """Why loads are inconclusive, in a few words: the reason of most of the probes that ended the search."""
        silent = self._beyond or self._last_mute or self._mute
        whys = [probe.silence for probe in silent]
        why = max(whys, key=whys.count, default="")
        if why == GENERATOR:
            return generator_words(whys.count(why), len(whys), bool(self._beyond and self._known))
        return why

    @property
    def _named_silence(self) -> Ended:
        whys = [probe.silence for probe in self._beyond]
        why = max(whys, key=whys.count)
        if why == GENERATOR:
            return "generator"
        if any(probe.foreign for probe in self._beyond):
            return "foreign"
        return "unmeasured" if any(probe.unmeasured == why for probe in self._beyond) else "unjudged"

    @property
    def _mute(self) -> list[Probe]:
        """The inconclusive probes, by load."""
        return sorted((probe for probe in self._probes if probe.held is None), key=lambda probe: probe.load)

    @property
    def _beyond(self) -> list[Probe]:
        """The inconclusive probes at loads above all judged ones, by load."""
        judged = max((probe.load for probe in self._known), default=0.0)
        return [probe for probe in self._mute if probe.load > judged]

    @property
    def _last_mute(self) -> list[Probe]:
        """The probes since the last one that was judged."""
        return list(takewhile(lambda probe: probe.held is None, reversed(self._probes)))

    # -- what is next -----------------------------------------------------------------------------

    def _next_load(self) -> float:
        if self._last_mute and self._last_mute[0].foreign:
            # Once more, because the run has waited until other programs left.
            return self._rounded(self._last_mute[0].load)
        wanted, beyond = self._wanted(), self._beyond
        if beyond and wanted > beyond[0].load:
            return beyond[0].load  # once more, before larger ones
        return wanted

    def _wanted(self) -> float:
        """Return the load whose probe is most informative; until the limit is bracketed, go up or down by steps."""
        aim, known = self._aim, self._known
        held = [probe for probe in known if probe.held]
        broken = [probe for probe in known if not probe.held]
        if not known:
            return self._rounded(aim.start)
        if not broken:
            largest = max(held, key=lambda probe: probe.load)
            far = largest.margins and all(margin.value < _LEAP_MARGIN for margin in largest.margins)
            return self._rounded(largest.load * (4.0 if far else 2.0))
        if not held:
            smallest = min(probe.load for probe in broken)
            again = sum(probe.load == smallest for probe in broken)
            return self._rounded(max(self._smallest, smallest / (2.0 if again < 3 else 4.0)))
        now = self._now
        shares = np.linspace(0.02, 0.98, 25)
        places = np.asarray(self._beliefs.limit(now, [float(share) for share in shares]))
        wide = (places[-1] - places[0]) * 0.25
        places = np.concatenate([places[0] - wide - _BELOW, [places[0] - wide], places, [places[-1] + wide]])
        gains = self._beliefs.gain(places, now, hurt=self._hurt, since=now - self._broke)
        return self._rounded(exp(float(places[int(np.argmax(gains))])))

    @property
    def _largest(self) -> float:
        """The largest load that may be tried."""
        aborted = (_BELOW_ABORTED * probe.load for probe in self._probes if probe.aborted)
        return min([self._aim.limit, *aborted])

    def _rounded(self, load: float) -> float:
        aim, most = self._aim, self._largest
        load = min(max(load, self._smallest), most)
        if not aim.whole:
            return float(f"{load:.4g}") if float(f"{load:.4g}") <= most else load
        low, high = floor(load), ceil(load)
        if low == high or low < 1:
            return float(max(high, 1))
        # Choose the neighbour that was tried less often: a sharp limit lies between the two.
        tried = [sum(probe.load == near for probe in self._probes) for near in (low, high)]
        if tried[0] == tried[1]:
            return float(min(round(load), floor(most)))
        return float(low if tried[0] < tried[1] else min(high, int(most)))

    def _should_be_fresh(self, load: float) -> bool:
        """Whether a probe starts from nothing: once near the limit, and always if the target seems to stay hurt."""
        if not self._hurt_before or not self._bracketed:
            return False
        if self._beliefs.hurt > _DOUBT:
            return self._hurt
        if not self._is_near(load):
            return False
        fresh = sum(probe.fresh for probe in self._known[self._first_broken + 1 :])
        return fresh == 0 or (fresh == 1 and self._width <= 2 * self._aim.resolution)

    # -- what is known ----------------------------------------------------------------------------

    @property
    def _known(self) -> list[Probe]:
        return [probe for probe in self._probes if probe.held is not None]

    @property
    def _hurt_before(self) -> bool:
        return any(not probe.held for probe in self._known)

    @property
    def _first_broken(self) -> int:
        return next((place for place, probe in enumerate(self._known) if not probe.held), len(self._known))

    @property
    def _now(self) -> float:
        last = max((probe.begun + probe.seconds for probe in self._probes), default=0.0)
        return last / max(self._aim.hold, 1e-9)

    @property
    def _interval(self) -> tuple[float, float, float]:
        """Return low, limit and high. With whole loads, the limit lies between two, so the interval includes both."""
        low, middle, high = self._believed
        if self._aim.whole:
            low, high = float(floor(low + _NEARLY)), float(ceil(high - _NEARLY))
            middle = min(max(middle, low), high)
        return low, middle, high

    @property
    def _believed(self) -> tuple[float, float, float]:
        """Return low, limit and high as they are shown."""
        low, middle, high = self._places(_UNDER, _NAMED, 1 - _OVER)
        return low, middle, high

    def _places(self, *shares: float) -> list[float]:
        """Return the loads below which these shares of the limit's posterior lie."""
        return [exp(each) for each in self._beliefs.limit(self._now, shares)]

    @property
    def _width(self) -> float:
        low, limit, high = self._interval
        return (high - low) / limit

    def _is_near(self, load: float) -> bool:
        low, limit, high = self._interval
        room = self._asked(limit)
        return low - room <= load <= high + room

    def _chance_above(self, load: float) -> float:
        shares = np.linspace(0.005, 0.995, 199)
        places = self._beliefs.limit(self._now, [float(share) for share in shares])
        return float(np.mean(np.asarray(places) > log(load)))

    def _surely_held(self, load: float) -> float:
        """Return the minimum share of holds at a load that meet the thresholds, with confidence `LEVEL`."""
        chances, weights = self._beliefs.chance(np.asarray([log(load)]), self._now)
        order = np.argsort(chances[:, 0])
        place = int(np.searchsorted(np.cumsum(weights[order]), 1 - LEVEL))
        return float(chances[order, 0][min(place, len(order) - 1)])

    def _binds(self, limit: float) -> str:
        """Return the margin that is largest in the broken probes nearest to the limit."""
        broken = [probe for probe in self._known if not probe.held and probe.margins]
        nearest = sorted(broken, key=lambda probe: abs(log(probe.load / max(limit, 1e-12))))[:3]
        names = [max(probe.margins, key=lambda margin: margin.value).name for probe in nearest]
        return max(names, key=names.count) if names else ""

    @property
    def _shape(self) -> Shape:
        sharp = float(self._beliefs.softness[SOFTNESS <= _CLIFF].sum())
        if sharp >= _SURE:
            return "cliff"
        return "smooth" if sharp <= 1 - _SURE else ""

    @property
    def _drift_words(self) -> str:
        chance = self._beliefs.drifts
        if abs(chance) < _SURE:
            return ""
        return (
            "the limit rose while the search went on"
            if chance > 0
            else "the limit fell while the search went on"
        )

    @property
    def _hurt_words(self) -> str:
        if self._beliefs.hurt_for_long >= _SURE:
            return "after a load that failed, loads that had passed failed too, though the target was emptied"
        if self._beliefs.hurt + self._beliefs.hurt_for_long < _SURE:
            return ""
        return "after a load that failed, loads that had passed failed too until the target was emptied"

    def _curve(self, low: float, high: float) -> tuple[CurvePoint, ...]:
        tried = [log(probe.load) for probe in self._known]
        reach = max(0.25, 2 * log(max(high, 1e-12) / max(low, 1e-12)))
        first = min(max(min(tried) - 0.1, log(max(low, 1e-12)) - reach), log(max(low, 1e-12)) - 0.02)
        last = max(min(max(tried) + 0.1, log(high) + reach), log(high) + 0.02)
        loads: FloatArray = np.linspace(first, last, _CURVE_POINTS)
        chances, weights = self._beliefs.chance(loads, self._now)
        points: list[CurvePoint] = []
        for place, load in enumerate(loads):
            order = np.argsort(chances[:, place])
            values, summed = chances[order, place], np.cumsum(weights[order])
            edges = np.searchsorted(summed, [_UNDER, _NAMED, 1 - _OVER])
            low_chance, chance, high_chance = (
                float(values[min(int(edge), len(values) - 1)]) for edge in edges
            )
            points.append(CurvePoint(exp(float(load)), chance, low_chance, high_chance))
        return tuple(points)


def searcher_for(aim: Aim, probes: Sequence[Probe], names: Sequence[str]) -> Searcher:
    """Return a search over the same probes, judged by the margins of these names alone.

    A probe without any of these margins is inconclusive, but not because of the generator.
    """
    searcher = Searcher(replace(aim, within=None))
    for probe in probes:
        margins = tuple(margin for margin in probe.margins if margin.name in names)
        if probe.held is not None and not margins:
            probe = replace(probe, held=None, unjudged="not every probe measured it")
        held = None if probe.held is None else all(margin.value <= 0 for margin in margins)
        searcher.tell(replace(probe, margins=margins, held=held))
    return searcher
