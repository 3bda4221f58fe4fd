"""Builds a trend's document: a plain, versioned dictionary, which is the JSON format. Other formats render it.

Latencies are in microseconds, moments in seconds since the epoch. A figure's `values` and `levels` have one entry per
run, None for a run without it. `bounds` of tipping points say which values are only lower or upper bounds; the ratio of
a change of these is None. `at`, `earliest` and `latest` of a change count the runs from 0.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

from tippingpoint import __version__
from tippingpoint.compare.reach import Reach
from tippingpoint.compare.sentence import times
from tippingpoint.compare.trend.changes import Change
from tippingpoint.compare.trend.history import FEWEST, FigureChange, History, Trend
from tippingpoint.compare.trend.series import LIMIT, Figure
from tippingpoint.report import figures
from tippingpoint.report.document import FORMAT
from tippingpoint.util.numbers import show_quantity
from tippingpoint.util.text import choose, show_amount, show_count, show_list, show_load

_NAMED = 3
"""The maximum number of changes named in the first sentence."""


def build_trend(trend: Trend) -> dict[str, Any]:
    """Build a trend's document."""
    histories = [_history(history) for history in trend.histories]
    return {
        "format": FORMAT,
        "kind": "trend",
        "made_by": f"tippingpoint {__version__}",
        "title": _title(trend),
        "sentence": _sentence(trend),
        "outcome": _outcome(trend),
        "regressed": trend.regressed,
        "order": trend.order,
        "operations": sorted({figure["operation"] for one in histories for figure in one["figures"]} - {""}),
        "histories": histories,
        "left_out": list(trend.left_out),
    }


def _title(trend: Trend) -> str:
    names = [f"{history.kind}: {history.title}" for history in trend.histories]
    if len(names) > _NAMED:
        return f"trend of {len(names)} plans"
    return show_list(names) or "no runs"


def _outcome(trend: Trend) -> str:
    if trend.regressed:
        return "worse"
    if not any(history.enough for history in trend.histories):
        return "unsure"
    return "changed" if any(history.changes for history in trend.histories) else "same"


def _sentence(trend: Trend) -> str:
    regressions = [
        (history, change) for history in trend.histories for change in history.changes if change.regresses
    ]
    if regressions:
        more = len(regressions) - 1
        return _words(*regressions[0]) + (f" {show_count(more, 'more figure')} got worse." if more else "")
    few = [history for history in trend.histories if not history.enough]
    if few and len(few) == len(trend.histories):
        return f"Too few runs for a trend: a plan needs {FEWEST} runs whose verdict is neither withheld nor failed."
    known = sum(
        bool(change.reason) and change.worse for history in trend.histories for change in history.changes
    )
    accepted = (
        f" {show_count(known, 'change')} for the worse {choose(known, 'is', 'are')} acknowledged."
        if known
        else ""
    )
    runs = sum(len(history.runs) for history in trend.histories if history.enough)
    return f"No figure got worse for good over {runs} runs.{accepted}"


def _words(history: History, told: FigureChange) -> str:
    """Say what changed: extend p99 at 4000 leases rose 1.12x (95 %: 1.08x to 1.16x) with RUN, as did release: A / B."""
    change = told.change
    rose = "rose" if change.moved > 0 else "fell"
    where = f"with {history.names[change.at]}"
    if change.latest > change.earliest:
        span = f"from {history.names[change.earliest]} to {history.names[change.latest]}"
        where = f"over many runs, {span}" if change.drifts else f"with a run {span}"
    why = f"; this changed too: {'; '.join(told.with_it)}" if told.with_it else ""
    if told.before is not None and told.after is not None:
        after, before = (reach.said(history.unit, several=True) for reach in (told.after, told.before))
        return f"{_what(history, told.figure)} {rose} {where}{why}: since then, runs {after}; before, they {before}."
    span = f"95 %: {times(change.low)} to {times(change.high)}"
    return f"{_what(history, told.figure)} {rose} to {times(change.ratio)} ({span}) {where}{why}."


def _what(history: History, figure: Figure) -> str:
    if figure.measure == LIMIT:
        return "The tipping point"
    if figure.size is None:
        return figure.measure
    return f"{figure.operation} {figures.limit_name(figure.measure)} {show_load(figure.size, history.unit)}"


def _history(history: History) -> dict[str, Any]:
    return {
        "target": history.kind,
        "plan": history.title,
        "load_unit": history.unit,
        "enough": history.enough,
        "runs": [
            {
                "id": run.manifest.id,
                "name": name,
                "release": run.manifest.target.version,
                "started": run.manifest.started,
                "day": time.strftime("%Y-%m-%d %H:%M", time.gmtime(run.manifest.started)),
            }
            for run, name in zip(history.runs, history.names, strict=True)
        ],
        "figures": [_figure(history, figure) for figure in history.figures],
        "changes": [_change(history, told) for told in history.changes],
    }


def _figure(history: History, figure: Figure) -> dict[str, Any]:
    changes = [told.change for told in history.changes if told.figure is figure]
    return {
        "what": _what(history, figure),
        "operation": figure.operation,
        "size": figure.size,
        "measure": figure.measure,
        "unit": figure.unit,
        "values": list(figure.measured.values),
        "bounds": [_bound(reach) for reach in figure.reaches],
        "levels": _levels(figure.measured.values, sorted(changes, key=lambda change: change.at)),
        "changed": bool(changes),
    }


def _bound(reach: Reach | None) -> Literal["least", "most"] | None:
    """Return whether a value is only a lower or an upper bound."""
    if reach is None or not reach.bounded:
        return None
    return "least" if reach.broken is None else "most"


def _levels(values: Sequence[float | None], changes: Sequence[Change]) -> list[float | None]:
    """Return the level of each run, or the one to which it is on its way; None everywhere without a change."""
    if not changes:
        return [None] * len(values)
    levels: list[float | None] = []
    for place in range(len(values)):
        passed = [change for change in changes if change.at <= place]
        last = passed[-1] if passed else None
        if last is not None and last.drifts and place < last.latest:
            share = (place - last.at + 1) / (last.latest - last.at + 1)
            levels.append(last.before * last.ratio**share)
        else:
            levels.append(last.after if last is not None else changes[0].before)
    return levels


def _change(history: History, told: FigureChange) -> dict[str, Any]:
    change = told.change
    bounded = told.before is not None or told.after is not None
    before, after = (
        (reach.words(history.unit) if reach is not None else "unknown")
        if bounded
        else _shown(history, told.figure, value)
        for reach, value in ((told.before, change.before), (told.after, change.after))
    )
    return {
        "words": _words(history, told),
        "what": _what(history, told.figure),
        "measure": told.figure.measure,
        "run": history.runs[change.at].manifest.id,
        "name": history.names[change.at],
        "at": change.at,
        "earliest": change.earliest,
        "latest": change.latest,
        "since": _since(history, change),
        "drifts": change.drifts,
        "before": before,
        "after": after,
        "ratio": None if bounded else change.ratio,
        "low": None if bounded else change.low,
        "high": None if bounded else change.high,
        "worse": told.worse,
        "stands": told.stands,
        "regresses": told.regresses,
        "with_it": list(told.with_it),
        "reason": told.reason,
    }


def _since(history: History, change: Change) -> str:
    if not change.drifts:
        return history.names[change.at]
    return f"many runs, {history.names[change.at]} to {history.names[change.latest]}"


def _shown(history: History, figure: Figure, value: float) -> str:
    if figure.measure == LIMIT:
        return show_amount(value, history.unit)
    return show_quantity(value, figure.unit) if figure.size is None else figures.latency(value)
