"""Renders a run for a terminal: the summary at its end, and its report, in lines that fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from tippingpoint.plan.kinds import target_name
from tippingpoint.report import figures
from tippingpoint.report.sections.totals import Totals

Document = dict[str, Any]

_COLOURS = {"met": "green", "missed": "red", "withheld": "yellow", "failed": "red"}
_MARKS = {True: ("✓", "green"), False: ("✗", "red"), None: ("?", "yellow")}
_ROOMY = 118
"""The minimum number of columns to show thresholds next to their operation instead of below it."""
_MOST_ROWS = 20
_MOST_STAGES = 24


def render_end(document: Document, totals: Sequence[Totals], width: int) -> list[Text]:
    """Render the operations of a run with their thresholds, then verdict, tipping point and causes.

    Each sentence is one line, which the console breaks between words.
    """
    return _joined([_operations(document, totals, width), _answers(document)])


def render_report(document: Document, totals: Sequence[Totals], width: int) -> list[Text]:
    """Render a run's report. It leaves out what belongs on a page: charts, and tables of events."""
    return _joined(
        [
            _title(document),
            _answers(document),
            _list("Beware", [*_further(document["verdict"]), *document["cautions"]]),
            _stages(document, width),
            _operations(document, totals, width),
            _list("Cost of one operation", _costs(document)),
            _list("Notes", document["notes"]),
        ]
    )


def _further(verdict: dict[str, Any]) -> list[str]:
    """Return the reasons that the verdict's sentence does not contain."""
    return [reason for reason in verdict["reasons"] if reason not in verdict["sentence"]]


def _title(document: Document) -> list[Text]:
    run = document["run"]
    target = target_name(run["target"]["kind"], run["target"]["version"])
    members = run["target"]["members"]
    what = [target, f"{len(members)} members" if len(members) > 1 else "", run["started"] or run["origin"]]
    what += [figures.seconds(run["seconds"]) if run["seconds"] is not None else ""]
    what += [f"{run['status']}: {run['reason']}" if run["reason"] else ""]
    lines = [Text(run["title"], style="bold").append(f"  {run['id']}", style="not bold bright_black")]
    lines.append(Text(", ".join(part for part in what if part)))
    if run["simulated"]:
        lines.append(Text("On a simulator, not on a real target.", style="yellow"))
    return lines


def _answers(document: Document) -> list[Text]:
    """Render the verdict with its first words in colour, and below it where the target tips and why."""
    verdict = document["verdict"]
    first, colon, rest = verdict["sentence"].partition(":")
    colour = _COLOURS[verdict["outcome"]]
    if colon and len(first) < 20:
        said = Text(f"{first}{colon}", style=f"bold {colour}").append(rest, style="not bold default")
    elif verdict["outcome"] == "met" and not verdict["checks"]:
        said = Text(verdict["sentence"])
    else:
        said = Text(f"{verdict['outcome'].capitalize()}: ", style=f"bold {colour}")
        said.append(verdict["sentence"], style="not bold default")
    why: list[str] = [cause["sentence"] for cause in document["causes"] if cause["load"] is not None]
    if document.get("profiles") is not None:
        why += document["profiles"]["sentences"]
    return [said, *(Text(sentence) for sentence in (document["tipping"]["sentence"], *why) if sentence)]


def _operations(document: Document, totals: Sequence[Totals], width: int) -> list[Text]:
    """Render a table of operations over all stages, each with its thresholds."""
    limits: dict[str, list[Text]] = {}
    unit = document["run"]["load_unit"]
    for entry in document["thresholds"]:
        limits.setdefault(entry["operation"], []).append(_limit(entry, unit))
    shown = list(totals)[:_MOST_ROWS]
    rows = [
        [
            each.operation,
            f"{each.count:,}",
            figures.rate(each.rate),
            *(figures.latency(value) for value in (each.p50, each.p90, each.p99, each.max)),
            figures.share(each.failed),
        ]
        for each in shown
    ]
    header = ["operation", "count", "rate", "p50", "p90", "p99", "max", "failed"]
    beside = width >= _ROOMY
    lines: list[Text] = []
    table = _table(header, rows)
    if table:
        lines.append(table[0].append("   threshold" if beside and limits else "", style="bold"))
    for row, each in zip(table[1:], shown, strict=True):
        of_it = limits.pop(each.operation, [])
        if beside and of_it:
            blank = " " * (len(row) + 3)
            lines += [
                row.append("   ").append_text(of_it[0]),
                *(_row(blank).append_text(one) for one in of_it[1:]),
            ]
        else:
            lines += [row, *(_row("    ").append_text(one) for one in of_it)]
    if len(totals) > len(shown):
        lines.append(
            Text(f"and {len(totals) - len(shown)} more operations in the report", style="bright_black")
        )
    # Thresholds on figures, and on operations that were never called.
    for subject, of_it in limits.items():
        lines += [_row(f"{subject}  ").append_text(one) for one in of_it]
    return lines


