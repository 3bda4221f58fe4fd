"""Describes the effect of each fault: when clients noticed it, when the target had recovered, and the cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tippingpoint.analysis.recovery.aftermath import Aftermath
from tippingpoint.analysis.recovery.comeback import Comeback, Step
from tippingpoint.report import figures
from tippingpoint.util.text import choose, show_count


def build_recovery(aftermaths: Sequence[Aftermath]) -> dict[str, Any]:
    """Return `recovery`: one row for each fault, and an overall sentence; empty if nothing happened to the target.

    A row has the fields of Aftermath, and `noticed_words` and `recovered_words`. `mean_time_to_recover` is None if the
    target never recovered from anything.
    """
    if not aftermaths:
        return {}
    times = [after.recovered for after in aftermaths if after.recovered is not None]
    rows = [
        {**asdict(after), "noticed_words": noticed_words(after), "recovered_words": recovered_words(after)}
        for after in aftermaths
    ]
    return {
        "recovery": {
            "sentence": _sentence(aftermaths),
            "mean_time_to_recover": sum(times) / len(times) if times else None,
            "rows": rows,
        }
    }


def build_comeback(comeback: Comeback | None) -> dict[str, Any]:
    """Return `comeback`: the fields of Comeback, `metastable`, and each step with `words`; empty without a Comeback."""
    if comeback is None:
        return {}
    steps = [{**asdict(step), "words": _step_words(step)} for step in comeback.steps]
    return {"comeback": {**asdict(comeback), "metastable": comeback.metastable, "steps": steps}}


def _step_words(step: Step) -> str:
    if step.held:
        return f"thresholds were met again after {_time(step.after or 0.0)}"
    if step.why:
        return f"tried again, as {step.why}" if step.repeated else f"says nothing: {step.why}"
    if not step.size:
        return "no load"
    return "catching up" if step.catching_up else "broken"


def noticed_words(after: Aftermath) -> str:
    """Say when and how clients noticed it: `after 0.4 s: extend failed`."""
    if after.broken:
        when = f"after {_time(after.noticed)}: " if after.noticed is not None else ""
        unknown = f" ({after.unwatched})" if after.unwatched else ""
        return f"{when}{after.noticed_by}{unknown}"
    if after.unwatched:
        return f"not known: {after.unwatched}"
    return "nothing" if after.noticed_nothing else "no more than is allowed or was usual"


def recovered_words(after: Aftermath) -> str:
    """Say when the target was back: `after 1.6 s (± 0.5 s)`."""
    if not after.broken:
        return "–"
    if after.recovered is None:
        return f"not within {figures.seconds(after.watched)}"
    undone = ""
    if after.undone is not None and after.recovered > after.undone:
        undone = f", {_time(after.recovered - after.undone)} after it was undone"
    return f"after {_time(after.recovered)} (± {_time(after.exact_to)}){undone}"


def _time(seconds: float) -> str:
    """Format a time that is known to about half a second."""
    return figures.seconds(round(seconds, 1) if seconds >= 0.95 else round(seconds, 2))


def _sentence(aftermaths: Sequence[Aftermath]) -> str:
    came = [after for after in aftermaths if after.recovered is not None]
    back = [after.recovered for after in came if after.recovered is not None]
    never = [after.what for after in aftermaths if after.broken and after.recovered is None]
    nothing = sum(after.noticed_nothing for after in aftermaths)
    unknown = sum(bool(after.unwatched) and not after.broken for after in aftermaths)
    allowed = len(aftermaths) - len(back) - len(never) - nothing - unknown
    parts: list[str] = []
    if len(back) == 1:
        parts.append(f"The target was back {_time(back[0])} after {came[0].what}.")
    elif back:
        mean = _time(sum(back) / len(back))
        parts.append(
            f"The target was back {mean} after a disturbance on average, and {_time(max(back))} at most."
        )
    if never:
        named = figures.listed(never[:3]) + (" and others" if len(never) > 3 else "")
        parts.append(f"It was not back from {named} while the load stayed the same.")
    if nothing:
        parts.append(f"Clients noticed nothing of {show_count(nothing, 'disturbance')}.")
    if allowed:
        be = choose(allowed, "was", "were")
        parts.append(f"{show_count(allowed, 'disturbance')} {be} no worse than is allowed or was usual.")
    if unknown:
        parts.append(f"What clients noticed of {show_count(unknown, 'disturbance')} is not known.")
    return " ".join(parts)
