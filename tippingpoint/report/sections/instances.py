"""Builds the sections for runs that create containers or servers: fill, timings, members, retries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.fill_rate import Fill, fill_words
from tippingpoint.analysis.latency import costs
from tippingpoint.compare.baselines import Baseline, Figure
from tippingpoint.plan.kinds import facts_of
from tippingpoint.report import figures
from tippingpoint.report.sections.landing import host_name
from tippingpoint.rundir.cluster_events import ONLINE, Cluster
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.journal import count_of
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult

_LINES = 7
"""The most members with a line each on a chart. With more, it shows the fullest, the median and the emptiest."""
_TOGETHER = 5.0
"""Seconds within which changes of one kind share a mark on the charts; in long runs, a hundredth of the run."""
_NAMED = 3
_INSTANT = 0.001
"""Seconds before a stage's end at which its state is read: at the end it may belong to the next stage."""


def counted(run: RunData) -> str:
    """Return what a stage counts while it is brought up: things, or iterations where nothing stays."""
    return "iterations" if run.manifest.load_unit.startswith("iterations") else run.things


def build_fill(run: RunData, fills: Sequence[Fill]) -> list[dict[str, Any]]:
    """Return how fast containers were created, for each number of members. `sentence` says whether this slowed down."""
    return [
        {
            "members": fill.members,
            "made": fill.made,
            "seconds": fill.seconds,
            "per_second": fill.rate,
            "first_third": fill.first if fill.enough else None,
            "last_third": fill.last if fill.enough else None,
            "times_slower": fill.first / fill.last if fill.enough else None,
            "low": fill.low if fill.enough else None,
            "high": fill.high if fill.enough else None,
            "sentence": fill_words(fill, len(fills) == 1, counted(run)),
        }
        for fill in fills
    ]


def build_timings(run: RunData, cluster: Cluster) -> dict[str, Any] | None:
    """Return the response times of user commands in each stage, while filling and at idle; None without any.

    They are in microseconds; failures count with the time they took. `members` is the number of members at the start of
    a stage's hold, `members_end` at its end. `containers` is the number of the run's containers in the hold.
    """
    commands = facts_of(run.manifest.target.kind).commands
    asked = [name for name in run.operations if name in commands]
    stages = [stage for stage in run.stages if stage.kind != "destroy"]
    if not asked or not stages:
        return None
    return {
        "stages": [_stage(stage, cluster) for stage in stages],
        "rows": [
            {
                "operation": name,
                "command": commands[name],
                "stages": [
                    {"filling": _times(_filling(stage), name), "idle": _times(_idle(stage), name)}
                    for stage in stages
                ],
            }
            for name in asked
        ],
    }


def _stage(stage: StageResult, cluster: Cluster) -> dict[str, Any]:
    begin = stage.hold_begin if stage.hold_begin is not None else stage.begin
    end = max(begin, stage.end - _INSTANT) if stage.end is not None else begin
    return {
        "number": stage.number,
        "containers": round(stage.gauges["held"]) if "held" in stage.gauges else None,
        "members": len(cluster.online(begin)) or None,
        "members_end": len(cluster.online(end)) or None,
    }


def _idle(stage: StageResult) -> StageResult:
    return replace(stage, histograms=stage.held)


def _filling(stage: StageResult) -> StageResult:
    """Return the stage without its hold."""
    before = {
        name: Histogram(whole.counts - stage.held[name].counts) if name in stage.held else whole
        for name, whole in stage.histograms.items()
    }
    return replace(stage, histograms=before)


def _times(stage: StageResult, operation: str) -> dict[str, Any]:
    found = costs(stage, operation)
    p50, p99 = found.percentiles([50, 99]) if found.total else (None, None)
    p99 = p99 if found.total > 1 else None  # one sample has no tail
    return {"p50": p50, "p99": p99, "count": found.total}


def build_members(run: RunData, cluster: Cluster) -> list[dict[str, Any]]:
    """Return each member's number of things at the end of each stage, its losses, and its status changes.

    The list is empty if only the leaders are known.
    """
    if not cluster.placed and not any(member.changes or member.lost for member in cluster.members):
        return []
    ends = [stage.end for stage in run.stages if stage.end is not None]
    at_ends = [cluster.things(end - _INSTANT) for end in ends]
    only = cluster.members[0].name if len(cluster.members) == 1 else None
    return [
        {
            "name": host_name(member.name) or only or "(no member)",
            "at_end": [things.get(member.name, 0) for things in at_ends],
            "lost": member.lost,
            "led": member.led,
            "changes": [
                {"t": change.t, "status": change.status, "things": change.things} for change in member.changes
            ],
        }
        for member in cluster.members
    ]


