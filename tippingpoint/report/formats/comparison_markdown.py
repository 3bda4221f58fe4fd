"""Renders a comparison as short Markdown: the verdict and the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tippingpoint.report import figures
from tippingpoint.report.formats.markup import MOST_LINES, bullets, joined, plain, section, table
from tippingpoint.util.numbers import show_number
from tippingpoint.util.text import show_amount, show_count

_OUTCOMES = {
    "worse": "❌ got worse",
    "better": "✅ got better",
    "none": "✅ no difference",
    "withheld": "❔ withheld, because other programs ran beside it",
    "single": "❔ one run each: differences between runs are not known",
    "apart": "❔ no load sustained by both",
    "published": "shown with published figures",
}
_MARKS = {"worse": "❌", "better": "✅", "same": "=", "unsure": "?"}
_MOST_CAVEATS = 3
_MOST_CELLS = 360
"""The maximum number of cells in the long table. Significant changes have a list, so only its beginning is kept."""


def render_comparison(document: dict[str, Any]) -> str:
    """Render a comparison's document as Markdown."""
    runs = document["runs"]
    blocks = [
        f"# {plain(document['title'])}: {_outcome(document)}",
        "**" + "; ".join(plain(part) for part in document["sentence"].split("; ")) + "**",
        plain(document["changes"]),
        plain(document["control"]["words"]) if document["control"] else "",
        bullets([_run(run) for run in runs]),
        section("The plans differ", bullets(document["differs"])),
        section("Published figures, side by side", _side_by_side(document["published"])),
        *(
            section(name.capitalize(), bullets(document[name]))
            for name in (("better", "worse") if document["outcome"] == "better" else ("worse", "better"))
        ),
        section("Withheld, because the control differs as much", bullets(document["withheld"])),
        section("Not comparable", bullets(document["not_comparable"])),
        section("Figures over all loads", _overall(document)),
        section("Recovery: how long until all was as before a fault", _recovery(document)),
        section("Figures", _figures(document)),
        section("Resource use of the targets", _resources(document)),
        section("Resource cost of one operation", _operation_costs(document)),
        section("Resource cost of the load", _costs(document)),
        *(_beside(baseline, runs) for baseline in document["beside"]),
        *(
            section(
                f"Published: {plain(baseline['title'])}",
                "\n\n".join([*_tables(baseline, document), bullets(_published(baseline))]),
            )
            for baseline in document["beside"]
        ),
    ]
    return joined(blocks)


def _outcome(document: dict[str, Any]) -> str:
    outcome = document["outcome"]
    if document["both_ways"]:
        return f"{_MARKS[outcome]} {document['both_ways']}"
    if document["cannot_tell"]:
        return f"❔ cannot tell ({document['cannot_tell'].replace('–', 'no interval')})"
    if outcome == "withheld" and document["control"]:
        return "❔ withheld, because the control differs as much"
    return _OUTCOMES[outcome] if document["runs"] else "as published"


def _run(run: dict[str, Any]) -> str:
    title = f"{run['title']}, " if run["titled"] or run["name"] != run["label"] else ""
    made = f", {run['started']}" if run["started"] else ""
    caveats = "".join(
        f" {line}{'' if line.endswith('.') else '.'}" for line in run["caveats"][:_MOST_CAVEATS]
    )
    if run["repeats"]:
        each = "; ".join(f"{one['words'] or 'nothing known'} ({one['id']})" for one in run["repeats"])
        return f"{run['label']}: {title}{run['version']}{made}: {len(run['repeats'])} runs: {each}.{caveats}"
    return f"{run['label']}: {title}{run['version']}{made}: {run['tipping']['sentence']}{caveats}"


