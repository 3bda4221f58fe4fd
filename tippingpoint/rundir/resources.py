"""Figures of a target's hosts over a run's time, kept in the run's directory as resources.json."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Literal

from pydantic import BaseModel, FiniteFloat, ValidationError, model_validator

from tippingpoint.rundir.cluster_events import natural
from tippingpoint.rundir.files import read_file, replace_file

FILE = "resources.json"
MOST_POINTS = 400
"""Moments that are gathered of a series: a chart of 1200 pixels shows no more, and 15 figures of 100 hosts are 5 MB."""
MOST_SERIES = 400
"""Series that are gathered of one figure: four processes on each of 100 hosts."""
LARGEST_FILE = 64 << 20
"""Bytes; twenty figures of 100 hosts are 6 MB."""
Values = list[FiniteFloat | None]
Cost = Literal["", "load", "operations"]
"""What a figure is told per unit of: nothing, the load that is held, or operations."""


_RATES = ("bytes/s", "bits/s", "cores", "count/s")


class Series(BaseModel):
    """One figure of one host over time."""

    host: str
    part: str = ""
    """Which of the host's, where a figure tells them apart: a process, a vhost, a device."""
    values: Values
    """One for each moment of Resources.t; None where nothing was sampled."""


class FigureData(BaseModel):
    """A named measure of hosts, with what was gathered of it."""

    name: str
    title: str
    unit: str
    """bytes, bytes/s, bits/s, cores, seconds, count, count/s or ratio."""
    meaning: str
    pack: str
    cost: Cost = ""
    chart: bool = True
    window: FiniteFloat = 0.0
    """Seconds: a value is the mean over that long before its moment; 0 when it is as it was at that moment."""
    series: list[Series]

    @property
    def parts(self) -> list[str]:
        """The parts that it tells apart, in natural order; only the empty one when it does not."""
        return sorted({series.part for series in self.series}, key=natural)

    @property
    def is_rate(self) -> bool:
        """Whether it is so much in a second, of what is counted."""
        return self.unit in _RATES

    def typical(self, values: Sequence[float]) -> float:
        """What it was over a time, of which these are its values.

        Of a rate the mean, which is what was counted in that time: what comes in bursts, such as fsyncs, has a median
        of nothing. Of any other the median, which no peak moves.
        """
        return fmean(values) if self.is_rate else median(values)


def titles_of(figures: Iterable[FigureData]) -> dict[str, str]:
    """What each figure is called, by its name: its title, with its pack where others have the same, as CPU (nova)."""
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
    """A figure by role, one value for each moment of Resources.t."""

    leader: Sequence[float | None]
    """Of the host that led then."""
    low: Sequence[float | None]
    """The least of the followers, which all hosts are while nobody is known to lead."""
    middle: Sequence[float | None]
    """The followers' median."""
    high: Sequence[float | None]
    """The most of them."""
    total: Sequence[float | None]
    """All hosts' sum; None while a host lacks a sample that has some before and after."""


class Resources(BaseModel):
    """What was gathered of a run's target, on one grid of moments for all figures."""

    version: Literal[1] = 1
    source: str
    """Where it is from, in a few words, such as Prometheus 2.42.0."""
    step: FiniteFloat
    """Seconds between moments."""
    t: list[FiniteFloat]
    """Seconds since the run's start; the first are before it, which tells what there was without load."""
    leader: list[tuple[FiniteFloat, str]] = []
    """From when on which host led; an empty name means that nobody did."""
    figures: list[FigureData]
    missing: list[tuple[str, str]] = []
    """Figures or hosts of which there is nothing, and why."""
    gaps: list[tuple[FiniteFloat, FiniteFloat, str]] = []
    """From when to when a host was not scraped, or a scrape of it failed."""
    clock: dict[str, FiniteFloat] = {}
    """Seconds that a host's clock was ahead of Prometheus', and Prometheus' of the machine that gathered."""

    @model_validator(mode="after")
    def _on_one_grid(self) -> Resources:
        if any(later <= earlier for earlier, later in zip(self.t, self.t[1:], strict=False)):
            raise ValueError("moments that are not in order")
        for figure in self.figures:
            if any(len(series.values) != len(self.t) for series in figure.series):
                raise ValueError(f"{figure.name} does not have one value for each moment")
        return self

    @property
    def hosts(self) -> list[str]:
        """All hosts of which there is a figure, in natural order."""
        return sorted({series.host for figure in self.figures for series in figure.series}, key=natural)

    def figure(self, name: str) -> FigureData | None:
        """The figure of that name; None when nothing was gathered of it."""
        return next((figure for figure in self.figures if figure.name == name), None)

    def leading(self, t: float) -> str:
        """The host that led at a moment; an empty name when nobody did, or it is not known."""
        place = bisect_right(self.leader, t, key=lambda entry: entry[0])
        return self.leader[place - 1][1] if place else ""

    def roles(self, figure: FigureData, part: str = "") -> Roles:
        """One part of a figure by role: who leads now, leads the figure's line from now on."""
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
    """What was gathered of the run in a directory, and a note for its reader.

    None without a note when nothing was gathered; None with one when the file is damaged.
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
    """Replace what was gathered of the run in a directory; a reader sees the old or the new, whole. OSError."""
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
