"""The report as Markdown for an action's output or a pull request: the verdict and the tables, always short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from tippingpoint.report import figures

_T = TypeVar("_T")

LIMIT = 30_000
"""Bytes (UTF-8) that no report exceeds: what an action's output takes."""
_MOST_STAGES = 24
_MOST_LINES = 20
_MOST_CHARACTERS = 300
_BADGES = {"met": "✅ met", "missed": "❌ missed", "withheld": "❔ withheld", "failed": "❗ failed"}
_MARKS = {True: "✅ met", False: "❌ missed", None: "– not judged"}


def render_run(document: dict[str, Any]) -> str:
    """The Markdown of a run's document."""
    run, verdict, unit = document["run"], document["verdict"], document["run"]["load_unit"]
    target = " ".join(word for word in (run["target"]["kind"], run["target"]["version"]) if word)
    members = f", {len(run['target']['members'])} members" if run["target"]["members"] else ""
    what = [f"{_plain(target)}{members}"]
    what += [f"plan {_plain(run['plan'])}"] if run["plan"] else []
    what += [run["started"]] if run["source"] == "run" else [_plain(run["origin"])]
    what += [run["status"] + (f": {_plain(run['reason'])}" if run["reason"] else "")]
    what += (
        [f"{'at' if run['instances'] else 'controller'} {_plain(run['controller'])}"]
        if run["controller"]
        else []
    )
    what += [f"identity {run['identity']}"] if run["identity"] else []
    blocks = [
        f"# {_plain(run['title'])}: {_badge(document)}",
        "**On a simulator, not on a real controller.**" if run["simulated"] else "",
        f"**{_plain(verdict['sentence'])}**",
        _plain(document["tipping"]["sentence"]),
        _bullets(verdict["reasons"]),
        " · ".join(part for part in what if part) + f" · run `{_plain(run['id']).replace('`', '')}`",
        _thresholds(document["thresholds"], unit),
        _section("What users wait for, p50 / p99", _timings(document["timings"])),
        _section("Members", _members(document)),
        *_operations(document, unit),
        _growth(document, unit),
        _section("Tried again", _retries(document)),
        _errors(document),
        _section("Units", _units(document["units"])),
        _section("Notes", _bullets(document["notes"])),
    ]
    return _joined(blocks)


def _badge(document: dict[str, Any]) -> str:
    outcome = document["verdict"]["outcome"]
    return "no thresholds" if outcome == "met" and not document["thresholds"] else _BADGES[outcome]


def _thresholds(entries: Sequence[dict[str, Any]], unit: str) -> str:
    rows = [
        [
            entry["operation"],
            figures.limit_name(entry["limit"]),
            ("≥ " if entry["limit"] == "throughput" else "≤ ")
            + figures.measured(entry["allowed"], entry["limit"]),
            figures.measured(entry["worst"], entry["limit"]),
            figures.number(entry["size"]),
            _MARKS[entry["met"]],
        ]
        for entry in entries[:_MOST_LINES]
    ]
    header = ["operation", "limit", "allowed", "worst", f"at {unit}", "result"]
    return _section("Thresholds", _table(header, rows, text=(0, 1, 5), left_out=len(entries) - len(rows)))


def _operations(document: dict[str, Any], unit: str) -> list[str]:
    header = [unit, "min", "avg", "max", "50 %", "90 %", "95 %", "99 %", "99.9 %", "success", "count"]
    columns = ("min", "mean", "max", "p50", "p90", "p95", "p99", "p999")
    blocks: list[str] = []
    for name in document["operations"]:
        stages = [stage for stage in document["stages"] if name in stage["operations"]]
        rows: list[list[str]] = []
        for stage in _spread(stages):
            measured = stage["operations"][name]
            times = measured["response"] or dict.fromkeys(columns)
            rows.append(
                [
                    figures.number(stage["size"]) + ("" if stage["kind"] == "ramp" else f" {stage['kind']}"),
                    *(figures.milliseconds(times[column]) for column in columns),
                    figures.share(measured["success"]),
                    figures.number(measured["attempts"]),
                ]
            )
        table = _table(header, rows, left_out=len(stages) - len(rows))
        blocks.append(_section(f"{_plain(name)}, response time in ms", table))
    return blocks


def _timings(timings: dict[str, Any] | None) -> str:
    if timings is None:
        return ""
    stages: list[dict[str, Any]] = timings["stages"]
    header = ["command"]
    kept = _spread(list(range(len(stages))))
    for stage in (stages[place] for place in kept):
        members = f", {stage['members']} members" if stage["members"] else ""
        where = f"{figures.number(stage['containers'])} containers{members}"
        header += [f"{where}: filling", "at idle"]
    rows = [
        [
            row["command"],
            *(
                f"{figures.latency(times['p50'])} / {figures.latency(times['p99'])}"
                for place in kept
                for times in (row["stages"][place]["filling"], row["stages"][place]["idle"])
            ),
        ]
        for row in timings["rows"]
    ]
    return _table(header, rows, text=(0,))