def build_retries(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return retries by operation and kind of failure, things given up with the reasons, and repairs."""
    retries: dict[tuple[str, ...], dict[str, Any]] = {}
    given_up: dict[tuple[str, ...], dict[str, Any]] = {}
    repaired = 0
    for event in events:
        count = count_of(event)
        key = (str(event.get("operation", "")), str(event.get("kind", "")))
        if event["event"] == "retry":
            _add(retries, ("operation", "kind"), key, count, event["t"])
        elif event["event"] == "gave-up":
            key = (*key, str(event.get("error", "")))
            _add(given_up, ("operation", "kind", "error"), key, count, event["t"])
        elif event["event"] == "repaired":
            repaired += count
    return {"retries": _most(retries), "gave_up": _most(given_up), "repaired": repaired}


def _add(
    into: dict[tuple[str, ...], dict[str, Any]],
    names: Sequence[str],
    key: tuple[str, ...],
    count: int,
    t: float,
) -> None:
    entry = into.setdefault(key, {**dict(zip(names, key, strict=True)), "count": 0, "first": t})
    entry["count"] += count
    entry["last"] = t


def _most(entries: dict[tuple[str, ...], dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(entries.values(), key=lambda entry: (-entry["count"], entry["first"]))


def cluster_marks(cluster: Cluster, seconds: float) -> list[dict[str, Any]]:
    """Return the marks on charts over time for members that joined or left, and for leader changes.

    `seconds` is the run's duration.
    """
    changes = sorted(
        (
            (change.t, change.status, host_name(member.name))
            for member in cluster.members
            for number, change in enumerate(member.changes)
            if number or change.status != "online"
        ),
        key=lambda change: change[0],
    )
    near = max(_TOGETHER, seconds / 100)
    groups: list[_Group] = []
    for t, status, name in changes:
        recent = [group for group in groups if t - group.t <= near]
        same = next((group for group in recent if group.statuses == [status]), None)
        further = next(
            (g for g in recent if (g.names, g.statuses, status) == ([name], ["lost"], "evicted")), None
        )
        if same is not None:
            same.names.append(name)
        elif further is not None:
            further.statuses.append(status)
        else:
            groups.append(_Group(t, [status], [name]))
    marks = [
        {
            "t": group.t,
            "kind": "member-back" if group.statuses[0] in ONLINE else "member-gone",
            "text": f"{_names(group.names)} {', '.join(group.statuses)}",
        }
        for group in groups
    ]
    marks += [{"t": t, "kind": "leader", "text": f"{name} leads"} for t, name in cluster.leaders[1:]]
    return marks


@dataclass
class _Group:
    t: float
    statuses: list[str]
    names: list[str]


def _names(names: Sequence[str]) -> str:
    return figures.listed(names) if len(names) <= _NAMED else f"{len(names)} members"


def members_over_time(cluster: Cluster, bins: int, width: float) -> dict[str, list[int | None]]:
    """Return how many of the run's things were on each member, or on the fullest, median and emptiest member."""
    if not cluster.placed:
        return {}
    names = [member.name for member in cluster.members]
    moments = [(number + 1) * width for number in range(bins)]
    counts = [cluster.things(t) for t in moments]
    if len(names) <= _LINES:
        return {host_name(name): [found.get(name, 0) for found in counts] for name in names}
    there = [cluster.online(t) or list(found) for t, found in zip(moments, counts, strict=True)]
    spread = [[found.get(name, 0) for name in online] for found, online in zip(counts, there, strict=True)]
    return {
        "the fullest member": [max(found) if found else None for found in spread],
        "the median": [int(np.median(found)) if found else None for found in spread],
        "the emptiest": [min(found) if found else None for found in spread],
    }


def command_of(figure: Figure, commands: Mapping[str, str]) -> str | None:
    """Return the operation of a published figure that names one of these commands; None for any other."""
    words = figure.what.split()
    while "--project" in words:
        place = words.index("--project")
        del words[place : place + 2]
    typed = " ".join(words)
    if typed == commands.get("list"):
        return "list"
    longest_first = sorted(commands, key=lambda name: -len(commands[name]))
    return next(
        (name for name in longest_first if name != "list" and (typed + " ").startswith(commands[name] + " ")),
        None,
    )


def beside_runs(baseline: Baseline, runs: Sequence[Analysis]) -> dict[str, Any] | None:
    """Return a baseline's timings next to the runs' own for the same commands; None if they share none.

    `columns` are the stages of the runs (`run` counts from 0). `rows` have the published figure and, for each column,
    the command's times while filling and at idle. `made` has the published rate of creation and that of each run (None
    if it created nothing).
    """
    timings = [build_timings(analysis.run, analysis.cluster) for analysis in runs]
    columns = [
        {"run": number, **stage}
        for number, told in enumerate(timings)
        if told is not None
        for stage in told["stages"]
    ]
    rows: list[dict[str, Any]] = []
    commands = facts_of(baseline.target.kind).commands
    for figure in baseline.figures:
        operation = command_of(figure, commands)
        cells = [
            cell
            for told in timings
            if told is not None
            for cell in next(
                (row["stages"] for row in told["rows"] if row["operation"] == operation),
                [None] * len(told["stages"]),
            )
        ]
        if operation is not None and any(cells):
            rows.append({"command": commands[operation], "published": figure.model_dump(), "stages": cells})
    published = next((figure for figure in baseline.figures if figure.unit == "containers/s"), None)
    made = published and {
        "published": published.model_dump(),
        "runs": [
            sum(fill.made for fill in found) / sum(fill.seconds for fill in found) if found else None
            for found in (analysis.fills for analysis in runs)
        ],
    }
    return {"columns": columns, "rows": rows, "made": made} if rows else None
