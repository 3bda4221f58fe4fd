"""Gathers a run's resources from a Prometheus: the figures of packs over the run's time, on one grid of moments.

A figure that fails or has no samples is recorded as missing. If Prometheus is gone, all remaining figures are missing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.monitoring.naming import INSTANCES, NODES, known_as, member_names, renamed
from tippingpoint.monitoring.prometheus import Prometheus, Sampled
from tippingpoint.monitoring.query_packs import Figure, Pack, by_host, packs_for
from tippingpoint.monitoring.selecting import all_but_generators, both
from tippingpoint.rundir.clock import ahead_at_end, boot_id, since_boot
from tippingpoint.rundir.cluster_events import Member, read_cluster
from tippingpoint.rundir.resources import (
    MOST_POINTS,
    MOST_SERIES,
    PROMETHEUS,
    FigureData,
    Resources,
    Series,
)
from tippingpoint.rundir.results import RunData
from tippingpoint.util import timing
from tippingpoint.util.durations import format_duration

LEAD = 120.0
"""Seconds before the run that are included, as the idle state."""
TAIL = 60.0
"""Seconds after the run that are included, in which the target becomes idle again."""
GATHER_WITHIN = 120.0
"""Seconds for all figures together. Figures that take longer are missing."""
AGAIN_AFTER = 3.0
"""Seconds before an unreachable Prometheus is tried once more, because it may be restarting."""
USUAL_INTERVAL = 15.0
"""Seconds between scrapes if unknown: the charm's own interval."""
_LOOKBACK = 300.0
"""Seconds for which Prometheus repeats a last sample (its lookback delta)."""
_FINE_POINTS = 2000
"""The most moments at which scrapes are looked up. They find each scrape of four hours at 15 s."""
_NAMING_POINTS = 40
"""The number of moments at which hosts' names are looked up. Hosts that exist for a shorter time are found by their
targets."""
_LATE = 1.5
"""Intervals after the last scrape from which the next one counts as missing."""
_STALE = 2.5
"""Intervals after which the last sample is stale. One scrape may fail."""
_EXTENDED = 1.1
"""Intervals by which Prometheus extrapolates a rate beyond its first and last sample."""
_RATE_INTERVALS = 4
"""Intervals in the window of a rate. One failed scrape still leaves two samples (as Grafana's $__rate_interval)."""
_BEYOND = 1e100
"""Larger than the value of any resource. Sums of smaller values are still finite."""
_DIGITS = 6
"""The number of significant digits that are kept."""