def _members(document: dict[str, Any]) -> str:
    ended = [stage for stage in document["stages"] if stage["end"] is not None]
    kept = _spread(list(range(len(ended))))
    members: list[dict[str, Any]] = document["members"]
    rows = [
        [
            member["name"],
            *(figures.number(member["at_end"][place]) for place in kept),
            figures.number(member["lost"]),
            ", ".join(figures.clock(t) for t in member["led"]) or "–",
            ", ".join(f"{change['status']} {figures.clock(change['t'])}" for change in member["changes"]),
        ]
        for member in members[:_MOST_LINES]
    ]
    stages = [f"stage {ended[place]['number']}" for place in kept]
    header = ["member", *stages, "lost", "led from", "what became of it"]
    table = _table(header, rows, text=(0, len(header) - 1), left_out=len(members) - len(rows))
    repaired = document["repaired"]
    again = f"{figures.number(repaired)} containers that were gone were made again." if repaired else ""
    return "\n\n".join(part for part in (table, again) if part)


def _retries(document: dict[str, Any]) -> str:
    lines = [
        f"{figures.number(retry['count'])} x {retry['operation']}: {retry['kind']}"
        for retry in document["retries"]
    ]
    lines += [
        f"given up: {figures.number(entry['count'])} x {entry['operation']}, {entry['kind']}: {entry['error']}"
        for entry in document["gave_up"]
    ]
    return _bullets(lines)


def _growth(document: dict[str, Any], unit: str) -> str:
    parts: list[dict[str, Any]] = document["growth"]
    rows = [
        [
            figures.number(part["size"]) + ("" if part["kind"] == "ramp" else f" {part['kind']}"),
            figures.number(round(part["from"])),
            figures.number(round(part["to"])),
            figures.seconds(part["seconds"]),
            figures.rate(part["per_second"]),
        ]
        for part in _spread(parts)
    ]
    things = document["run"]["things"]
    table = _table(
        [unit, f"{things} from", "to", "within", "per second"], rows, left_out=len(parts) - len(rows)
    )
    sentences = _bullets([entry["sentence"] for entry in document["fill"]])
    return _section("Growth", "\n\n".join(part for part in (sentences, table) if part))


def _units(units: Sequence[dict[str, Any]]) -> str:
    """The units, those first that lack something."""
    ordered = sorted(units, key=lambda unit: unit["status"] == "complete")
    rows = [
        [
            unit["name"],
            figures.of(unit["share"], unit["of"], unit["status"]),
            figures.number(unit["cores"]) if unit["cores"] else "–",
            figures.offset(unit["clock_offset"], unit["clock_error"]),
            unit["status"],
            unit["why"],
        ]
        for unit in ordered[:_MOST_LINES]
    ]
    header = ["unit", "share", "cores", "clock ahead by", "status", "why"]
    return _table(header, rows, text=(0, 4, 5), left_out=len(units) - len(rows))


def _spread(stages: list[_T]) -> list[_T]:
    """All stages, or the first, the last and an even choice of those between."""
    if len(stages) <= _MOST_STAGES:
        return stages
    last = len(stages) - 1
    return [stages[round(place * last / (_MOST_STAGES - 1))] for place in range(_MOST_STAGES)]


def _errors(document: dict[str, Any]) -> str:
    events = document["events"]
    lines = [
        f"{figures.number(error['count'])} x {error['operation']} {error['outcome']}: {error['message']}"
        for error in [*events["errors"], *events["limited"]]
    ]
    if events["connections"]:
        lost = events["connections"]
        lines.append(
            f"{figures.number(lost['lost'])} connections lost, {figures.number(lost['again'])} made again while held"
        )
    if events["lost"]["count"]:
        lines.insert(0, f"{figures.number(events['lost']['count'])} {document['run']['things']} lost")
    lines += [f"{figures.clock(mark['t'])} {mark['text']}" for mark in events["marks"]]
    return _section("Events", _bullets(lines))


