"""Makes users' requests while things are made and kept, each when it is due."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from tippingpoint.workloads.schedule import Schedule, spread
from tippingpoint.workloads.spawn.operations import Ended, NothingToDo, Operations
from tippingpoint.workloads.spawn.target import Item, SpawnTarget

_GROUP = 0


class Observer:
    """Makes each kind of users' requests periodically, in an open loop: a late answer does not delay the next
    request."""

    def __init__(
        self,
        target: SpawnTarget,
        running: Callable[[], Item | None],
        operations: Operations,
        schedule: Schedule,
        every: float,
        asked: Sequence[str],
    ) -> None:
        self._asked = asked
        self._target = target
        self._running = running
        self._operations = operations
        self._schedule = schedule
        self._every = every

    def begin(self, moment: float) -> None:
        """Begin at a moment, until the schedule is cleared; the kinds of requests are spread over the interval."""
        if self._every:
            for what, at in zip(self._asked, spread(len(self._asked), moment, self._every), strict=True):
                self._schedule.at(at, partial(self._ask, what))

    def _ask(self, what: str, intended: float) -> None:
        self._schedule.at(intended + self._every, partial(self._ask, what))
        task = asyncio.get_running_loop().create_task(self._observe(what))
        self._operations.begin(what, task, intended, intended, _only_timed)

    async def _observe(self, what: str) -> None:
        if not await self._target.observe(what, _GROUP, self._running()):
            raise NothingToDo


def _only_timed(ended: Ended) -> None:
    """Ignore an answer whose time alone matters."""
