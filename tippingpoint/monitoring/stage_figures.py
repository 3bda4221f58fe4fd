"""Measures Prometheus figures over a span of time, such as a stage's hold, for thresholds on them.

A figure that is a rate or a percentile of a rate is measured over the whole span, and needs two scrapes in it. Any
other figure is the largest of its samples in the span. A host that was not scraped never counts as one within its
limit. Nor does one with an infinite sample, such as Pacemaker's fail count of a resource that could not be started. NaN
is not a sample: exporters and PromQL return it where nothing was observed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from tippingpoint.errors import UserError
from tippingpoint.monitoring.prometheus import Prometheus, Sampled
from tippingpoint.monitoring.query_packs import Figure, Pack, host_of, packs_for
from tippingpoint.monitoring.selecting import all_but_generators, both
from tippingpoint.plan.base import Threshold
from tippingpoint.util.numbers import show_us
from tippingpoint.util.text import nearest

LOOK_BACK = 300.0
"""Seconds before a run that are searched for hosts."""
_MOST_POINTS = 300
"""The most moments of a span at which a figure is looked up."""
_GAP = 2.5
"""Intervals between two scrapes of a host beyond which it counts as not scraped. One scrape may fail."""
_SHORT = 2.5
"""Intervals in the window of a part of a rate: at least two scrapes."""
_FEWEST = 4
"""With fewer values than this, it is unknown how much they differ."""
_NAMED = 20
"""The most hosts that a message names."""
_UNITS = {"seconds": "a duration such as 10ms", "bytes": "a size such as 300MB"}


@dataclass(frozen=True)
class Wanted:
    """A figure that a threshold refers to, and the hosts that it is for."""

    name: str
    """Threshold.subject."""
    figure: Figure
    pack: Pack
    role: Literal["leader", "follower"] | None
    host: str | None
    part: str | None

    @property
    def is_rate(self) -> bool:
        """Whether it is measured over a window."""
        return "$window" in self.figure.expr


@dataclass(frozen=True)
class Measured:
    """A figure in a span of time."""

    value: float | None
    """The largest value; None if nothing was measured."""
    host: str = ""
    error: float | None = None
    """The standard error of the value's logarithm; None if it is unknown."""
    lowest: float | None = None
    """The lowest value of that host at any moment of the span: all of its samples are at least that."""
    scrapes: int = 0
    """How often that host was scraped in the span."""
    why: str = ""
    """Why the value is unknown, or does not cover all hosts."""
    unanswered: bool = False
    """Whether Prometheus did not answer."""


