"""Writes the sentence that begins a comparison: tipping points and costs."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from tippingpoint.compare.published import PublishedRow, Told
from tippingpoint.compare.reach import Reach
from tippingpoint.compare.resources import ResourceComparison
from tippingpoint.util.numbers import known, show_number, show_times
from tippingpoint.util.text import show_list, show_sizes, singular

_NAMED = 3
"""The maximum number of runs named in a statement that they share."""


def tipping_words(names: Sequence[str], reaches: Sequence[Reach], unit: str) -> str:
    """Say how far each run got, the furthest first.

    For example: 2.5.1 held 16,000 leases, the largest tried; 2.5.0 tips at 2,000 to 4,000.
    """
    ordered = sorted(zip(names, reaches, strict=True), key=lambda pair: pair[1].order, reverse=True)
    alike: dict[str, list[tuple[str, Reach]]] = {}
    for name, reach in ordered:
        alike.setdefault(reach.words(""), []).append((name, reach))
    unknown = [name for name, _ in alike.pop("", [])]
    parts: list[str] = []
    tips = False
    for group in alike.values():
        who, reach = _who([name for name, _ in group], len(names)), group[0][1]
        of = "" if parts else unit
        elided = tips and reach.broken is not None  # the previous part has the verb
        parts.append(f"{who} {reach.words(of) if elided else reach.said(of, several=len(group) > 1)}")
        tips = reach.broken is not None
    if unknown:
        parts.append(f"of {_who(unknown, len(names))} no load was sustained to its end")
    return "; ".join(parts)


def _who(names: Sequence[str], of: int) -> str:
    if len(names) <= _NAMED:
        return show_list(names)
    return f"all {of} runs" if len(names) == of else f"{len(names)} runs"


def published_words(names: Sequence[str], rows: Sequence[PublishedRow], *, alone: bool) -> str:
    """Compare published resources in words: memory per connection 0.33x; empty without any.

    `alone` means that nothing else is known, so any figure that differs is better than none.
    """
    wanted = [row for row in rows if row.resource] or (_most_different(rows) if alone else [])
    others: dict[str, None] = {}
    bases: dict[str, None] = {}
    parts: list[str] = []
    for row in wanted:
        told = [
            (names[place], told_words(told, row.unit))
            for place, told in enumerate(row.told)
            if told is not None and place != row.base
        ]
        others |= dict.fromkeys(name for name, _ in told)
        bases[names[row.base]] = None
        words = [f"{words} ({name})" if len(told) > 1 else words for name, words in told]
        what = f"{row.resource or row.what}{f' per {row.per}' if row.per else ''}"
        parts.append(f"{what} {show_list(words)}")
    said = ", ".join(parts)
    against = show_list(list(bases))
    if alone:
        where = "tipping points were not published"
        return (
            f"{show_list(list(others))} against {against}, as published: {said}; {where}" if said else where
        )
    if not said:
        return ""
    whose = f"{show_list(list(others))} to " if len(others) == len(bases) == 1 else "to "
    return f"{said} ({whose}{against}, as published)"


def _most_different(rows: Sequence[PublishedRow]) -> list[PublishedRow]:
    """Return the averages of Rally's tables or, without any, the rows that differ most."""
    averages = [row for row in rows if row.is_average]
    if averages:
        return averages[:_NAMED]

    def distance(row: PublishedRow) -> float:
        return max(abs(log(told.ratio)) for told in row.told if told is not None and told.ratio)

    return [row for row in sorted(rows, key=distance, reverse=True) if distance(row) > 0][:_NAMED]


def told_words(told: Told, unit: str) -> str:
    """Say how one published figure compares with another: at most 0.57x, at least 1 core less."""
    if told.difference is not None:
        less = told.difference < 0
        bound = (
            {"at most": "at least", "at least": "at most"}.get(told.bound, told.bound) if less else told.bound
        )
        amount = abs(told.difference)
        of = singular(unit) if amount == 1 else unit
        return " ".join(word for word in (bound, show_number(amount), of, "less" if less else "more") if word)
    return " ".join(word for word in (told.bound, times(told.ratio)) if word)


def telling_load(sizes: Sequence[float], reaches: Sequence[Reach]) -> float | None:
    """Return the largest compared load that all runs held, or else that the first run and another one held.

    None without one: costs past a cliff say little.
    """
    if not reaches:
        return None
    base, *others = reaches
    held = [
        size for size in sizes if size in base.loads and (not others or any(size in o.loads for o in others))
    ]
    by_all = [size for size in held if all(size in other.loads for other in others)]
    return max(by_all or held, default=None)


def resource_words(
    names: Sequence[str], compared: Sequence[ResourceComparison], reaches: Sequence[Reach], unit: str
) -> str:
    """Compare the targets' resource use at the most informative load, if repeats do not explain the difference."""
    found: dict[float, tuple[float, float, str]] = {}
    for figure in compared:
        size = telling_load(figure.shared, reaches)
        if size is None or figure.kind is None:
            continue
        place = figure.sizes.index(size)
        apart = [
            (ratio.ratio, name)
            for of_run, name, reach in zip(figure.ratios, names[1:], reaches[1:], strict=True)
            if (ratio := of_run[place]) is not None
            and size in reach.loads
            and ratio.ratio > 0
            and ratio.certain
        ]
        if apart:
            most = max(abs(log(ratio)) for ratio, _ in apart)
            words = f"{_within(figure.title)}{f' of {figure.part}' if figure.part else ''}"
            told = (most, size, f"{words} {range_words(apart, len(names))}")
            found[figure.kind] = max(found.get(figure.kind, told), told)
    if not found:
        return ""
    loads = sorted({size for _, size, _ in found.values()})
    said = ", ".join(found[kind][2] for kind in sorted(found))
    return f"{said} at {show_sizes(loads, unit)}"


def _within(title: str) -> str:
    """Write a title for use within a sentence: resident memory, but CPU."""
    return title[:1].lower() + title[1:] if title[1:2].islower() else title


def range_words(ratios: Sequence[tuple[float, str]], runs: int) -> str:
    """Write ratios to the first run: the only one, or the smallest and the largest with the names of their runs."""
    least, most = min(ratios), max(ratios)
    if runs == 2:
        return times(least[0])
    if least == most:
        return f"{times(least[0])} ({least[1]})"
    return f"{times(least[0])} ({least[1]}) to {times(most[0])} ({most[1]})"


def times(ratio: float | None) -> str:
    """Write a ratio: 0.33x, 1.25x, 12.3x; a dash if unknown."""
    return known(show_times, ratio)
