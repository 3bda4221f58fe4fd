"""The progress of a run over time: what units reported, stored as it arrived, and the charts made of it.

It is in `course.jsonl` in a run's directory, a line for each word. It is for people who watch the run: reports are made
from digests, which are exact.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from tippingpoint.conduct.run_state import Figure, Line, Number, SharedRun, Unit, UnitWord, silent_after
from tippingpoint.plan.fields import StageKind
from tippingpoint.rundir.files import replace_file

FILE = "course.jsonl"
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
LARGEST = 4 << 20
"""Bytes of the file, some 20,000 words; when it is larger, every second word of each unit is dropped."""
MOST_POINTS = 600
"""The most points of a chart over time."""
_EARLY, _LONGEST = 3600.0, 30 * 86400.0
"""Seconds before and after the request of a run in which its words may be; other times mean that a clock is wrong."""


class Point(BaseModel):
    """The progress of one unit at one moment."""

    unit: Unit
    t: Annotated[float, Field(allow_inf_nan=False)]
    """On the reference's clock, like SharedRun.started."""
    stage: Number = 0
    kind: StageKind = "ramp"
    size: Number = 0
    """The load of its share; 0 once its part has ended."""
    held: Number = 0
    rate: Figure = 0.0
    p50_ms: Figure | None = None
    p99_ms: Figure | None = None
    errors: Number = 0
    lost: Number = 0
    what: Line = ""
    ended: bool = False


def note(directory: Path, unit: str, word: UnitWord) -> None:
    """Store a unit's progress, if its word has any; raises OSError without disk space."""
    ended = word.phase in ("over", "failed")
    told = word.progress
    if not ended and (told is None or not told.stage):
        return
    point = Point(
        unit=unit,
        t=word.t - (word.offset or 0.0),
        ended=ended,
        **({} if told is None else told.model_dump(include=_TOLD)),
    )
    path = directory / FILE
    with open(os.open(path, _APPEND, 0o644), "a", encoding="utf-8") as file:
        file.write(f"{point.model_dump_json(exclude_defaults=True)}\n")
        size = file.tell()
    if size > LARGEST:
        _thin(path)


_TOLD = {*Point.model_fields} - {"unit", "t", "ended"}


def read_text(directory: Path) -> str:
    """Return the file's text; empty without one."""
    try:
        return (directory / FILE).read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def points_of(text: str) -> list[Point]:
    """Return the points in order of time; invalid lines, such as a partial last one, are left out."""
    return sorted(_points(text.splitlines()), key=lambda point: point.t)


def _points(lines: Iterable[str]) -> Iterable[Point]:
    for line in lines:
        try:
            yield Point.model_validate_json(line)
        except ValidationError:
            continue


def _thin(path: Path) -> None:
    """Drop every second word of each unit, except its last."""
    kept: list[Point] = []
    by_unit: defaultdict[str, list[Point]] = defaultdict(list)
    for point in points_of(read_text(path.parent)):
        by_unit[point.unit].append(point)
    for points in by_unit.values():
        kept += points[:-1][::2] + points[-1:]
    replace_file(path, "".join(f"{point.model_dump_json(exclude_defaults=True)}\n" for point in kept))


def build_course(run: SharedRun, points: list[Point]) -> dict[str, Any]:
    """Return load, rate, latencies and failures of all units, over seconds since the run's start.

    A unit counts with its last word, until its part has ended or it is silent for too long. Latencies are the highest
    of any unit, because they cannot be added.
    """
    points = [point for point in points if -_EARLY < point.t - run.made < _LONGEST]
    if all(point.ended for point in points):
        points = []  # these units never began
    begin = run.started if run.started is not None else min((point.t for point in points), default=0.0)
    silent = silent_after(len(run.units))
    columns: dict[str, list[Any]] = {
        name: [] for name in ("t", "held", "size", "rate", "p50", "p99", "errors", "lost")
    }
    stages: list[dict[str, Any]] = []
    last: dict[str, Point] = {}
    moments = _moments(points)
    for moment, said in moments:
        for point in said:
            last[point.unit] = point
        there = [each for each in last.values() if not each.ended and moment - each.t <= silent]
        figures = {
            "t": round(moment - begin, 3),
            "held": sum(each.held for each in there),
            "size": sum(each.size for each in there),
            "rate": sum(each.rate for each in there),
            "p50": max((each.p50_ms for each in there if each.p50_ms is not None), default=None),
            "p99": max((each.p99_ms for each in there if each.p99_ms is not None), default=None),
            "errors": sum(each.errors for each in last.values()),
            "lost": sum(each.lost for each in last.values()),
        }
        for name, value in figures.items():
            columns[name].append(value)
        _follow_stages(stages, there, figures)
    if stages and columns["t"]:
        stages[-1]["to"] = columns["t"][-1]
    what = next((point.what for point in reversed(points) if point.what), "")
    return {**columns, "stages": stages, "what": what, "units": len(last)}


def _moments(points: list[Point]) -> list[tuple[float, list[Point]]]:
    """Return the points grouped by the moments of a chart, at most MOST_POINTS, each at the end of its interval."""
    if not points:
        return []
    first, span = points[0].t, points[-1].t - points[0].t
    width = span / MOST_POINTS
    found: dict[float, list[Point]] = {}
    for point in points:
        number = int((point.t - first) / width) if width > 0 else 0
        found.setdefault(number, []).append(point)
    return [(said[-1].t, said) for _, said in sorted(found.items())]


def _follow_stages(stages: list[dict[str, Any]], there: list[Point], figures: dict[str, Any]) -> None:
    """Begin the next stage once a unit is in it."""
    if not there:
        return
    furthest = max(there, key=lambda point: point.stage)
    known = stages[-1] if stages else None
    if known is None or (known["number"], known["kind"]) != (furthest.stage, furthest.kind):
        if known is not None:
            known["to"] = figures["t"]
        stages.append({"number": furthest.stage, "kind": furthest.kind, "from": figures["t"], "size": 0})
    stages[-1]["size"] = max(stages[-1]["size"], figures["size"])
