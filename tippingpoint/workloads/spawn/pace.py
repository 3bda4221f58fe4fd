"""Decides when a thing's turn comes: at a rate, with a limit of concurrency, or in batches."""

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
    """The groups of one worker: whole groups, so that each is listed once for all of its things."""

    index: int
    of: int
    """How many workers have groups: at most as many as there are concurrent turns."""

    @classmethod
    def among(cls, most: int | None, index: int, workers: int) -> Ownership:
        """Return a worker's ownership by its index, in all stages; `most` is the plan's `shared_by`."""
        return cls(index, min(workers, most or workers))

    def groups(self, groups: int) -> range:
        """Return its groups, of `groups` in all."""
        return range(self.index, groups, self.of) if self.index < self.of else range(0)


@dataclass(frozen=True)
class Pace:
    """One worker's part of the pace of a stage."""

    gap: float = 0.0
    """Open loop: seconds from one turn to the next."""
    offset: float = 0.0
    """Open loop: seconds until the first turn."""
    slots: int = 0
    """Closed loop: how many turns are taken at once; 0 in an open loop."""
    in_batches: bool = False
    """Closed loop: whether a batch waits until the whole previous one has ended."""

    @classmethod
    def of(cls, workload: SpawnWorkload, ownership: Ownership, changes: list[int]) -> Pace:
        """Return a worker's part of a stage's pace, in proportion to its part of all changes.

        `changes` has the number of changes in each group.
        """
        of_each = [sum(changes[index :: ownership.of]) for index in range(ownership.of)]
        own = of_each[ownership.index] if ownership.index < ownership.of else 0
        everything = max(1, sum(changes))
        if workload.rate is not None:
            part = own / everything or 1 / ownership.of
            return cls(gap=1 / (workload.rate * part), offset=ownership.index / workload.rate)
        # Each worker with changes gets one slot, and the rest in proportion, so that all slots add up to the limit.
        limit = workload.at_once or 1
        rest = limit - sum(part > 0 for part in of_each)
        before = sum(of_each[: ownership.index])
        slots = 1 + rest * (before + own) // everything - rest * before // everything
        return cls(slots=slots, in_batches=workload.batch is not None)

    @property
    def of_probes(self) -> Pace:
        """The pace of probes, which follow when things are reachable; a list shows many of these at once."""
        return Pace(gap=self.gap, slots=self.slots)


class Turns(Generic[T]):
    """A queue for turns. In a closed loop, a turn is taken and given back; in an open loop, it is a moment.

    `take(thing, intended)` returns whether the thing used its turn.
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
        """Continue at a pace from a moment on: the queue is cleared, and turns that are taken stay so."""
        self._waiting.clear()
        self._pace = pace
        self._next = moment + pace.offset
        self._left = max(0, pace.slots - self._taken)

    def forget(self) -> None:
        """Clear the queue, and give back all turns."""
        self._waiting.clear()
        self._taken = 0

    def ask(self, thing: T, moment: float, *, again: bool = False) -> None:
        """Queue for a turn from a moment on. `again` is for a thing that had a turn and failed, after its wait.

        Such a thing gets the next turn; in an open loop, where its turn was a moment, it gets one now.
        """
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
        """Give back a turn; the next turn is due at this moment."""
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
