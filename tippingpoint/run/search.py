"""Searches for the largest load that holds: doubles until a load breaks, bisects, and confirms by repeats."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from tippingpoint.analysis.findings import examine_stage
from tippingpoint.analysis.verdict import stage_checks
from tippingpoint.plan.claim import ClaimPlan, Find
from tippingpoint.run.crew import Crew
from tippingpoint.run.interruption import EndedEarly
from tippingpoint.run.messages import Pause, Paused
from tippingpoint.run.record import Record
from tippingpoint.run.stages import Stages
from tippingpoint.rundir.results import load_run

Probe = Callable[[int, Literal["find", "confirm"]], Awaitable[bool]]
"""Puts a load on the target, starting from no load, and returns whether it held."""

_MOST_RESTARTS = 3


@dataclass(frozen=True)
class Found:
    """The result of a search: `held` is the largest load that held (None: not even the first), `broken` the smallest
    that broke (None: not even the limit). It is `confirmed` when the majority of repeats agrees with both."""

    held: int | None
    broken: int | None
    confirmed: bool
    agreeing: int
    repeats: int


async def find_load(find: Find, probe: Probe) -> Found:
    """Search between `start` and `limit`; a bound that its repeats contradict is moved, and the search goes on."""
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
            # The load held once by luck: it becomes the upper bound, and the search resumes well below it.
            held, broken = await _below(find, probe, held)
        else:
            held, broken = await _double(find, probe, start=broken)
    raise AssertionError("the last round returns")


async def _double(find: Find, probe: Probe, start: int | None = None) -> tuple[int | None, int | None]:
    """Double until a load breaks; `start`, if given, is a load already known to hold."""
    held, size = (start, min(find.limit, start * 2)) if start is not None else (None, find.start)
    while held != size:
        if not await probe(size, "find"):
            return held, size
        held, size = size, min(find.limit, size * 2)
    return held, None


async def _below(find: Find, probe: Probe, broken: int | None) -> tuple[int | None, int | None]:
    """Halve until a load holds; None if not even a load of one does."""
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
    """Return how many of the repeats at a load held."""
    if size is None:
        return 0
    return sum([await probe(size, "confirm") for _ in range(find.repeats)])


class Search:
    """A run's search: its probes are stages, which are judged by what the journals have of them."""

    def __init__(self, plan: ClaimPlan, find: Find, stages: Stages, crew: Crew, record: Record) -> None:
        self._plan = plan
        self._find = find
        self._stages = stages
        self._crew = crew
        self._record = record

    async def play(self) -> None:
        """Run the search, and write its result as an event."""
        found = await find_load(self._find, self._probe)
        self._record.event(
            "found",
            held=found.held,
            broken=found.broken,
            confirmed=found.confirmed,
            agreeing=found.agreeing,
            repeats=found.repeats,
        )

    async def _probe(self, size: int, kind: Literal["find", "confirm"]) -> bool:
        await self._crew.prepare(size, fresh=True)
        number = await self._stages.play(kind, size, self._find.over, self._find.hold, listed=None)
        await self._crew.ask(Paused, lambda _: Pause())
        if self._crew.unwritten:
            raise EndedEarly("cut", "no disk space left for the journal, which the search needs")
        so_far = await asyncio.to_thread(load_run, self._record.directory)
        measured = so_far.stage(number)
        checks = stage_checks(measured, self._plan.thresholds)
        broken = [f"{check.operation} {check.limit}" for check in checks if not check.met]
        found = examine_stage(so_far, self._plan, measured)
        broken += [found.why_not_held] if found.why_not_held else []
        self._record.event(
            "probe", stage=number, size=size, held=not broken, broken=broken, saturated=found.strained
        )
        return not broken