def _overall(document: dict[str, Any]) -> str:
    rows = [
        [
            one["operation"] + ("" if one["kind"] == "ramp" else f", {one['kind']}"),
            figures.limit_name(one["measure"]),
            *(
                f"{figures.change(against['change'], one['measure'])} "
                f"({figures.interval(against['low'], against['high'], one['measure'])}) {_mark(against)}"
                for against in one["against"]
            ),
        ]
        for one in document["overall"]
    ]
    if not rows:
        return ""
    first, *others = (run["label"] for run in document["runs"])
    told = table(
        ["operation", "figure", *(f"{label}, change from {first} (95 % interval)" for label in others)],
        rows,
        text=(0, 1),
    )
    return f"Over the loads that all runs sustained; the most a second is that of any load.\n\n{told}"


def _recovery(document: dict[str, Any]) -> str:
    rows: list[list[str]] = []
    for one in document["recovery"]:
        first, *others = one["words"]
        cells = [one["what"], first]
        for words, against in zip(others, one["against"], strict=True):
            span = figures.interval(against["low"], against["high"], "")
            change = f", {figures.change(against['change'], '')}" if against["change"] is not None else ""
            cells.append(f"{words}{change}{f' ({span})' if span != '–' else ''} {_mark(against)}")
        rows.append(cells)
    header = ["fault", *(run["label"] for run in document["runs"])]
    header[2:] = [f"{label}, change from {header[1]} (95 % interval)" for label in header[2:]]
    return table(header, rows, text=(0,))


def _figures(document: dict[str, Any]) -> str:
    """Render the table of figures. Each cell has the figure, its ratio, the interval and the judgement."""
    runs = document["runs"]
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
            changed = f", {figures.change(against['change'], row['measure'])}" + (
                f" ({span})" if span != "–" else ""
            )
            cells.append(
                f"{figures.measured(value, row['measure'])}{changed if against['change'] is not None else ''} "
                f"{_mark(against) if value is not None else ''}".strip()
            )
        rows.append(cells)
    header = ["operation", document["load_unit"], "figure", *(run["label"] for run in runs)]
    if len(runs) > 1:
        header[4:] = [f"{label}, change from {header[3]} (95 % interval)" for label in header[4:]]
    most = _MOST_CELLS // len(header)
    return table(header, rows[:most], text=(0, 2), left_out=len(rows) - len(rows[:most]))


def _mark(against: dict[str, Any]) -> str:
    return _MARKS[against["judgement"]] if against["judgement"] else f"({against['beyond']})"


def _resources(document: dict[str, Any]) -> str:
    """Render each resource figure at the largest load that runs share and held, or else the largest load."""
    rows: list[list[str]] = []
    for figure in document["resources"]:
        shared = [
            place
            for place in range(len(figure["sizes"]))
            if any(of_run[place] for of_run in figure["ratios"])
        ]
        held = [
            place for place in shared if all(_held(run, figure["sizes"][place]) for run in document["runs"])
        ]
        place = (held or shared or range(len(figure["sizes"])))[-1]
        cells = [figure["what"], figures.number(figure["sizes"][place])]
        for number, levels in enumerate(figure["levels"]):
            ratio = figure["ratios"][number - 1][place] if number else None
            span = f" ({figures.times(ratio['low'])} to {figures.times(ratio['high'])})" if ratio else ""
            typical = levels[place]["typical"] if levels[place] else None
            cells.append(
                figures.quantity(typical, figure["unit"])
                + (f", {figures.times(ratio['ratio'])}{span}" if ratio else "")
                + ("" if _held(document["runs"][number], figure["sizes"][place]) else " (not sustained)")
            )
        rows.append(cells)
    header = ["figure, mean of a host", document["load_unit"], *(run["label"] for run in document["runs"])]
    without = document["without_resources"]
    told = table(header, rows, text=(0,))
    if rows and without:
        told += f"\n\nNothing was gathered of {plain(', '.join(without))}."
    return told


def _held(run: dict[str, Any], size: int) -> bool:
    return size in run["reach"]["loads"]


def _costs(document: dict[str, Any]) -> str:
    rows = [
        [
            cost["what"],
            *(
                words + (f", {figures.times(ratio)}" if ratio is not None else "")
                for words, ratio in zip(cost["words"], [None, *cost["ratios"]], strict=True)
            ),
        ]
        for cost in document["costs"]
    ]
    header = ["figure, of all hosts", *(run["label"] for run in document["runs"])]
    shown = rows[:MOST_LINES]
    return table(header, shown, text=range(len(header)), left_out=len(rows) - len(shown))


