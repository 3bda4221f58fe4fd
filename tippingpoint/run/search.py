"""The search for the largest load that holds: double until it breaks, bisect, confirm by repeats."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from tippingpoint.plan.claim import Find

Probe = Callable[[int, Literal["find", "confirm"]], Awaitable[bool]]
"""Puts a load on the target, from nothing, and says whether it held."""

_MOST_RESTARTS = 3


@dataclass(frozen=True)
class Found:
    """The answer: `held` is the largest load that held (None: not even the first), `broken` the smallest that
    broke (None: not even the limit); confirmed when the majority of their repeats said the same."""

    held: int | None
    broken: int | None
    confirmed: bool
    agreeing: int
    repeats: int


async def find_load(find: Find, probe: Probe) -> Found:
    """Search between `start` and `limit`; a bound that its repeats contradict is moved and the search goes on."""
    held, broken = await _double(find, probe)
    for restarts_left in reversed(range(_MOST_RESTARTS)):
        held, broken = await _bisect(find, probe, held, broken)
        held_again = await _repeat(find, probe, held)
        broken_again = find.repeats - await _repeat(find, probe, broken) if broken is not None else 0
        repeats = find.repeats * ((held is not None) + (broken is not None))
        held_stands = held is None or 2 * held_again > find.repeats
        broken_stands = broken is None or 2 * broken_again > find.repeats
        confirmed = held_stands and broken_stands
        if confirmed or not restarts_left:
            return Found(held, broken, confirmed, held_again + broken_again, repeats)
        if not held_stands:
            # What held once was luck: it is the new upper bound, and the search resumes well below it.
            held, broken = await _below(find, probe, held)
        else:
            held, broken = await _double(find, probe, start=broken)
    raise AssertionError("the last round returns")


async def _double(find: Find, probe: Probe, start: int | None = None) -> tuple[int | None, int | None]:
    """Double until a load breaks. `start`, when given, is a load already known to hold."""
    held, size = (start, min(find.limit, start * 2)) if start is not None else (None, find.start)
    while held != size:
        if not await probe(size, "find"):
            return held, size
        held, size = size, min(find.limit, size * 2)
    return held, None


async def _below(find: Find, probe: Probe, broken: int | None) -> tuple[int | None, int | None]:
    """Halve until a load holds; None when not even a single one does."""
    size = broken
    while size is not None and size > 1:
        size //= 2
        if await probe(size, "find"):
            return size, broken
        broken = size
    return None, broken


async def _bisect(
    find: Find, probe: Probe, held: int | None, broken: int | None
) -> tuple[int | None, int | None]:
    if held is None and broken is not None:
        held, broken = await _below(find, probe, broken)
    while held is not None and broken is not None and broken - held > max(1, find.resolution * held):
        middle = (held + broken) // 2
        if await probe(middle, "find"):
            held = middle
        else:
            broken = middle
    return held, broken


async def _repeat(find: Find, probe: Probe, size: int | None) -> int:
    """How many of the repeats at a load held."""
    if size is None:
        return 0
    return sum([await probe(size, "confirm") for _ in range(find.repeats)])