@dataclass
class Scrapes:
    """When hosts were scraped in a span of time (Unix seconds)."""

    good: dict[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    """The times of successful scrapes by host; of its slowest job that had any."""
    interval: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds between scrapes by host, as far as they are known."""

    def gap(self, host: str, begin: float, end: float) -> float:
        """Return for how many seconds a host was not scraped, if that is too long; otherwise 0."""
        times = [begin, *self.good.get(host, ()), end]
        longest = max(later - earlier for earlier, later in pairwise(times))
        interval = self.interval.get(host)
        return longest if interval is not None and longest > _GAP * interval else 0.0


def wanted_figures(target_kind: str, thresholds: Iterable[tuple[str, Threshold]]) -> list[Wanted]:
    """Return the figures that thresholds refer to; each comes with the plan's field that has it.

    Raises UserError for a figure that the target's packs do not have, or a limit in another unit than the figure's.
    """
    packs = packs_for(target_kind)
    known = {figure.name: (pack, figure) for pack in packs for figure in pack.figures}
    found: list[Wanted] = []
    for where, threshold in thresholds:
        name = threshold.figure or ""
        if name not in known:
            raise UserError(f"{where}.figure", name, f"one of {', '.join(known)}{nearest(name, known)}")
        pack, figure = known[name]
        _check_unit(where, threshold, figure)
        if threshold.role is not None and not pack.leader:
            leading = [name for name, (each, _) in known.items() if each.leader]
            accepted = f"none: the pack of {figure.name} does not know who leads"
            raise UserError(
                f"{where}.role",
                threshold.role,
                f"{accepted}; only {', '.join(leading)} have a role" if leading else accepted,
            )
        if threshold.part is not None and not figure.part:
            raise UserError(f"{where}.part", threshold.part, f"none: {figure.name} has no parts")
        found.append(Wanted(threshold.subject, figure, pack, threshold.role, threshold.host, threshold.part))
    return found


def _check_unit(where: str, threshold: Threshold, figure: Figure) -> None:
    written = threshold.quantity.unit
    needed = figure.unit if figure.unit in _UNITS else ""
    if written != needed:
        accepted = _UNITS.get(figure.unit, f"a number ({figure.unit})")
        raise UserError(
            f"{where}.at_most", threshold.at_most, f"{accepted}, as {figure.name} is in {figure.unit}"
        )


class StageFigures:
    """Measures the figures that a plan's thresholds refer to. All times are Unix seconds of Prometheus' clock."""

    def __init__(self, prometheus: Prometheus, wanted: Sequence[Wanted], selector: str = "") -> None:
        """`selector` are label matchers, without braces, for the target's series."""
        self._prometheus = prometheus
        self.wanted = wanted
        self._selector = both(selector, all_but_generators(()))
        self._seen: dict[str, set[str]] = {one.name: set() for one in wanted}
        """The hosts that had each figure at any time."""
        self._intervals: dict[str, float] = {}
        """The last known seconds between scrapes of each host."""

    async def scrapes(self, begin: float, end: float) -> Scrapes:
        """Return when hosts were scraped."""
        query = f"up{{{self._selector}}}[{_span(begin, end)}]"
        by_host: dict[str, list[tuple[Sequence[float], Sequence[float]]]] = {}
        for series in await self._prometheus.query(query, end):
            inside = series.times > begin
            made, up = series.times[inside], series.values[inside]
            by_host.setdefault(host_of(series.labels), []).append((made.tolist(), made[up == 1].tolist()))
        found = Scrapes()
        for host, jobs in by_host.items():
            answering = [job for job in jobs if job[1]] or jobs
            made, good = min(answering, key=lambda job: len(job[1]))
            found.good[host] = good
            if len(made) > 1:
                self._intervals[host] = max(float(np.median(np.diff(made))), 0.001)
        found.interval.update(self._intervals)
        return found

    def interval(self, one: Wanted) -> float | None:
        """Return the seconds between scrapes of the slowest host that has a figure; None if they are unknown."""
        hosts = self._seen[one.name] if one.host is None else {one.host}
        return max((self._intervals[host] for host in hosts if host in self._intervals), default=None)

    async def measure(self, begin: float, end: float) -> dict[str, Measured]:
        """Measure each figure in a span of time.

        Raises OperationFailed or TargetError if Prometheus does not answer.
        """
        if end - begin < 1:
            return {
                one.name: Measured(None, why="it was measured for less than a second") for one in self.wanted
            }
        scrapes = await self.scrapes(begin, end)
        return {one.name: await self._measure(one, begin, end, scrapes) for one in self.wanted}

    async def _measure(self, one: Wanted, begin: float, end: float, scrapes: Scrapes) -> Measured:
        interval = min(scrapes.interval.values(), default=end - begin)
        step = max(interval, (end - begin) / _MOST_POINTS, 0.1)
        first = end - math.floor((end - begin) / step) * step
        leads = await self._leads(one, first, end, step)
        if leads is not None and not any(leads.values()):
            return Measured(None, why="no leader is known")
        window = math.ceil(_SHORT * (self.interval(one) or interval)) if one.is_rate else 60
        over_time = await self._prometheus.query_range(
            one.figure.query(window, self._selector), first, end, step
        )
        whole: dict[tuple[str, str], float] = {}
        if one.is_rate:
            query = one.figure.query(_span(begin, end), self._selector)
            for series in await self._prometheus.query(query, end):
                whole[_key(one, series)] = float(series.values[-1])
        self._seen[one.name] |= {series.labels.get("host", "") for series in over_time}
        self._seen[one.name] |= {host for host, _ in whole}
        found: list[Measured] = []
        unknown: dict[str, str] = {}
        for host in sorted(self._seen[one.name]):
            if (one.host is not None and host != one.host) or not _has_role(one, host, leads):
                continue
            why = _not_scraped(one, host, scrapes, begin, end)
            values = [
                measured
                for series in over_time
                if series.labels.get("host", "") == host
                and (one.part is None or _key(one, series)[1] == one.part)
                if (measured := _of_series(one, series, host, scrapes, leads, window, begin, whole))
                is not None
            ]
            found += values
            if not why and any(_is_infinite(one, series, host, begin, whole) for series in over_time):
                why = "had an infinite sample"
            if why or not values:
                unknown[host] = why or "had no valid sample"
        if not found:
            if unknown:
                return Measured(None, why=_told(unknown))
            return Measured(None, why=f"Prometheus has no samples of it: its source is {one.figure.source}")
        largest = max(found, key=lambda each: each.value or 0.0)
        if not unknown:
            return largest
        return replace(largest, why=_told(unknown))

    async def _leads(
        self, one: Wanted, first: float, end: float, step: float
    ) -> dict[str, set[float]] | None:
        """Return at which moments each host led; None if the role does not matter."""
        if one.role is None:
            return None
        found = await self._prometheus.query_range(one.pack.leader_query(self._selector), first, end, step)
        return {
            series.labels.get("host", ""): {round(t, 3) for t in series.times[series.values >= 1].tolist()}
            for series in found
        }


def _of_series(
    one: Wanted,
    series: Sampled,
    host: str,
    scrapes: Scrapes,
    leads: Mapping[str, set[float]] | None,
    window: float,
    begin: float,
    whole: Mapping[tuple[str, str], float],
) -> Measured | None:
    """Return what a series of a host shows; None if it has nothing valid."""
    good = scrapes.good.get(host, ())
    if not good:
        return None
    # A sample from before the span, or a rate whose window begins before it, says nothing about it.
    since = begin + window if one.is_rate else good[0]
    valid = (series.times >= since) & np.isfinite(series.values)
    if not one.is_rate and leads is not None:
        led = leads.get(host, set())
        valid &= np.asarray([(round(t, 3) in led) == (one.role == "leader") for t in series.times.tolist()])
    values = series.values[valid]
    if one.is_rate:
        value = whole.get(_key(one, series), math.nan)
        if not math.isfinite(value):
            return None
    elif values.size:
        value = float(values.max())
    else:
        return None
    independent = len(good) / _SHORT if one.is_rate else float(min(values.size, len(good)))
    return Measured(
        value=value,
        host=host,
        error=_error(values.tolist(), independent),
        lowest=min([value, *values.tolist()]),
        scrapes=len(good),
    )


def _is_infinite(
    one: Wanted, series: Sampled, host: str, begin: float, whole: Mapping[tuple[str, str], float]
) -> bool:
    """Return whether a series of a host, of the wanted part, was infinite in a span that begins then."""
    of_host, part = _key(one, series)
    if of_host != host or one.part not in (None, part):
        return False
    if one.is_rate:
        return math.isinf(whole.get((of_host, part), 0.0))
    return bool(np.isinf(series.values[series.times >= begin]).any())


def _error(values: Sequence[float], independent: float) -> float | None:
    logs = [math.log(value) for value in values if value > 0]
    if len(logs) < _FEWEST or independent < _FEWEST:
        return None
    return float(np.std(logs, ddof=1)) / math.sqrt(independent)


def _has_role(one: Wanted, host: str, leads: Mapping[str, set[float]] | None) -> bool:
    """Return whether a host had the role at any moment; for a rate, whether the host should count with the role."""
    if leads is None:
        return True
    led = bool(leads.get(host))
    if one.role == "leader":
        return led
    return not led or not one.is_rate


def _not_scraped(one: Wanted, host: str, scrapes: Scrapes, begin: float, end: float) -> str:
    """Return why a host was scraped too rarely; empty if it was scraped often enough."""
    needed = 2 if one.is_rate else 1
    good = scrapes.good.get(host, ())
    if len(good) < needed:
        times = {0: "was not scraped", 1: "was scraped once"}[len(good)]
        wants = ", and a rate needs two scrapes" if needed > 1 and good else ""
        return f"{times} within {show_us((end - begin) * 1e6)}{wants}"
    gap = scrapes.gap(host, begin, end)
    return f"was not scraped for {show_us(gap * 1e6)}" if gap else ""


def _told(unknown: Mapping[str, str]) -> str:
    host = next(iter(unknown))
    more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
    return f"{host} {unknown[host]}{more}"


def _key(one: Wanted, series: Sampled) -> tuple[str, str]:
    part = one.figure.part
    return series.labels.get("host", ""), series.labels.get(part, "") if part else ""


def _span(begin: float, end: float) -> str:
    """Return the range of a span, which does not begin before it."""
    return f"{max(1, math.floor(end - begin))}s"


def check_hosts(place: str, threshold: Threshold, scrapes: Scrapes) -> None:
    """Raise UserError if a threshold, in the plan's field `place`, names a host that is not scraped."""
    if threshold.host is not None and threshold.host not in scrapes.good:
        known = ", ".join(sorted(scrapes.good)[:_NAMED])
        accepted = f"one of {known}" if known else "a host that Prometheus scrapes: it scrapes none"
        raise UserError(f"{place}.host", threshold.host, accepted)
