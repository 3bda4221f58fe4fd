"""When a thing's turn comes: so many a second, so many at once, or so many at once and then the next so many."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from tippingpoint.plan.spawn import SpawnWorkload
from tippingpoint.workloads.schedule import Schedule

T = TypeVar("T")


@dataclass(frozen=True)
class Ownership:
    """Which groups are one worker's: whole ones, so that a group is listed once for all of its things."""

    index: int
    of: int
    """How many workers have groups: no more than there are turns to share."""

    @classmethod
    def among(cls, workload: SpawnWorkload, index: int, workers: int) -> Ownership:
        """A worker's by its index, the same through all stages."""
        return cls(index, min(workers, workload.concurrency or workload.batch or workers))

    def groups(self, groups: int) -> range:
        """Its groups of so many in all."""
        return range(self.index, groups, self.of) if self.index < self.of else range(0)


@dataclass(frozen=True)
class Pace:
    """One worker's part of the workload's pace."""

    gap: float = 0.0
    """Open loop: seconds from one turn to the next."""
    offset: float = 0.0
    """Open loop: seconds until the first."""
    slots: int = 0
    """Closed loop: turns that are taken at once; 0 in an open one."""
    in_batches: bool = False
    """Closed loop: the next so many when all of them are over."""

    @classmethod
    def of(cls, workload: SpawnWorkload, ownership: Ownership, changes: list[int]) -> Pace:
        """A worker's part by its part of what is to change, of which `changes` has each group's."""
        of_each = [sum(changes[index :: ownership.of]) for index in range(ownership.of)]
        own = of_each[ownership.index] if ownership.index < ownership.of else 0
        everything = max(1, sum(changes))
        if workload.rate is not None:
            part = own / everything or 1 / ownership.of
            return cls(gap=1 / (workload.rate * part), offset=ownership.index / workload.rate)
        # One for each worker that has any, and the rest by how much they have, so that all add up to the limit.
        limit = workload.concurrency or workload.batch or 1
        rest = limit - sum(part > 0 for part in of_each)
        before = sum(of_each[: ownership.index])
        slots = 1 + rest * (before + own) // everything - rest * before // everything
        return cls(slots=slots, in_batches=workload.batch is not None)

    @property
    def of_probes(self) -> Pace:
        """The same for what follows by itself when things are reachable, of which a list shows many at once."""
        return Pace(gap=self.gap, slots=self.slots)


class Turns(Generic[T]):
    """Who waits for a turn. A turn that was taken is given back in a closed loop, and is a moment in an open one.

    `take(thing, intended)` says whether the thing made use of its turn.
    """

    def __init__(self, schedule: Schedule, take: Callable[[T, float], bool]) -> None:
        self._schedule = schedule
        self._take = take
        self._pace = Pace()
        self._waiting: deque[tuple[T, float]] = deque()
        self._taken = 0
        self._left = 0
        self._freed = 0.0
        self._next = 0.0

    def begin(self, pace: Pace, moment: float) -> None:
        """Go on at a pace from a moment; who waited does no longer, who has a turn keeps it."""
        self._waiting.clear()
        self._pace = pace
        self._next = moment + pace.offset
        self._left = max(0, pace.slots - self._taken)

    def forget(self) -> None:
        """Nobody waits and nobody has a turn."""
        self._waiting.clear()
        self._taken = 0

    def ask(self, thing: T, moment: float, *, again: bool = False) -> None:
        """Wait for a turn from a moment on. `again` is for what had one and failed, and waited long enough since: it
        is the next to have one, and in an open loop, where its turn was a moment, has it now."""
        if not self._pace.slots:
            if not again:
                moment = self._next = max(moment, self._next)
                self._next += self._pace.gap
            self._schedule.at(moment, partial(self._take_moment, thing))
            return
        if again:
            self._waiting.appendleft((thing, moment))
        else:
            self._waiting.append((thing, moment))
        self._give()

    def give_back(self, moment: float) -> None:
        """A turn is over; the next is meant for this moment."""
        if self._pace.slots:
            self._taken = max(0, self._taken - 1)
            self._freed = moment
            self._give()

    def _take_moment(self, thing: T, intended: float) -> None:
        self._take(thing, intended)

    def _give(self) -> None:
        while self._waiting and self._room():
            thing, since = self._waiting.popleft()
            if self._take(thing, max(since, self._freed)):
                self._taken += 1
                self._left -= 1

    def _room(self) -> bool:
        if not self._pace.in_batches:
            return self._taken < self._pace.slots
        if not self._taken:
            self._left = self._pace.slots
        return self._left > 0
