"""Resource figures of a target's hosts during a run, kept in the run's directory as resources.json."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError, model_validator

from tippingpoint.rundir.cluster_events import natural
from tippingpoint.rundir.files import read_file, replace_file

FILE = "resources.json"
MOST_POINTS = 400
"""The most moments gathered of a series: a chart of 1200 pixels shows no more, and 15 figures of 100 hosts are 5
MB."""
PROMETHEUS = "Prometheus"
"""The name of its clock in Resources.clock."""
MOST_SERIES = 400
"""The most series gathered of one figure: four processes on each of 100 hosts."""
LARGEST_FILE = 64 << 20
"""Bytes; twenty figures of 100 hosts are 6 MB."""
_Moment = Annotated[float, Field(ge=-1e12, le=1e12)]
Values = list[Annotated[FiniteFloat, Field(ge=-1e100, le=1e100)] | None]
"""Values small enough that their sums stay finite."""
Cost = Literal["", "load", "operations"]
"""The unit per which a figure's cost is reported: none, the load that is held, or operations."""


Constraint = Literal["CPU", "CPU quota", "memory", "disk", "network", "file descriptors", "space", "queue"]
"""What a figure's limit is about."""
_RATES = ("bytes/s", "bits/s", "cores", "count/s")


class Limit(BaseModel):
    """The value of a figure from which on its host is exhausted."""

    model_config = ConfigDict(frozen=True)

    of: Constraint
    """What is exhausted then: CPU, CPU quota, memory, disk, network, file descriptors, space or queue."""
    above: Annotated[FiniteFloat, Field(gt=0)] | None = None
    """The limit, in the figure's unit, of a figure that rises with the load."""
    below: Annotated[FiniteFloat, Field(gt=0)] | None = None
    """The limit of a figure that falls with the load."""
    wait: bool = False
    """Whether it is a time or a queue, which other constraints lengthen too."""
    because: str
    """The source of the number, or its reason."""

    @model_validator(mode="after")
    def _one_limit(self) -> Limit:
        if (self.above is None) == (self.below is None):
            raise ValueError("one of above and below")
        return self

    @property
    def value(self) -> float:
        """The limit, in the figure's unit."""
        return self.above if self.above is not None else (self.below or 0.0)

    @property
    def words(self) -> str:
        """Whether the limit is an upper or a lower one: above or below."""
        return "above" if self.above is not None else "below"

    def share(self, value: float) -> float:
        """Return how near a value is to the limit: 1 at it, more beyond it."""
        if self.above is not None:
            return value / self.above
        return self.value / value if value > 0 else float("inf")


class Series(BaseModel):
    """One figure of one host over time."""

    host: str
    """The host's name."""
    part: str = ""
    """The part of the host, if a figure has several: a process, a vhost, a device."""
    values: Values
    """One value for each moment of Resources.t; None if there was no sample."""


class FigureData(BaseModel):
    """A named measure of hosts, with the series gathered of it."""

    name: str
    """The figure's name in its query pack."""
    title: str
    """Its name for people."""
    unit: str
    """bytes, bytes/s, bits/s, cores, seconds, count, count/s or ratio."""
    meaning: str
    """What it measures."""
    pack: str
    """The query pack that it comes from."""
    cost: Cost = ""
    """Whether its cost is reported per unit of load or per operation."""
    chart: bool = True
    """Whether reports draw it."""
    limit: Limit | None = None
    """The value from which on its host is exhausted; none for a figure that has no such value."""
    window: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """Seconds before its moment over which a value is the mean; 0 for the value at that moment."""
    series: list[Series]
    """The series of each host."""
    slices: list[Series] = []
    """The same for one step of time each, while `series` are smoothed over several; empty except for rates that have a
    cost per operation, and in older runs."""
    slice_lag: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """Seconds before its moment at which the step of a value in `slices` ends, because scrapes are apart."""

    @property
    def parts(self) -> list[str]:
        """The parts of the hosts, in natural order; only the empty one if there are none."""
        return sorted({series.part for series in self.series}, key=natural)

    @property
    def is_rate(self) -> bool:
        """Whether it is a rate per second."""
        return self.unit in _RATES

    def typical(self, values: Sequence[float]) -> float:
        """Return the typical value over a span of time, from the values in it.

        For a rate it is the mean, which keeps the total: bursts, such as fsyncs, have a median of zero. For any other
        figure it is the median, which peaks do not move.
        """
        return fmean(values) if self.is_rate else median(values)


def titles_of(figures: Iterable[FigureData]) -> dict[str, str]:
    """Return the title of each figure by its name, with its pack if titles are equal, such as CPU (nova)."""
    by_title: dict[str, dict[str, str]] = {}
    for figure in figures:
        by_title.setdefault(figure.title, {})[figure.name] = figure.pack
    return {
        name: title if len(packs) == 1 else f"{title} ({pack})"
        for title, packs in by_title.items()
        for name, pack in packs.items()
    }