Asked = Callable[[int, int], None]
"""Called after each figure, with the number of figures done and the total."""
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class _Grid:
    """The moments (Unix seconds) of all queries."""

    start: float
    step: float
    points: int

    @property
    def end(self) -> float:
        return self.start + (self.points - 1) * self.step

    @property
    def moments(self) -> FloatArray:
        return self.start + self.step * np.arange(self.points, dtype=np.float64)

    def column(self, sampled: Sampled) -> FloatArray:
        """Return a series' value at each moment; NaN if it is missing or impossible."""
        column = np.full(self.points, np.nan)
        places, inside = self._places(sampled)
        column[places[inside]] = sampled.values[inside]
        column[~(np.abs(column) < _BEYOND)] = np.nan
        return column

    def places(self, sampled: Sampled, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return at which moments a series has one of the wanted samples."""
        there = np.zeros(self.points, dtype=np.bool_)
        places, inside = self._places(sampled)
        there[places[inside & wanted]] = True
        return there

    def _places(self, sampled: Sampled) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        places = np.rint((sampled.times - self.start) / self.step).astype(np.int64)
        return places, (places >= 0) & (places < self.points)


def _grid(start: float, end: float, interval: float) -> _Grid:
    """Make a grid with a moment for each scrape, or with the most moments allowed."""
    coarse = (end - start) / (MOST_POINTS - 1)
    step = round(interval, 1) if interval >= coarse else math.ceil(coarse * 10) / 10
    return _Grid(start, step, max(1, int((end - start) / step + 1e-9) + 1))


@dataclass(frozen=True)
class _Scraped:
    """The scrapes of a host, by one job or by all of its jobs. All times are Unix seconds."""

    host: str
    job: str
    interval: float
    """Seconds between scrapes, of the slowest job."""
    late: float
    """The shortest time between two successful scrapes that is a gap, in seconds."""
    made: FloatArray
    good: FloatArray
    """The times of successful scrapes."""

    def gaps(self, since: float, until: float) -> list[tuple[float, float]]:
        """Return the gaps between successful scrapes within a time, or to its ends."""
        edges = np.concatenate(([since], self.good[(self.good > since) & (self.good < until)], [until]))
        return [
            (float(edges[place]), float(edges[place + 1]))
            for place in np.flatnonzero(np.diff(edges) > self.late).tolist()
        ]

    def told(self, grid: _Grid, window: float) -> NDArray[np.bool_]:
        """Return at which moments a sample, or a rate over a window, is valid.

        After Prometheus itself was down, it repeats a last sample for five minutes (its lookback delta). A rate whose
        window reaches into a gap is too low, because it is extrapolated by half an interval at most
        (extrapolatedRate in Prometheus' promql/functions.go).
        """
        edges = np.concatenate(([-np.inf], self.good, [np.inf]))
        age = grid.moments - edges[np.searchsorted(self.good, grid.moments, side="right")]
        told = age <= max(_STALE * self.interval, grid.step)
        if window:
            for place in np.flatnonzero(np.diff(edges) > _STALE * self.interval).tolist():
                begin, end = edges[place] + _EXTENDED * self.interval, edges[place + 1] + window
                told &= ~((grid.moments > begin) & (grid.moments < end))
        return told


_DURATION = Figure(
    name="scrape-duration",
    title="Scrape duration",
    unit="seconds",
    meaning="Duration of the slowest scrape of a host: an overloaded host answers late, and then not at all.",
    source="Prometheus itself",
    expr="scrape_duration_seconds{$selector}",
    over="max",
    chart=False,
)
_SCRAPED_AT = "timestamp(up{$selector})"
_UP = "up{$selector}"
_TARGET = ("host", "job")
_CLOCK = "node_time_seconds{$selector} - timestamp(node_time_seconds{$selector})"


async def gather_run(
    run: RunData, prometheus: Prometheus, *, selector: str = "", asked: Asked | None = None
) -> Resources:
    """Gather a run's resources by the packs for its kind of target, from two minutes before it to one minute after it.

    `selector` are label matchers, without braces, for the target's series. Series of generators are always left out.
    Raises UserError for a run without a clock, such as a published log.
    """
    if run.manifest.timeline != "seconds" or run.manifest.source != "run":
        raise UserError(
            "run",
            str(run.directory),
            "a run of tippingpoint: imports have no clock to match with a Prometheus",
        )
    manifest = run.manifest
    last = max((float(event["t"]) for event in run.events), default=0.0)
    last = max([last, *(stage.end or stage.begin for stage in run.stages), *run.gauges.t[-1:].tolist()])
    lasted = last if manifest.ended is None else max(last, manifest.ended - manifest.started)
    began = await _began(run, prometheus)
    if began.started > began.now:
        late = (
            f"{format_duration(float(math.ceil(began.started - began.now)))} after Prometheus' present time"
        )
        raise UserError(
            "run", f"{manifest.id}, which began {late}", "clocks that agree: one of them is wrong"
        )
    gathered = await gather_resources(
        prometheus,
        packs_for(manifest.target.kind),
        began.started - LEAD,
        max(min(began.started + lasted + TAIL, began.now), began.started),
        began.started,
        members=read_cluster(run.events).members,
        selector=both(selector, all_but_generators(unit.name for unit in run.units)),
        asked=asked,
    )
    gathered.corrected = began.known
    return gathered


@dataclass(frozen=True)
class _Began:
    """When a run began, and the current time, both by Prometheus' clock (Unix seconds)."""

    started: float
    now: float
    known: bool
    """Whether the begin is derived from the time that has passed since, and not from the clock of the run's machine."""


async def _began(run: RunData, prometheus: Prometheus) -> _Began:
    """Return when a run began. On the run's machine, and in the same boot, the time that has passed since is known."""
    manifest = run.manifest
    started = manifest.started + ahead_at_end(run.events)
    try:
        before = since_boot()
        told = await prometheus.query("time()")
        asked = (before + since_boot()) / 2
    except (OperationFailed, TargetError):  # the next query reports why
        return _Began(started, max(started, timing.wall()), known=False)
    now = float(told[0].values[-1]) if told else math.nan
    if not math.isfinite(now):
        return _Began(started, max(started, timing.wall()), known=False)
    if manifest.began_after_boot is None or not manifest.boot or manifest.boot != boot_id():
        return _Began(started, now, known=False)
    return _Began(now - max(0.0, asked - manifest.began_after_boot), now, known=True)


async def gather_resources(
    prometheus: Prometheus,
    packs: Sequence[Pack],
    start: float,
    end: float,
    started: float,
    *,
    members: Sequence[Member] = (),
    selector: str = "",
    asked: Asked | None = None,
) -> Resources:
    """Gather packs' figures from `start` to `end`, as seconds since `started` (all in Unix seconds).

    Hosts that are `members` of the target get these members' names (naming.py). `selector` are label matchers for all
    queries, without braces. Moments are as far apart as scrapes, or further, so that there are at most MOST_POINTS.
    """
    return await _Gathering(prometheus, packs, started, members, selector, asked).of(start, end)


class _Gathering:
    def __init__(
        self,
        prometheus: Prometheus,
        packs: Sequence[Pack],
        started: float,
        members: Sequence[Member],
        selector: str,
        asked: Asked | None,
    ) -> None:
        self._prometheus = prometheus
        self._started = started
        self._members = members
        self._names: dict[str, str] = {}
        """The names of hosts that differ from those in Prometheus."""
        self._selector = selector
        self._asked = asked
        self._figures = [
            (pack, figure)
            for pack in packs
            for figure in pack.figures
            if figure.chart or figure.cost or figure.limit
        ]
        self._packs = packs
        self._missing: list[tuple[str, str]] = []
        self._answers = False
        self._gone = ""
        """Why Prometheus gets no more queries; empty while it does."""
        self._done = 0
        self._until = asyncio.get_running_loop().time() + GATHER_WITHIN

    async def of(self, start: float, end: float) -> Resources:
        source, clock = await self._source()
        self._names = await self._member_names(start, end) if self._members and self._answers else {}
        scraped = await self._scrapes(start, end)
        intervals = [one.interval for one in scraped] or [USUAL_INTERVAL]
        grid = _grid(start, end, min(intervals))
        window = max(_RATE_INTERVALS * max(intervals), grid.step + max(intervals))
        hosts = {one.host: one for one in _of_hosts(scraped)}
        answered = await asyncio.gather(
            *(self._figure(pack, figure, grid, window, hosts) for pack, figure in self._figures)
        )
        figures = [data for data, _ in answered if data is not None]
        self._missing += [
            (f"{pack.title}: {figure.title}", why)
            for (pack, figure), (_, why) in zip(self._figures, answered, strict=True)
            if why
        ]
        leader = await self._leader(grid)
        clock |= await self._clocks(grid)
        duration = await self._ask(_DURATION.query(window, self._selector), grid, _DURATION.title)
        if duration:  # includes failed scrapes
            made = {host: replace(one, good=one.made) for host, one in hosts.items()}
            figures.append(self._data("scrape", _DURATION, 0.0, duration, grid, made))
        self._missing += [
            (host, "no scrape of it succeeded") for host, one in hosts.items() if not one.good.size
        ]
        return Resources(
            source=source,
            step=grid.step,
            t=_rounded(grid.moments - self._started, 3),
            leader=leader,
            figures=figures,
            missing=self._missing,
            gaps=_gaps(scraped, hosts, grid, self._started),
            clock=clock,
        )

    async def _source(self) -> tuple[str, dict[str, float]]:
        """Return the name of the source, and how many seconds its clock is ahead, accurate to the duration of an
        answer."""
        try:
            version = await self._prometheus.version()
            before = timing.wall()
            told = await self._prometheus.query("time()")
            between = (before + timing.wall()) / 2
        except (OperationFailed, TargetError):  # the next query reports why
            return "Prometheus", {}
        self._answers = True
        ahead = round(float(told[0].values[-1]) - between, 3) if told else math.nan
        clock = {PROMETHEUS: ahead + 0.0} if math.isfinite(ahead) else {}
        return f"Prometheus {version}", clock

    async def _member_names(self, start: float, end: float) -> dict[str, str]:
        """Return which hosts are members of the target, according to all their addresses in Prometheus."""
        step = max(1.0, (end - start) / _NAMING_POINTS)
        nodes, _ = await self._range(by_host(*NODES, selector=self._selector), start, end, step)
        instances, _ = await self._range(by_host(*INSTANCES, selector=self._selector), start, end, step)
        try:
            async with asyncio.timeout_at(self._until):
                targets = await self._prometheus.targets()
        except (
            TimeoutError,
            OperationFailed,
            TargetError,
        ):  # only Prometheus itself must have any
            targets = []
        return member_names(self._members, known_as(targets, instances, nodes))

    async def _range(self, query: str, start: float, end: float, step: float) -> tuple[list[Sampled], str]:
        """Return the series of a query, and why there are none if it failed."""
        if self._gone:
            return [], self._gone
        try:
            async with asyncio.timeout_at(self._until):
                try:
                    found = await self._prometheus.query_range(query, start, end, step)
                except TargetError:
                    await asyncio.sleep(AGAIN_AFTER)
                    found = await self._prometheus.query_range(query, start, end, step)
                return renamed(found, self._names), ""
        except TimeoutError:
            return [], f"{self._prometheus.where}: has not answered everything within {GATHER_WITHIN:g} s"
        except OperationFailed as problem:
            return [], str(problem)
        except TargetError as problem:
            self._gone = str(problem)
            return [], self._gone

    async def _ask(self, query: str, grid: _Grid, title: str) -> list[Sampled]:
        """Return the series of a query; record its failure as missing."""
        found, why = await self._range(query, grid.start, grid.end, grid.step)
        if why:
            self._missing.append((title, why))
        return found

    async def _scrapes(self, start: float, end: float) -> list[_Scraped]:
        """Return when each target was scraped."""
        step = max(1.0, math.ceil((end - start) / _FINE_POINTS))
        found: list[list[Sampled]] = []
        for query in (
            by_host(_SCRAPED_AT, "max", _TARGET, self._selector),
            by_host(_UP, "min", _TARGET, self._selector),
        ):
            answered, why = await self._range(query, start, end, step)
            if why:
                self._gone = self._gone or ("" if self._answers else why)
                self._missing.append(("gaps between scrapes", why))
                return []
            found.append(answered)
        success = {_target_of(up): up for up in found[1]}
        scraped: list[_Scraped] = []
        for at in found[0]:
            up = success.get(_target_of(at))
            if up is None or len(up.values) != len(at.values):
                continue
            sane = (at.values > start - _LOOKBACK) & (at.values <= at.times + step)
            made = np.unique(at.values[sane])
            if not made.size:
                continue
            interval = max(1.0, float(np.median(np.diff(made)))) if made.size > 1 else USUAL_INTERVAL
            # If lookups are rarer than scrapes, a scrape that is not found may still have happened.
            late = _LATE * interval + (step if step > interval else 0.0)
            good = np.unique(at.values[sane & (up.values == 1)])
            scraped.append(_Scraped(*_target_of(at), interval, late, made, good))
        return scraped

    async def _figure(
        self, pack: Pack, figure: Figure, grid: _Grid, window: float, hosts: Mapping[str, _Scraped]
    ) -> tuple[FigureData | None, str]:
        """Return a figure's data, and what is missing of it."""
        query = figure.query(window, self._selector)
        found, why = await self._range(query, grid.start, grid.end, grid.step)
        self._done += 1
        if self._asked is not None:
            self._asked(self._done, len(self._figures))
        if not found:
            nothing = "" if figure.optional else f"no samples: its source is {figure.source}"
            return None, why or nothing
        span = window if "$window" in figure.expr else 0.0
        data = self._data(pack.name, figure, span, found, grid, hosts)
        infinite = _infinite(found, grid, span, hosts)
        if not data.series:
            return None, infinite or "no sample is a valid number"
        if span and figure.cost == "operations":
            await self._slice(data, pack, figure, grid, hosts)
        smallest = f"the smallest of {len(found)} series" if len(found) > MOST_SERIES else ""
        return data, "; ".join(why for why in (smallest, infinite) if why)

    async def _slice(
        self, data: FigureData, pack: Pack, figure: Figure, grid: _Grid, hosts: Mapping[str, _Scraped]
    ) -> None:
        """Add a rate's mean over each step of the grid: its window has the scrapes at both ends of one step."""
        interval = max((one.interval for one in hosts.values()), default=USUAL_INTERVAL)
        window = grid.step + interval
        found, _ = await self._range(figure.query(window, self._selector), grid.start, grid.end, grid.step)
        data.slices = self._data(pack.name, figure, window, found, grid, hosts).series
        data.slice_lag = interval / 2

    def _data(
        self,
        pack: str,
        figure: Figure,
        window: float,
        found: Sequence[Sampled],
        grid: _Grid,
        hosts: Mapping[str, _Scraped],
    ) -> FigureData:
        told = {host: one.told(grid, window) for host, one in hosts.items()}
        columns: list[tuple[float, str, str, FloatArray]] = []
        for series in found:
            host = series.labels.get("host", "")
            column = np.where(told.get(host, True), grid.column(series), np.nan)
            finite = column[np.isfinite(column)]
            if finite.size:
                part = series.labels.get(figure.part, "") if figure.part else ""
                columns.append((float(np.max(np.abs(finite))), host, part, column))
        largest = sorted(columns, key=lambda entry: -entry[0])[:MOST_SERIES]
        return FigureData(
            name=figure.name,
            title=figure.title,
            unit=figure.unit,
            meaning=figure.meaning,
            pack=pack,
            cost=figure.cost,
            chart=figure.chart,
            limit=figure.limit,
            window=window,
            series=sorted(
                (Series(host=host, part=part, values=_kept(column)) for _, host, part, column in largest),
                key=lambda series: (series.host, series.part),
            ),
        )

    async def _leader(self, grid: _Grid) -> list[tuple[float, str]]:
        """Return who led, according to the first pack that shows it."""
        for pack in self._packs:
            query = pack.leader_query(self._selector)
            found = await self._ask(query, grid, f"leader of {pack.title}") if query else []
            leaders = _leaders(found, grid, self._started)
            if leaders:
                return leaders
        return []

    async def _clocks(self, grid: _Grid) -> dict[str, float]:
        """Return the median clock offset of each host over the run, if an exporter reports its time."""
        found, _ = await self._range(
            by_host(_CLOCK, "max", selector=self._selector), grid.start, grid.end, grid.step
        )
        offsets = {series.labels.get("host", ""): grid.column(series) for series in found}
        return {
            host: round(float(np.nanmedian(column)), 3)
            for host, column in offsets.items()
            if np.isfinite(column).any()
        }


def _infinite(found: Iterable[Sampled], grid: _Grid, window: float, hosts: Mapping[str, _Scraped]) -> str:
    """Return which hosts had infinite values, which no run's directory keeps, and when; empty if none had any."""
    moments: dict[str, NDArray[np.bool_]] = {}
    for series in found:
        infinite = grid.places(series, np.isinf(series.values))
        if infinite.any():
            host = series.labels.get("host", "")
            moments[host] = moments.get(host, np.zeros(grid.points, dtype=np.bool_)) | infinite
    for host in moments.keys() & hosts.keys():
        moments[host] &= hosts[host].told(grid, window)
    there = {host: int(where.sum()) for host, where in sorted(moments.items()) if where.any()}
    if not there:
        return ""
    host = max(there, key=lambda each: there[each])
    more = f" (and {len(there) - 1} more)" if len(there) > 1 else ""
    return f"{host} was infinite at {there[host]} of {grid.points} moments{more}"


def _leaders(found: Iterable[Sampled], grid: _Grid, started: float) -> list[tuple[float, str]]:
    """Return each change of the host whose series is 1. Of two such hosts, the later one leads."""
    columns = {series.labels.get("host", ""): grid.column(series) for series in found}
    changes: list[tuple[float, str]] = []
    before: set[str] = set()
    for place, moment in enumerate(grid.moments):
        known = any(np.isfinite(column[place]) for column in columns.values())
        now = {host for host, column in columns.items() if column[place] >= 1}
        leading = changes[-1][1] if changes else ""
        if known and leading not in (now - before or now):
            leading = min(now - before or now, default="")
        elif known and not now:
            leading = ""
        if known:
            before = now
            if (leading or changes) and (not changes or changes[-1][1] != leading):
                changes.append((round(float(moment) - started, 3), leading))
    return changes


def _target_of(series: Sampled) -> tuple[str, str]:
    return series.labels.get("host", ""), series.labels.get("job", "")


def _of_hosts(scraped: Iterable[_Scraped]) -> list[_Scraped]:
    """Merge the scrapes of each host by all jobs."""
    by_host: dict[str, list[_Scraped]] = {}
    for one in scraped:
        by_host.setdefault(one.host, []).append(one)
    return [
        _Scraped(
            host,
            "",
            max(job.interval for job in jobs),
            max(job.late for job in jobs),
            np.unique(np.concatenate([job.made for job in jobs])),
            np.unique(np.concatenate([job.good for job in jobs])),
        )
        for host, jobs in by_host.items()
    ]


def _gaps(
    scraped: Sequence[_Scraped], hosts: Mapping[str, _Scraped], grid: _Grid, started: float
) -> list[tuple[float, float, str]]:
    """Return when hosts were not scraped, with the job's name if only one of a host's jobs failed.

    Before the first scrape of all, Prometheus itself was down, which is a gap for all hosts known then.
    """
    first = min((float(one.made[0]) for one in scraped), default=0.0)
    found: list[tuple[float, float, str]] = []
    for one in [*hosts.values(), *scraped]:
        name, known = one.host, []
        if one.job:
            known = [(begin, end) for begin, end, host in found if host == one.host]
            name = f"{one.host} ({one.job})"
        begun_with = one.made[0] < first + one.late
        since = grid.start if begun_with else float(one.made[0])
        found += [
            (begin, end, name)
            for begin, end in one.gaps(since, grid.end)
            if not any(begin < until and end > since for since, until in known)
        ]
    told = [(round(begin - started, 3), round(end - started, 3), name) for begin, end, name in found]
    return sorted(told)


def _kept(column: FloatArray) -> list[float | None]:
    return [float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else None for value in column.tolist()]


def _rounded(values: FloatArray, digits: int) -> list[float]:
    return [round(value, digits) for value in values.tolist()]
