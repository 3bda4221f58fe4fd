"""Lists events: failures, faults, and changes of members and leaders, as a short table instead of a chart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tippingpoint.report.sections.timeline import is_lost_connection
from tippingpoint.rundir.journal import count_of
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.tags import FAILURES, tag


def build_happened(run: RunData, marks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry for each kind of event, sorted by its first time: `what`, `count`, `first`, `last`, `stages`.

    Times are as precise as charts over time (`bin_seconds`), but those of `marks` (see document.py) are exact. They are
    None if the run has no clock. `stages` are the numbers of the stages with the event.
    """
    clock = run.manifest.timeline != "order"
    entries: list[dict[str, Any]] = []
    for operation in run.operations:
        for outcome in FAILURES:
            curve = run.curves.get(tag(operation, outcome))
            if curve is None or not curve.t.size:
                continue
            entries.append(
                {
                    "what": f"{operation} {outcome}",
                    "count": int(curve.count.sum()),
                    "first": float(curve.t[0]) if clock else None,
                    "last": float(curve.t[-1]) if clock else None,
                    "stages": [stage.number for stage in run.stages if stage.count(operation, outcome)],
                }
            )
    broken = [
        ("connection lost", event, count_of(event)) for event in run.events if is_lost_connection(event)
    ]
    grouped: dict[str, dict[str, Any]] = {}
    for what, event, count in [*((str(mark["text"]), mark, 1) for mark in marks), *broken]:
        t = float(event["t"])
        entry = grouped.setdefault(what, {"what": what, "count": 0, "first": t, "last": t, "stages": []})
        entry["count"] += count
        entry["first"], entry["last"] = min(entry["first"], t), max(entry["last"], t)
        number = _stage_at(run, t)
        if number is not None and number not in entry["stages"]:
            entry["stages"].append(number)
    entries += grouped.values()
    return sorted(entries, key=lambda entry: -1.0 if entry["first"] is None else entry["first"])


def _stage_at(run: RunData, t: float) -> int | None:
    inside = [stage for stage in run.stages if stage.begin <= t and (stage.end is None or t <= stage.end)]
    return inside[-1].number if inside else None