@dataclass(frozen=True)
class Roles:
    """A figure by role, with one value for each moment of Resources.t."""

    leader: Sequence[float | None]
    """The value of the host that led then."""
    low: Sequence[float | None]
    """The lowest value of the followers; without a known leader, all hosts are followers."""
    middle: Sequence[float | None]
    """The median of the followers."""
    high: Sequence[float | None]
    """The highest value of the followers."""
    total: Sequence[float | None]
    """The sum of all hosts; None while a host that has samples before and after lacks one."""


class Resources(BaseModel):
    """What was gathered of a run's target, on one time grid for all figures."""

    version: Literal[1] = 1
    """The version of this format."""
    source: str
    """The source, in a few words, such as Prometheus 2.42.0."""
    step: Annotated[float, Field(gt=0, le=1e9)]
    """Seconds between moments."""
    t: list[_Moment]
    """Seconds since the run's start; the first moments are before it, to show the target without load."""
    leader: list[tuple[_Moment, str]] = []
    """Which host led from which moment on; an empty name means none."""
    figures: list[FigureData]
    """The figures that were gathered."""
    missing: list[tuple[str, str]] = []
    """Figures or hosts without data, and why."""
    gaps: list[tuple[_Moment, _Moment, str]] = []
    """The spans of time in which a host was not scraped, or a scrape of it failed."""
    clock: dict[str, _Moment] = {}
    """Seconds that a host's clock was ahead of Prometheus' clock, and Prometheus' clock of that of the machine that
    gathered."""
    corrected: bool = False
    """Whether moments are joined by the time that has passed since the run began, so that neither Prometheus' clock nor
    the run's matters."""

    @model_validator(mode="after")
    def _on_one_grid(self) -> Resources:
        if any(later <= earlier for earlier, later in zip(self.t, self.t[1:], strict=False)):
            raise ValueError("moments that are not in order")
        for figure in self.figures:
            if any(len(series.values) != len(self.t) for series in (*figure.series, *figure.slices)):
                raise ValueError(f"{figure.name} does not have one value for each moment")
        return self

    @property
    def hosts(self) -> list[str]:
        """All hosts with any figure, in natural order."""
        return sorted({series.host for figure in self.figures for series in figure.series}, key=natural)

    def figure(self, name: str) -> FigureData | None:
        """Return the figure of that name; None if nothing was gathered of it."""
        return next((figure for figure in self.figures if figure.name == name), None)

    def leading(self, t: float) -> str:
        """Return the host that led at a moment; an empty name if none did, or if that is unknown."""
        place = bisect_right(self.leader, t, key=lambda entry: entry[0])
        return self.leader[place - 1][1] if place else ""

    def roles(self, figure: FigureData, part: str = "") -> Roles:
        """Return one part of a figure by role: a host is in the leader's line while it leads."""
        series = [found for found in figure.series if found.part == part]
        lasting = [_first_and_last(found.values) for found in series]
        columns: list[list[float | None]] = []
        for place, t in enumerate(self.t):
            leading = self.leading(t)
            led: float | None = None
            others: list[float] = []
            lacking = False
            for found, (first, last) in zip(series, lasting, strict=True):
                value = found.values[place]
                if value is None:
                    lacking = lacking or first < place < last
                elif found.host == leading:
                    led = value
                else:
                    others.append(value)
            there = others if led is None else [*others, led]
            columns.append(
                [
                    led,
                    *((min(others), median(others), max(others)) if others else (None, None, None)),
                    sum(there) if there and not lacking else None,
                ]
            )
        return Roles(*zip(*columns, strict=True)) if columns else Roles((), (), (), (), ())


def read_resources(directory: Path) -> tuple[Resources | None, str]:
    """Return what was gathered of the run in a directory, and a note for the reader.

    Returns None without a note if nothing was gathered, and None with a note if the file is damaged.
    """
    try:
        return Resources.model_validate_json(read_file(directory / FILE, LARGEST_FILE)), ""
    except FileNotFoundError:
        return None, ""
    except OSError as problem:
        return None, f"{FILE}: cannot be read ({problem.strerror}), left out"
    except ValidationError as problem:
        return None, f"{FILE}: damaged, left out ({_first_line(problem)})"


def write_resources(directory: Path, resources: Resources) -> None:
    """Replace what was gathered of the run in a directory atomically; raises OSError."""
    replace_file(directory / FILE, resources.model_dump_json() + "\n")


def _first_and_last(values: Sequence[float | None]) -> tuple[int, int]:
    def first(found: Iterator[int]) -> int:
        return next(found, -1)

    there = range(len(values))
    return (
        first(place for place in there if values[place] is not None),
        first(place for place in reversed(there) if values[place] is not None),
    )


def _first_line(problem: ValidationError) -> str:
    error = problem.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, error["loc"]))
    return " ".join(f"{where}: {error['msg']}".removeprefix(": ").split())[:200]
