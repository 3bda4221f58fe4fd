"""Renders a trend as short Markdown: the sentence, and the changes of each plan."""

from __future__ import annotations

from typing import Any

from tippingpoint.compare.sentence import times
from tippingpoint.report.formats.markup import bullets, joined, plain, section, table

_OUTCOMES = {
    "worse": "❌ got worse",
    "changed": "✅ nothing new got worse",
    "same": "✅ nothing changed",
    "unsure": "❔ too few runs to tell",
}


def render_trend(document: dict[str, Any]) -> str:
    """Render a trend's document as Markdown."""
    return joined(
        [
            f"# {plain(document['title'])}: {_OUTCOMES[document['outcome']]}",
            f"**{plain(document['sentence'])}**",
            *(_history(history) for history in document["histories"]),
            section("Left out", bullets(document["left_out"])),
        ]
    )


def _history(history: dict[str, Any]) -> str:
    runs = history["runs"]
    span = f"{len(runs)} runs, from {runs[0]['name']} to {runs[-1]['name']}" if len(runs) > 1 else "1 run"
    watched = f"{span}. Figures looked at: {len(history['figures'])}."
    rows = [
        [
            change["what"],
            change["since"],
            change["before"],
            change["after"],
            _change(change),
            _state(change),
            "; ".join(change["with_it"]) or "nothing known",
        ]
        for change in history["changes"]
    ]
    header = ["figure", "since", "before", "after", "change", "state", "changed with it"]
    body = table(header, rows, text=(0, 1, 5, 6)) or "No figure changed its level."
    return section(plain(f"{history['target']}: {history['plan']}"), f"{plain(watched)}\n\n{body}")


def _change(change: dict[str, Any]) -> str:
    if change["ratio"] is None:
        return "lower" if change["worse"] else "higher"
    return f"{times(change['ratio'])} ({times(change['low'])} to {times(change['high'])})"


def _state(change: dict[str, Any]) -> str:
    judged = "❌ worse" if change["worse"] else "✅ better"
    if change["reason"]:
        return f"{judged}, acknowledged: {change['reason']}"
    return judged if change["stands"] else f"{judged}, gone since"
