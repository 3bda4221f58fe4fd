"""Builds the report of a run in progress from what its units have reported so far: a document like that of any run.

Units send their measurements when their parts have ended. Until then, the document has the contents of their words: the
load, the rate and the latencies over time, and how far each unit is. Nothing is judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np

from tippingpoint.analysis.analyse import analyse
from tippingpoint.collect.course import Point, build_course
from tippingpoint.conduct.run_state import SharedRun, UnitWord
from tippingpoint.plan.read import said_kinds
from tippingpoint.report import figures
from tippingpoint.report.document import build_document
from tippingpoint.rundir.gathered import Unit
from tippingpoint.rundir.gauges import gauges_of
from tippingpoint.rundir.manifest import Manifest, TargetEntry, Workload
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.util.numbers import show_rate, show_us
from tippingpoint.util.text import show_amount, show_size

_ALL = "call"
"""The operation of all latencies and rates: words do not separate operations."""


def live_document(
    run: SharedRun, words: Mapping[str, UnitWord], points: Sequence[Point], state: str
) -> dict[str, Any]:
    """Return the document of a run that is not over; raises ValidationError if its plan is invalid.

    `state` describes where the run is. `measured` is False: only the sections on its progress have content.
    """
    course = build_course(run, [*points])
    document = build_document(analyse(_data(run, words, course, state)))
    document["measured"] = False
    document["timeline"] = _timeline(course)
    document["operations"] = [_ALL] if course["t"] else []
    document["by_load"] = []
    document["glance"] = {"tiles": _tiles(run, words, course, state), "sure": []}
    document["tipping"]["sentence"] = "Nothing is judged before the units have sent their measurements."
    document["verdict"] |= {"reasons": [], "checks": []}
    document["cautions"] = []
    for entry in document["units"]:
        word = words.get(entry["name"])
        entry["status"] = (
            "missing" if entry["name"] in run.missing else word.phase if word else "nothing heard"
        )
        entry["why"] = run.missing.get(entry["name"], "") or (_progress(word) if word else "")
    return document


def _data(run: SharedRun, words: Mapping[str, UnitWord], course: dict[str, Any], state: str) -> RunData:
    plan = run.validated()
    manifest = Manifest(
        id=run.id,
        title=plan.name,
        workload=cast(Workload, said_kinds(run.plan)[0] or "claim"),
        load_unit=plan.load_unit,
        target=TargetEntry(kind=plan.target.kind),
        plan=run.plan,
        reason=state,
        started=run.started if run.started is not None else run.made,
    )
    return RunData(
        directory=Path(run.id),
        manifest=manifest,
        stages=[_stage(stage, course) for stage in course["stages"]],
        curves={},
        gauges=gauges_of([], 1.0),
        bin_seconds=_every(course),
        events=[],
        notes=[],
        units=[
            Unit(
                name=unit,
                share=number,
                of=len(run.units),
                status="complete",
                why="",
                workers=0,
                cores=word.cores if (word := words.get(unit)) is not None else 0,
                clock_offset=word.offset if word is not None else None,
                clock_error=word.offset_error if word is not None else None,
            )
            for number, unit in enumerate(run.units, start=1)
        ],
    )


def _stage(stage: dict[str, Any], course: dict[str, Any]) -> StageResult:
    """Return a stage whose hold begins once its full load is applied."""
    last = stage is course["stages"][-1]
    until = course["t"][-1] if last else stage["to"]
    seen = zip(course["t"], course["held"], course["size"], strict=True)
    up = [t for t, held, size in seen if stage["from"] <= t <= until and held >= size > 0]
    return StageResult(
        number=stage["number"],
        size=stage["size"],
        kind=stage["kind"],
        begin=max(0.0, stage["from"]),
        hold_begin=up[0] if up else None,
        end=None if last else stage["to"],
    )


def _every(course: dict[str, Any]) -> float:
    """Return how many seconds apart words are."""
    gaps = [after - before for before, after in pairwise(course["t"])]
    return max(1.0, float(np.median(gaps))) if gaps else 1.0


def _timeline(course: dict[str, Any]) -> dict[str, Any] | None:
    """Return the columns over time in the form of any run's timeline."""
    if not course["t"]:
        return None
    failures = {
        outcome: _per_second(course, name) for outcome, name in (("error", "errors"), ("lost", "lost"))
    }
    return {
        "bin_seconds": _every(course),
        "t": course["t"],
        "latency": {_ALL: {name: _in_us(course[name]) for name in ("p50", "p99")}},
        "cost": {},
        "ok": {_ALL: course["rate"]},
        "per_second": {outcome: rates for outcome, rates in failures.items() if any(rates)},
        "connections_lost": [],
        "gauges": {
            "held": course["held"],
            "waiting": [
                max(0, size - held) for held, size in zip(course["held"], course["size"], strict=True)
            ],
        },
    }


def _in_us(column: Sequence[float | None]) -> list[int | None]:
    return [None if value is None else round(value * 1000) for value in column]


def _per_second(course: dict[str, Any], name: str) -> list[float]:
    """Return the increase at each moment since the previous one, per second."""
    moments, counts = [0.0, *course["t"]], [0, *course[name]]
    seconds = [max(1.0, after - before) for before, after in pairwise(moments)]
    return [
        max(0, after - before) / of for (before, after), of in zip(pairwise(counts), seconds, strict=True)
    ]


def _tiles(
    run: SharedRun, words: Mapping[str, UnitWord], course: dict[str, Any], state: str
) -> list[dict[str, str]]:
    """Return tiles for where the run is, its load, and its latency; without load, how many units are ready."""
    heard = f"reported {figures.clock(course['t'][-1])} after the start" if course["t"] else ""
    now = {"title": "Now", "value": state.partition(",")[0], "words": heard}
    if not course["t"]:
        ready = sum(word.phase != "making" for word in words.values())
        heard = f"{ready} of {len(run.units)} units ready"
        return [now, {"title": "Units", "value": heard, "words": ""}]
    held, size, p99 = (course[name][-1] for name in ("held", "size", "p99"))
    return [
        now,
        {
            "title": "Load",
            "value": f"{show_size(held)} of {show_amount(size, course['what'])}",
            "words": show_rate(course["rate"][-1]),
        },
        {
            "title": "p99",
            "value": "–" if p99 is None else show_us(p99 * 1000),
            "words": "of the slowest unit" if len(run.units) > 1 else "",
        },
    ]


def _progress(word: UnitWord) -> str:
    """Describe how far a unit is: stage 3/5 hold, 17 of 40 leases, 12/s, p99 31 ms, 2 errors."""
    if word.problem:
        return word.problem
    told = word.progress
    if told is None:
        return ""
    if told.preparing:
        return told.preparing
    of = f"/{told.stages}" if told.stages else ""
    parts = [
        f"stage {told.stage}{of} {told.doing}",
        f"{show_size(told.held)} of {show_amount(told.size, told.what)}",
    ]
    parts.append(show_rate(told.rate))
    parts += [f"p99 {show_us(told.p99_ms * 1000)}"] if told.p99_ms is not None else []
    parts += [f"{count:,} {name}" for count, name in ((told.errors, "errors"), (told.lost, "lost")) if count]
    return ", ".join(parts)
