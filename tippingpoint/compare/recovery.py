"""Compares how long targets took to recover from the faults of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.compare.repeats import Figure, level_figure
from tippingpoint.plan.base import UNDONE_BY
from tippingpoint.util.numbers import show_number

_LEAST_S = 0.5
"""The least time that counts, in seconds: workers record what ended in each second."""


@dataclass(frozen=True)
class Back:
    """When a target had recovered from the faults of one kind, in one run."""

    seconds: float
    """Seconds from the fault until everything was as before, for the longest recovery; 0 if clients noticed nothing."""
    never: bool
    """Whether it did not recover while the load stayed the same: `seconds` is then how long the load did."""
    exact_to: float
    """The uncertainty of the time, in seconds."""


def backs_of(analysis: Analysis) -> dict[str, Back]:
    """Return what a run shows about each kind of fault, such as `kill`, except actions that undo other faults.

    A kind is left out if it is unknown what clients would have noticed of one of its faults.
    """
    found: dict[str, list[Back | None]] = {}
    for after in analysis.aftermaths:
        kind = after.what.partition(" ")[0].rstrip(",")
        if not after.injected or kind in UNDONE_BY.values():
            continue
        never = after.broken and after.recovered is None
        known = after.broken or not after.unwatched
        seconds = after.watched if never else after.recovered or 0.0
        found.setdefault(kind, []).append(Back(seconds, never, after.exact_to) if known else None)
    longest: dict[str, Back] = {}
    for kind, backs in found.items():
        there = [back for back in backs if back is not None]
        if len(there) == len(backs):
            longest[kind] = max(there, key=lambda back: (back.never, back.seconds))
    return longest


def recovery_figure(before: Sequence[Back], after: Sequence[Back]) -> Figure:
    """Return the times as a figure, with the variance of a uniform distribution over their uncertainty."""
    runs = [*before, *after]
    levels = [max(back.seconds, _LEAST_S) for back in runs]
    floor = fmean((back.exact_to / level) ** 2 / 3 for back, level in zip(runs, levels, strict=True))
    return level_figure("recovery", levels[: len(before)], levels[len(before) :], floor)


def ratio_of(before: Back, after: Back) -> float:
    """Return the ratio of the times."""
    return max(after.seconds, _LEAST_S) / max(before.seconds, _LEAST_S)


def show_back(backs: Sequence[Back | None]) -> str:
    """Say when a release had recovered, as the mean of its runs: 1.9 s, or `not within 38 s` if a run had not."""
    told = [back for back in backs if back is not None]
    if not told or len(told) < len(backs):
        return "not known"
    never = [back.seconds for back in told if back.never]
    if never:
        return f"not within {show_number(fmean(never))} s"
    return f"{show_number(fmean(back.seconds for back in told))} s"