def _operation_costs(document: dict[str, Any]) -> str:
    rows = [
        [
            cost["what"] + (f", with {', '.join(cost['includes'])}" if cost["includes"] else ""),
            cost["words"][0],
            *(
                f"{words}, {against['words']}" if against["words"] else words
                for words, against in zip(cost["words"][1:], cost["against"], strict=True)
            ),
        ]
        for cost in document["operation_costs"]
    ]
    header = ["figure, of all hosts", *(run["label"] for run in document["runs"])]
    shown = rows[:MOST_LINES]
    return table(header, shown, text=range(len(header)), left_out=len(rows) - len(shown))


def _side_by_side(published: dict[str, Any]) -> str:
    rows: list[list[str]] = []
    for row in published["rows"]:
        what = f"{row['resource'] or row['what']}{' per ' + row['per'] if row['per'] else ''}"
        cells = [what, row["role"] or "–"]
        for place, told in enumerate(row["told"]):
            said = [figures.published(told["figure"])] if told and told["figure"] else []
            said += [f"({figures.load(told['figure']['at'])})"] if said and told["figure"]["at"] else []
            said += [f"→ {told['words']}"] if told and place != row["base"] else []
            cells.append(" ".join(said) or ("1x (value not published)" if told else "–"))
        rows.append(cells)
    return table(["what", "whose", *published["names"]], rows, text=range(len(published["names"]) + 2))


def _beside(baseline: dict[str, Any], runs: Sequence[dict[str, Any]]) -> str:
    timings = baseline["timings"]
    if timings is None:
        return ""
    header = ["command", "published"]
    for column in timings["columns"]:
        members = f", {show_count(column['members'], 'member')}" if column["members"] else ""
        where = f"{runs[column['run']]['label']}: {show_amount(column['containers'], 'containers')}{members}"
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
    rendered = table(header, rows, text=(0,))
    if timings["made"]:
        here = ", ".join(
            f"{run['label']} {figures.rate(rate)}"
            for run, rate in zip(runs, timings["made"]["runs"], strict=True)
        )
        published = figures.published(timings["made"]["published"])
        rendered += f"\n\nContainers created: {published} as published; in these runs {here}."
    return section(f"The same commands in these runs: {plain(baseline['title'])}", rendered)


def _tables(baseline: dict[str, Any], document: dict[str, Any]) -> list[str]:
    """Render published Rally tables, in seconds, with the runs' own figures below each action."""
    columns = ("min", "avg", "max", "p90", "p95")
    rendered: list[str] = []
    for published, same in zip(baseline["tables"], baseline["same"], strict=True):
        rows: list[list[str]] = []
        for row, here in zip(published["rows"], same, strict=True):
            found = [(row["operation"], row)]
            found += [
                (
                    f"{document['runs'][one['run']]['label']}, {show_amount(one['size'], document['load_unit'])}",
                    one,
                )
                for one in here
            ]
            rows += [
                [
                    what,
                    *(show_number(told[column], 6) for column in columns),
                    f"{show_number(told['success'], 6)} %",
                    figures.number(told["count"]),
                ]
                for what, told in found
            ]
        under = f"; {figures.load(published['at'])}" if published["at"] else ""
        header = [
            f"{published['title']}, seconds{under}",
            "min",
            "avg",
            "max",
            "90 %",
            "95 %",
            "success",
            "count",
        ]
        shown = rows[:MOST_LINES]
        rendered.append(table(header, shown, text=(0,), left_out=len(rows) - len(shown)))
    return rendered


def _published(baseline: dict[str, Any]) -> list[str]:
    source = baseline["source"]
    lines = [
        f"{figure['what']}: {figures.published(figure)}"
        + (f" ({figures.load(figure['at'])})" if figure["at"] else "")
        for figure in baseline["figures"]
    ]
    return [*lines, f"source: {source['title']}, {source['where']}"]