def _limit(entry: dict[str, Any], unit: str) -> Text:
    """Render a threshold: ✗ p99 ≤ 100 ms: 1.05 s at 2,000 leases."""
    probes = entry.get("probes")  # for a search, which exceeds its limits on purpose
    mark, colour = ("·", "") if probes and entry["met"] is None else _MARKS[entry["met"]]
    of_figure = entry.get("unit", "")
    sign = "≥" if entry["limit"] == "throughput" else "≤"
    allowed, worst = (
        figures.measured(entry[name], entry["limit"], of_figure) for name in ("allowed", "worst")
    )
    name = "" if of_figure or entry["limit"] == "figure" else f"{figures.limit_name(entry['limit'])} "
    at = f" at {figures.amount(entry['size'], unit)}" if entry["size"] is not None else ""
    found = f"{worst}{at}" if entry["worst"] is not None else "" if probes else "not measured"
    found = "; ".join(filter(None, (found, probes)))
    return Text(f"{mark} ", style=colour).append(f"{name}{sign} {allowed}: {found}", style="default")


def _stages(document: Document, width: int) -> list[Text]:
    """Render the loads in order, each with the operations that succeeded most."""
    stages = document["stages"]
    names = [name for name in document["loading"] if any(name in stage["operations"] for stage in stages)]
    columns = max(1, (width - 24) // 34)
    done = {name: sum(_successes(stage, name) for stage in stages) for name in names}
    names = sorted(sorted(names, key=lambda name: -done[name])[:columns], key=names.index)
    header = ["stage", document["run"]["load_unit"]]
    for name in names:
        header += [f"{name} rate", "p99", "failed"]
    kept = stages if len(stages) <= _MOST_STAGES else [*stages[: _MOST_STAGES - 1], stages[-1]]
    rows = [[str(stage["number"]), _load(stage), *_cells(stage, names)] for stage in kept]
    return _table(header, rows, text=()) if names and rows else []


def _load(stage: dict[str, Any]) -> str:
    return figures.number(stage["size"]) + ("" if stage["kind"] in ("ramp", "find") else f" {stage['kind']}")


def _successes(stage: dict[str, Any], name: str) -> int:
    found = stage["operations"].get(name)
    return found["ok"] if found is not None else 0


def _cells(stage: dict[str, Any], names: Sequence[str]) -> list[str]:
    cells: list[str] = []
    for name in names:
        found = stage["operations"].get(name)
        if found is None:
            cells += ["–", "–", "–"]
            continue
        p99 = found["cost"]["p99"] if found["cost"] else None
        failed = None if found["success"] is None else 1 - found["success"]
        cells += [figures.rate(found["throughput"]), figures.latency(p99), figures.share(failed)]
    return cells


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], text: Sequence[int] = (0,)) -> list[Text]:
    """Align the columns of a table, those in `text` to the left; empty without rows."""
    if not rows:
        return []
    wide = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]

    def line(row: Sequence[str]) -> str:
        cells = (f"{cell:{wide[at]}}" if at in text else f"{cell:>{wide[at]}}" for at, cell in enumerate(row))
        return "  ".join(cells)

    return [_row(line(header), "bold"), *(_row(line(row)) for row in rows)]


def _costs(document: Document) -> list[str]:
    """Return the cost of each operation on all hosts together, in sentences."""
    return [cost["sentence"] for cost in document["operation_costs"] if cost["role"] == "all"]


def _list(heading: str, lines: Sequence[str]) -> list[Text]:
    return [Text(heading, style="bold"), *(Text(f"- {line}") for line in lines)] if lines else []


def _row(text: str, style: str = "") -> Text:
    """Return a line that is cut off, not wrapped, if it is too long."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _joined(blocks: Sequence[Sequence[Text]]) -> list[Text]:
    """Put an empty line between blocks that are not empty."""
    found: list[Text] = []
    for block in blocks:
        if block:
            found += [Text(""), *block] if found else block
    return found
