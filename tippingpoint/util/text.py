"""How loads and lists are put into the sentences a person reads."""

from __future__ import annotations

from collections.abc import Sequence


def show_size(size: float) -> str:
    """A load: 4000, but 16,000 from five digits on; three significant digits when it is an estimate."""
    rounded = round(size) if size >= 100 else round(size, 1)
    return f"{rounded:,}" if rounded >= 10_000 else f"{rounded:g}"


def show_share(share: float) -> str:
    """A share in 0..1 as percent: 0.52 %."""
    return f"{share * 100:.3g} %"


def show_count(count: int, thing: str) -> str:
    """So many of a thing: 1 member, 3 members."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def show_amount(size: float, unit: str) -> str:
    """So much load, of a unit that is told in the plural: 1 container, 4000 leases."""
    return f"{show_size(size)} {unit.removesuffix('s') if size == 1 else unit}"


def show_list(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def show_names(names: Sequence[str], thing: str) -> str:
    """Which of several things: worker 0, workers 0 and 1."""
    return f"{thing}{'' if len(names) == 1 else 's'} {show_list(names)}"


def choose(count: int, one: str, several: str) -> str:
    """The word that goes with so many: was or were, its or their."""
    return one if count == 1 else several


def show_calls(operation: str) -> str:
    """Several of an operation: claims, and add-unit calls where the name makes no plural."""
    return f"{operation}s" if operation in ("connect", "claim", "extend") else f"{operation} calls"


def show_load(size: float, unit: str, kind: str = "ramp") -> str:
    """Where something was seen: at 4000 leases, in the storm of 4000 leases, while removing from 300 units."""
    of = {"storm": "in the storm of", "destroy": "while removing from"}.get(kind, "at")
    return f"{of} {show_amount(size, unit)}"


def listed(text: str) -> list[str]:
    """The words of a list that a person wrote, with commas or spaces or both."""
    return text.replace(",", " ").split()