def render_comparison(document: dict[str, Any]) -> str:
    """The Markdown of a comparison's document."""
    outcome = "❌ got worse" if document["regressed"] else "✅ nothing got worse"
    if not document["rows"]:
        outcome = "❔ nothing to compare"
    runs = document["runs"]
    unit = document["load_unit"]
    rows: list[list[str]] = []
    for row in document["rows"]:
        cells = [
            row["operation"],
            figures.number(row["size"])
            + (" storm" if row["storm"] else " destroy" if row["destroy"] else ""),
            figures.limit_name(row["measure"]),
            figures.measured(row["values"][0], row["measure"]),
        ]
        for value, against in zip(row["values"][1:], row["against"], strict=True):
            span = figures.interval(against["low"], against["high"], row["measure"])
            cells += [
                figures.measured(value, row["measure"]),
                f"{figures.change(against['change'], row['measure'])} ({span})",
                against["judgement"],
            ]
        rows.append(cells)
    header = ["operation", unit, "figure", runs[0]["letter"]]
    for run in runs[1:]:
        header += [run["letter"], f"{run['letter']} / {runs[0]['letter']} (95 % interval)", "judgement"]
    # The figures that changed for certain are listed by themselves: a long table keeps only its beginning.
    most = max(12, 120 // len(runs))
    blocks = [
        f"# {_plain(' / '.join(run['title'] for run in runs))}: {outcome}",
        f"**{_plain(document['sentence'])}**",
        _bullets([f"{r['letter']}: {r['title']} ({r['version']}): {r['tipping']['sentence']}" for r in runs]),
        _section("Worse", _bullets(document["worse"])),
        _section("Better", _bullets(document["better"])),
        _section("Not comparable", _bullets(document["not_comparable"])),
        _section("Figures", _table(header, rows[:most], text=(0, 2), left_out=len(rows) - len(rows[:most]))),
        *(_beside(baseline, runs) for baseline in document["beside"]),
        *(
            _section(f"Published: {_plain(baseline['title'])}", _bullets(_published(baseline)))
            for baseline in document["beside"]
        ),
    ]
    return _joined(blocks)


def _beside(baseline: dict[str, Any], runs: Sequence[dict[str, Any]]) -> str:
    timings = baseline["timings"]
    if timings is None:
        return ""
    header = ["command", "published"]
    for column in timings["columns"]:
        members = f", {column['members']} members" if column["members"] else ""
        where = f"{runs[column['run']]['letter']}: {figures.number(column['containers'])} containers{members}"
        header += [f"{where}, filling", "at idle"]
    rows = [
        [
            row["command"],
            figures.published(row["published"]),
            *(
                figures.latency(cell[when]["p50"] if cell else None)
                for cell in row["stages"]
                for when in ("filling", "idle")
            ),
        ]
        for row in timings["rows"]
    ]
    table = _table(header, rows, text=(0,))
    if timings["made"]:
        here = ", ".join(
            f"{run['letter']} {figures.rate(rate)}"
            for run, rate in zip(runs, timings["made"]["runs"], strict=True)
        )
        table += (
            f"\n\nContainers created: {figures.published(timings['made']['published'])} as published; {here}."
        )
    return _section(f"The same commands here: {_plain(baseline['title'])}", table)


def _published(baseline: dict[str, Any]) -> list[str]:
    source = baseline["source"]
    lines = [
        f"{figure['what']}: {figures.published(figure)}"
        + (f" ({figures.load(figure['at'])})" if figure["at"] else "")
        for figure in baseline["figures"]
    ]
    return [*lines, f"source: {source['title']}, {source['where']}"]


def _section(heading: str, body: str) -> str:
    return f"## {heading}\n\n{body}" if body else ""


def _bullets(lines: Sequence[str]) -> str:
    shown = [f"- {_plain(line)}" for line in lines[:_MOST_LINES]]
    if len(lines) > len(shown):
        shown.append(f"- and {len(lines) - len(shown)} more; see the JSON report")
    return "\n".join(shown)


def _table(
    header: Sequence[str], rows: Sequence[Sequence[str]], text: Sequence[int] = (), left_out: int = 0
) -> str:
    if not rows:
        return ""
    rule = ["---" if column in text else "---:" for column in range(len(header))]
    lines = ["| " + " | ".join(_plain(cell) for cell in row) + " |" for row in (header, *rows)]
    lines.insert(1, "|" + "|".join(rule) + "|")
    if left_out:
        lines.append(f"\n{left_out} more rows are in the JSON report.")
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Text as text: on one line, not too long, and nothing in it is markup."""
    line = " ".join(str(text).split())
    if len(line) > _MOST_CHARACTERS:
        line = line[: _MOST_CHARACTERS - 1] + "…"
    for character in "\\`*|[]<>":
        line = line.replace(character, "\\" + character)
    return line


def _joined(blocks: Sequence[str]) -> str:
    """The blocks that have anything in them; the last ones give way when the whole would be too long."""
    kept: list[str] = []
    size = 0
    for block in blocks:
        if not block:
            continue
        length = len(block.encode()) + 2
        if size + length > LIMIT - 100:
            kept.append("The rest is in the JSON report.")
            break
        kept.append(block)
        size += length
    return "\n\n".join(kept) + "\n"
