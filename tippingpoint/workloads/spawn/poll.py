"""A repeated call: never two at once, and for at most half of the time if it takes seconds."""

from __future__ import annotations

from asyncio import Task
from collections.abc import Callable
from functools import partial
from typing import Any

from tippingpoint.util import timing
from tippingpoint.util.backoff import backoff
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.spawn.operations import Ended, Operations

LONGEST_PAUSE = 5.0
"""The most seconds between polls that fail or are slow: they show when the target answers again. LXD 5.0.2 takes 20 s
for a list while it searches for a member that has died."""


class Poll:
    """Calls of one kind, recorded as operation `poll`; answers go to `told(asked, ended)`.

    `asked` is the moment when the call was sent: later changes may be missing in the answer. `among` is how many polls
    share the target. Together they make about one call at a time, because 50 lists of 100 things would be a load of
    their own.
    """

    def __init__(
        self,
        call: Callable[[], Task[Any]],
        told: Callable[[float, Ended], None],
        operations: Operations,
        schedule: Schedule,
        every: float,
    ) -> None:
        self._call = call
        self._told = told
        self._operations = operations
        self._schedule = schedule
        self._every = every
        self._among = 1
        self._interval = every
        self._failures = 0
        self._asking = False
        self._anew = False
        self._asked = 0.0
        self._turn = 0

    def begin(self, moment: float, among: int = 1) -> None:
        """Poll now, and then periodically; a call in flight is waited for, and its answer is dropped."""
        self._interval = self._every
        self._among = among
        self._turn += 1
        if self._asking:
            self._anew = True
        else:
            self._ask(moment)

    def every(self, interval: float) -> None:
        """Poll at this interval from now on; the next check of the schedule is never later than the first
        interval."""
        self._interval = interval

    def halt(self) -> None:
        """Stop polling; the answer of a call in flight is dropped."""
        self._turn += 1
        self._anew = False

    def forget(self) -> None:
        """Stop polling; no call is in flight any more."""
        self.halt()
        self._asking = False

    def _due(self, turn: int, intended: float) -> None:
        if turn != self._turn:
            return
        if intended - self._asked >= self._interval - 1e-6:
            self._ask(intended)
        else:
            self._schedule.at(intended + self._every, partial(self._due, turn))

    def _ask(self, intended: float) -> None:
        self._asking = True
        self._asked = timing.monotonic()
        ended = partial(self._ended, self._turn, self._asked)
        self._operations.begin("poll", self._call(), intended, intended, ended)

    def _ended(self, turn: int, asked: float, ended: Ended) -> None:
        self._asking = False
        if self._anew:
            self._anew = False
            self._ask(ended.moment)
            return
        if turn != self._turn:
            return
        if ended.outcome == "ok":
            self._failures = 0
            took = ended.moment - asked
            pause = max(self._every - took, min(LONGEST_PAUSE, took * self._among))
        else:
            self._failures += 1
            pause = backoff(self._failures, longest=LONGEST_PAUSE)
        self._told(asked, ended)
        if turn == self._turn:
            self._schedule.at(ended.moment + max(0.0, pause), partial(self._due, turn))
