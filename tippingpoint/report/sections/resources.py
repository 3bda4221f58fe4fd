"""Builds the section on the target's resource use: its hosts' figures over time, hosts that differ, and missing data.

A *row* is one part (a process, a vhost) of one figure, or the whole figure if it has no parts. Values are in the
figure's unit. A typical value is the mean of a rate, or the median of anything else, from the first stage's start to
the last one's end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tippingpoint.analysis.cost import Cost
from tippingpoint.report import figures
from tippingpoint.rundir.histogram import FloatArray
from tippingpoint.rundir.resources import MOST_POINTS, FigureData, Resources, Roles
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.util.numbers import show_times
from tippingpoint.util.text import show_amount, show_count

LINES = 8
"""The most series with a line each on a chart. With more, it has the leader's line and the others' range and median."""
_PARTS = 6
"""The maximum number of parts on a chart of roles; the largest are shown."""
_COLUMNS = 24
"""The maximum number of figures in the table of hosts."""
_APART = 1.5
"""The least ratio to the others' median for a host to stand out ..."""
_LASTING = 2 / 3
"""... and the least share of the time above the highest of them. By chance, one of three hosts reaches a third."""
_FEW = 5
"""The least number of points for a host to stand out."""
_NAMED = 3
_OF_SCRAPES = "scrape"
"""The pack of figures about the scraping itself, which say nothing about the target."""


@dataclass(frozen=True)
class _Apart:
    """A host, or the leader (an empty name), compared with the others; `ratio` is None if these have nothing."""

    figure: FigureData
    part: str
    host: str
    value: float
    others: float
    ratio: float | None


