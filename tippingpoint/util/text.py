"""Puts loads, counts and lists into sentences for people."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from math import isfinite

from tippingpoint.util.numbers import show_number


def show_size(size: float) -> str:
    """Return a load, or an amount of it: 4,000; for an estimate below 100, three significant digits."""
    return show_number(size)


def show_count(count: int, thing: str) -> str:
    """Return a number of things: 1 member, 3 members."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def singular(unit: str) -> str:
    """Return the unit for one: lease for leases, container/s for containers/s, container at a time."""
    return re.sub(r"^(\w+?)s(?=/|\s|$)", r"\1", unit)


def is_counted(unit: str) -> bool:
    """Return whether a load's unit counts things, such as leases, of which there are no halves: claims/s does not."""
    return "/" not in unit


def show_amount(size: float, unit: str) -> str:
    """Return an amount of load, whose unit is given in the plural: 1 container, 4,000 leases, 2.5 claims/s."""
    if is_counted(unit) and isfinite(size):
        if 0 < size <= 0.5:
            return f"less than 1 {singular(unit)}"
        size = round(size)
    return f"{show_size(size)} {singular(unit) if size == 1 else unit}"


def show_sizes(sizes: Sequence[float], unit: str) -> str:
    """Return several loads as a list, each once: 1 lease, 100, 200 and 400 leases."""
    each = list(dict.fromkeys(map(show_size, sizes)))
    return show_amount(sizes[0], unit) if len(each) == 1 else f"{show_list(each)} {unit}"


def show_list(words: Sequence[str]) -> str:
    """Return words as a list: a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def show_names(names: Sequence[str], thing: str) -> str:
    """Return which of several things are meant: worker 0, workers 0 and 1."""
    return f"{thing}{'' if len(names) == 1 else 's'} {show_list(names)}"


def show_processors(numbers: Sequence[int]) -> str:
    """Return which processors are meant, in ascending order: processor 0, processors 0, 2 and 4 to 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    names: list[str] = []
    for run in runs:
        names += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    return f"processor{'s' if len(numbers) > 1 else ''} {show_list(names)}"


def choose(count: float, one: str, several: str) -> str:
    """Return the singular or the plural word for a count: was or were, its or their."""
    return one if count == 1 else several


def show_calls(operation: str, count: float = 2) -> str:
    """Return the word for this many calls of an operation: claim, claims, or add-unit calls for a name without a
    plural."""
    if operation in ("connect", "claim", "extend"):
        return operation if count == 1 else f"{operation}s"
    return f"{operation} call" if count == 1 else f"{operation} calls"


def show_load(size: float, unit: str, kind: str = "ramp") -> str:
    """Return at which load something happened: at 4000 leases, in the storm of 4000 leases, while removing from 300
    units."""
    return f"{place_of(kind)} {show_amount(size, unit)}"


def place_of(kind: str) -> str:
    """Return the words between what happened and the load of a stage of this kind: at, in the storm of."""
    return {"storm": "in the storm of", "destroy": "while removing from", "recover": "back at"}.get(
        kind, "at"
    )


def listed(text: str) -> list[str]:
    """Return the words of a list that a person wrote with commas, spaces or both."""
    return text.replace(",", " ").split()


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint with the known name that is most similar to a wrong one; empty if none is similar."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]}?)" if close else ""


def nearest_three(name: str, known: Iterable[str]) -> str:
    """Return up to three known names that are similar to a wrong one, as a list: a, b or c; empty if none is
    similar."""
    *first, last = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5) or [""]
    return f"{', '.join(first)} or {last}" if first else last