def build_resources(run: RunData, costs: Sequence[Cost]) -> dict[str, Any] | None:
    """Build the document's part on the target's resources; None if no figures were collected.

    `sentence` says which host is above the others. Each figure has `lines` for its series if they are few.
    Otherwise `roles` has the leader's line, and the others' `low`, `middle` and `high` by part. All are on the grid
    `t` (seconds since the start). `led` is the leader's line over `lines`. `rows` sum the figure up; `by_host`
    compares hosts. `costs` are those that exceed noise; `no_costs` says why others are not shown. `missing` are figures
    without data; those not `scraped` have no source in Prometheus. `gaps` are the times in which hosts were not
    scraped; `clock` has the seconds by which clocks were ahead.
    """
    found = run.resources
    if found is None:
        return None
    thin = slice(None, None, max(1, -(-len(found.t) // MOST_POINTS)))
    measured = _measured(run, found)
    views = [_Figure(found, figure, measured) for figure in found.figures if figure.series and _told(figure)]
    apart = [entry for view in views if view.of_target for entry in view.apart]
    return {
        "source": found.source,
        "step": found.step,
        "t": found.t[thin],
        "hosts": _hosts(found, views),
        "leader": [{"t": t, "host": host} for t, host in found.leader],
        "sentence": _sentence(run, found, views, apart),
        "figures": [view.entry(thin) for view in views],
        "by_host": _by_host(found, views, measured),
        **_costs(costs),
        "missing": [{"what": what, "why": why, "scraped": was_scraped(why)} for what, why in found.missing],
        "gaps": joined_gaps(found),
        "clock": [{"host": host, "ahead": ahead} for host, ahead in sorted(found.clock.items())],
    }


def was_scraped(why: str) -> bool:
    """Return whether Prometheus had any data for a figure that is missing for this reason (monitoring.gather)."""
    return not why.startswith(("no samples: ", "nothing was sampled: "))


def _told(figure: FigureData) -> bool:
    """Return whether a figure belongs here. Figures that only show saturation are in the part `causes`."""
    return figure.chart or bool(figure.cost) or figure.limit is None


def _costs(every: Sequence[Cost]) -> dict[str, Any]:
    return {
        "costs": [
            {
                **asdict(cost),
                **{name: getattr(cost, name) for name in ("base_words", "interval", "sentence")},
            }
            for cost in every
            if cost.is_told
        ],
        "no_costs": list(dict.fromkeys(cost.withheld for cost in every if cost.withheld)),
    }


def _hosts(found: Resources, views: Sequence[_Figure]) -> list[str]:
    """Return the target's hosts, without those that have only figures about scraping, such as Prometheus itself."""
    there = {series.host for view in views if view.of_target for series in view.figure.series}
    return [host for host in found.hosts if host in there]


def _measured(run: RunData, found: Resources) -> NDArray[np.bool_]:
    """Return which moments are within stages, or all moments since the start if none are."""
    t = np.asarray(found.t, dtype=np.float64)
    if run.stages:
        end = run.stages[-1].end
        inside = (t >= run.stages[0].begin) & (t <= (end if end is not None else np.inf))
        if inside.any():
            return inside
    return t >= 0


class _Figure:
    """One figure, with the roles of its hosts in each of its parts."""

    def __init__(self, found: Resources, figure: FigureData, measured: NDArray[np.bool_]) -> None:
        self.figure, self.found, self.measured = figure, found, measured
        self.of_target = figure.pack != _OF_SCRAPES
        self.parts = figure.parts
        self.roles = {part: found.roles(figure, part) for part in self.parts}
        self.hosts = len({series.host for series in figure.series})
        self.apart: list[_Apart] = []
        self._rows = [self._row(part) for part in self.parts]

    def entry(self, thin: slice) -> dict[str, Any]:
        """Return the figure for the document, with the values that `thin` selects."""
        figure = self.figure
        few = len(figure.series) <= LINES
        largest = self.largest(len(self.parts) if few else _PARTS)
        return {
            "name": figure.name,
            "title": figure.title,
            "unit": figure.unit,
            "meaning": figure.meaning,
            "pack": figure.pack,
            "window": figure.window,
            "chart": figure.chart,
            "always_zero": all(not value for series in figure.series for value in series.values),
            "lines": [
                {"host": series.host, "part": series.part, "values": _short(series.values[thin])}
                for series in (figure.series if few else [])
            ],
            "led": [
                {"part": part, "values": _short(self.roles[part].leader[thin])}
                for part in (largest if few and self.hosts > 1 else [])
                if any(value is not None for value in self.roles[part].leader)
            ],
            "roles": [] if few else [_role_lines(part, self.roles[part], thin) for part in largest],
            "parts_left_out": len(self.parts) - len(largest),
            "rows": self._rows,
        }

    def largest(self, most: int) -> list[str]:
        """Return the `most` parts with the highest peaks, in the figure's order."""
        if len(self.parts) <= most:
            return self.parts
        peaks = {part: _peak(self.roles[part]) for part in self.parts}
        kept = sorted(self.parts, key=lambda part: -peaks[part])[:most]
        return [part for part in self.parts if part in kept]

    def _row(self, part: str) -> dict[str, Any]:
        roles = self.roles[part]
        leader, middle, high = (self._within(v) for v in (roles.leader, roles.middle, roles.high))
        hosts = self._by_host(part)
        highest = max(hosts, key=lambda host: hosts[host][0], default=None)
        led = not np.isnan(leader).all() if leader.size else False
        apart = None
        if led:
            apart = self._compared(part, "", leader, middle, high)
        elif highest is not None and len(hosts) > 1:
            others = np.asarray([values for host, (_, values) in hosts.items() if host != highest])
            apart = self._compared(part, highest, hosts[highest][1], *_middle_and_high(others))
        return {
            "part": part,
            "hosts": len(hosts),
            "leader": self._told(leader) if led else None,
            "others": self._told(middle, high),
            "ratio": None if apart is None else apart.ratio,
            "highest": None if highest is None else {"host": highest, "typical": hosts[highest][0]},
            "stands_out": apart is not None and apart in self.apart,
        }

    def _compared(
        self, part: str, host: str, one: FloatArray, middle: FloatArray, high: FloatArray
    ) -> _Apart | None:
        """Compare one host with the others, if both are known, and add it to `apart` if it stands out."""
        both = ~(np.isnan(one) | np.isnan(high))
        if not both.any():
            return None
        value, others = self._typical(one[both]), self._typical(middle[both])
        ratio = _rounded(value / others) if others > 0 and value >= 0 else None
        entry = _Apart(self.figure, part, host, value, others, ratio)
        lasting = both.sum() >= _FEW and float(np.mean(one[both] > high[both])) >= _LASTING
        if lasting and value > 0 and (others == 0 or (ratio is not None and ratio >= _APART)):
            self.apart.append(entry)
        return entry

    def _by_host(self, part: str) -> dict[str, tuple[float, FloatArray]]:
        """Return for each host its typical value and its values."""
        values = {
            series.host: self._within(series.values) for series in self.figure.series if series.part == part
        }
        return {host: (_rounded(self._typical(v)), v) for host, v in values.items() if not np.isnan(v).all()}

    def by_host(self, part: str) -> dict[str, float]:
        """Return the typical value of each host."""
        return {host: typical for host, (typical, _) in self._by_host(part).items()}

    def _typical(self, values: FloatArray) -> float:
        return self.figure.typical(values[~np.isnan(values)].tolist())

    def _told(self, values: FloatArray, highest: FloatArray | None = None) -> dict[str, float] | None:
        """Return the typical value, and the maximum (of `highest`, if given)."""
        if np.isnan(values).all():
            return None
        return {
            "typical": _rounded(self._typical(values)),
            "max": _rounded(float(np.nanmax(values if highest is None else highest))),
        }

    def _within(self, values: Sequence[float | None]) -> FloatArray:
        return np.asarray(values, dtype=np.float64)[self.measured]


def _role_lines(part: str, roles: Roles, thin: slice) -> dict[str, Any]:
    known = any(value is not None for value in roles.leader)
    return {
        "part": part,
        "leader": _short(roles.leader[thin]) if known else None,
        "low": _short(roles.low[thin]),
        "middle": _short(roles.middle[thin]),
        "high": _short(roles.high[thin]),
    }


def _peak(roles: Roles) -> float:
    return max((v for values in (roles.leader, roles.high) for v in values if v is not None), default=0.0)


def _middle_and_high(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return median and maximum of each column; NaN for an empty column."""
    known = ~np.isnan(rows).all(axis=0)
    middle, high = np.full(rows.shape[1], np.nan), np.full(rows.shape[1], np.nan)
    middle[known] = np.nanmedian(rows[:, known], axis=0)
    high[known] = np.nanmax(rows[:, known], axis=0)
    return middle, high


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _short(values: Iterable[float | None]) -> list[float | None]:
    """Round to four significant digits, which is more than a chart shows and keeps the page small."""
    return [None if value is None else _rounded(value) for value in values]


# ---- outstanding hosts -----------------------------------------------------------------------------


def _sentence(run: RunData, found: Resources, views: Sequence[_Figure], apart: Sequence[_Apart]) -> str:
    told = sum(len(view.parts) for view in views if view.of_target)
    if not told:
        return "No figure of the target was measured."
    if len(_hosts(found, views)) < 2:
        return _growth_sentence(run, found, views)
    if not apart:
        return (
            f"The hosts are alike: in none of {figures.number(told)} figures is any of them at "
            f"{figures.number(_APART)} times the others' median or more for most of the time."
        )
    # Figures with a cost, and those that differ most, come first.
    ordered = sorted(apart, key=lambda e: (not e.figure.cost, e.ratio is None, -(e.ratio or 0.0)))
    shared = _shared_titles(views)
    led = [entry for entry in ordered if not entry.host]
    if led:
        return f"The leader is above the followers' median in {_apart_words(led, shared)}{_who_led(found)}."
    hosts = {entry.host: [e for e in ordered if e.host == entry.host] for entry in ordered}
    first = ordered[0].host
    rest = len(hosts) - 1
    more = (
        f"; so {'are' if rest > 1 else 'is'} {show_count(rest, 'other host')} in other figures"
        if rest
        else ""
    )
    return (
        f"{first} is above the others' median in {_apart_words(hosts[first], shared)}{more}. "
        "Hosts that do different work differ for that reason alone."
    )


def _shared_titles(views: Sequence[_Figure]) -> set[str]:
    """Return titles that several packs share, such as the CPU of host and daemon."""
    titles = Counter(view.figure.title for view in views)
    return {title for title, count in titles.items() if count > 1}


def _apart_words(entries: Sequence[_Apart], shared: set[str]) -> str:
    parts: list[str] = []
    for entry in entries[:_NAMED]:
        name = _name(entry.figure, entry.part, shared)
        value = figures.quantity(entry.value, entry.figure.unit)
        parts.append(f"{name} ({f'{value} against none' if entry.ratio is None else _times(entry.ratio)})")
    more = len(entries) - len(parts)
    return figures.listed([*parts, *([show_count(more, "more figure")] if more else [])])


def _times(ratio: float) -> str:
    return show_times(ratio)


def _name(figure: FigureData, part: str, shared: set[str]) -> str:
    """Write a figure's name within a sentence: resident memory of jujud, CPU (host)."""
    title = figure.title
    words = title[:1].lower() + title[1:] if title[1:2].islower() else title  # CPU stays in capitals
    if part:
        return f"{words} of {part}"
    return f"{words} ({figure.pack})" if title in shared else words


def _who_led(found: Resources) -> str:
    end = found.t[-1] if found.t else 0.0
    names = {found.leading(0.0), *(host for t, host in found.leader if 0 <= t <= end)} - {""}
    if len(names) == 1:
        return f"; {names.pop()} led throughout"
    return f"; {len(names)} hosts led in turn" if names else ""


def _growth_sentence(run: RunData, found: Resources, views: Sequence[_Figure]) -> str:
    """Say what grew with the load on a target with one host."""
    held = [stage for stage in run.stages if stage.is_step and stage.hold_begin is not None]
    if not held:
        return "Nothing to compare: there is one host, and no stage reached its hold."
    first, last = min(held, key=lambda stage: stage.size), max(held, key=lambda stage: stage.size)
    unit = run.manifest.load_unit
    grown: list[tuple[bool, float, str]] = []
    shared = _shared_titles(views)
    for view in views:
        for part in view.parts:
            before, after = (
                _in_hold(found, view.figure, view.roles[part].total, stage) for stage in (first, last)
            )
            if view.of_target and before is not None and after is not None and before > 0:
                ratio = after / before
                shown = " to ".join(figures.quantity(v, view.figure.unit) for v in (before, after))
                words = f"{_name(view.figure, part, shared)} {_times(ratio)} ({shown})"
                grown.append((bool(view.figure.cost), ratio, words))
    between = f"between {figures.number(first.size)} and {show_amount(last.size, unit)}"
    most = [words for _, ratio, words in sorted(grown, reverse=True) if ratio >= _APART][:_NAMED]
    if first.size == last.size:
        return "Nothing to compare: there is one host and one load."
    if not most:
        return f"No figure grew by half or more {between}."
    return f"Largest growth {between}: {figures.listed(most)}."


def _in_hold(
    found: Resources, figure: FigureData, values: Sequence[float | None], stage: StageResult
) -> float | None:
    """Return the typical value while a stage was held; None if unknown."""
    begin = stage.hold_begin if stage.hold_begin is not None else stage.begin
    end = stage.end if stage.end is not None else float("inf")
    inside = [v for t, v in zip(found.t, values, strict=True) if v is not None and begin <= t <= end]
    return figure.typical(inside) if inside else None


# ---- tables ---------------------------------------------------------------------------------------


def _by_host(
    found: Resources, views: Sequence[_Figure], measured: NDArray[np.bool_]
) -> dict[str, Any] | None:
    """Return each host's typical values, with a column for each row of a figure of several hosts; None with one host.

    `led` is the share of the time for which a host led.
    """
    hosts = _hosts(found, views)
    columns = [(view, part) for view in views if view.hosts > 1 for part in view.largest(_NAMED)][:_COLUMNS]
    if len(hosts) < 2 or not columns:
        return None
    typical = [view.by_host(part) for view, part in columns]
    leading = [found.leading(t) for t, inside in zip(found.t, measured, strict=True) if inside]
    return {
        "columns": [
            {
                "figure": view.figure.name,
                "title": view.figure.title,
                "pack": view.figure.pack,
                "part": part,
                "unit": view.figure.unit,
            }
            for view, part in columns
        ],
        "rows": [
            {
                "host": host,
                "led": leading.count(host) / len(leading) if leading else 0.0,
                "values": [found_of.get(host) for found_of in typical],
            }
            for host in hosts
        ],
    }


def joined_gaps(found: Resources) -> list[dict[str, Any]]:
    """Return when hosts were not scraped: overlaps are joined, and gaps before the run's start left out."""
    joined: list[dict[str, Any]] = []
    for since, until, host in sorted(found.gaps):
        if until <= 0:
            continue
        since = max(0.0, since)
        if joined and since <= joined[-1]["to"]:
            joined[-1]["to"] = max(joined[-1]["to"], until)
            if host not in joined[-1]["hosts"]:
                joined[-1]["hosts"].append(host)
        else:
            joined.append({"from": since, "to": until, "hosts": [host]})
    return joined


def leader_marks(run: RunData) -> list[dict[str, Any]]:
    """Return the marks on charts for leader changes that the target's own figures show."""
    if run.resources is None:
        return []
    return [
        {"t": t, "kind": "leader", "text": f"{host} leads" if host else "nobody leads"}
        for number, (t, host) in enumerate(run.resources.leader)
        if number and t >= 0
    ]
