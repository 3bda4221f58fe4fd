"""Operations under way: each timed from its intended moment and from its send, counted by how it ended."""

from __future__ import annotations

import asyncio
import time
from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tippingpoint.rundir.recorder import Recorder
from tippingpoint.rundir.tags import OUTCOMES, SCHEDULE_LAG, tag
from tippingpoint.workloads.failures import Errors, failure
from tippingpoint.workloads.load import OWED
from tippingpoint.workloads.spawn.target import Exists, Gone


class NothingToDo(Exception):
    """An operation that found nothing there for it to do: neither an answer nor a failure, and not counted."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How an operation ended: its outcome, when on the monotonic clock, and the answer where the outcome is ok."""

    outcome: str
    """One of tags.OUTCOMES, or `nothing`; `denied` when the thing was there already, or was not there at all."""
    moment: float
    intended: float
    answer: Any = None
    message: str = ""
    """What went wrong, in one line."""
    problem: BaseException | None = None
    """What was raised; None when there is an answer, and when it timed out."""


@dataclass(slots=True)
class _Call:
    operation: str
    intended: float
    sent: float
    future: Future[Any]
    ended: Callable[[Ended], None]
    timed: bool
    delay: float
    """Seconds before `sent` for which it waited because the generator was late."""


class Operations:
    """The operations of one worker. What has no answer after `timeout` seconds is cancelled and counts as timed out.

    `called` has those that are recorded under another name than they have here.
    """

    def __init__(
        self,
        names: Sequence[str],
        recorder: Recorder,
        timeout: float,
        called: Mapping[str, str] | None = None,
    ) -> None:
        self._called = {name: name for name in names} | dict(called or {})
        self._record = {
            tag(operation, outcome, service=service): recorder.appender(tag(name, outcome, service=service))
            for operation, name in self._called.items()
            for outcome, service in (*((outcome, False) for outcome in OUTCOMES), ("ok", True))
        }
        self._lag = recorder.appender(SCHEDULE_LAG)
        self._own_delay = recorder.own_delay
        self._pulse = recorder.pulse
        self._timeout = timeout
        self._calls: dict[int, _Call] = {}
        self._number = 0
        self.errors = Errors()
        """(operation, outcome, message) of failures; the messages of a flood are counted together."""

    def name(self, operation: str) -> str:
        """What an operation is recorded under."""
        return self._called[operation]

    @property
    def under_way(self) -> int:
        """How many operations are sent and not answered."""
        return len(self._calls)

    def begin(
        self,
        operation: str,
        future: Future[Any],
        intended: float,
        ready: float,
        ended: Callable[[Ended], None],
        *,
        timed: bool = True,
    ) -> None:
        """Time an operation that is sent now. It was meant for `intended`, and could not be sent before `ready`:
        lateness up to there is the target's and only in the response time, after it also the generator's. Of one that
        is not `timed`, only failures are told."""
        sent = time.monotonic()
        ready = max(intended, ready)
        delay = sent - ready
        self._lag(max(1, int(delay * 1e6)))
        if ready > intended:
            delay += self._pulse.stopped(intended, ready)
        self._number = number = self._number + 1
        self._calls[number] = _Call(operation, intended, sent, future, ended, timed, delay)
        future.add_done_callback(partial(self._answered, number))

    def count(
        self,
        operation: str,
        outcome: str,
        intended: float,
        sent: float,
        moment: float,
        message: str = "",
        own: float | None = None,
    ) -> None:
        """Count what was no call but took its time: from `intended`, or `sent`, until `moment`. The generator's part
        of it, `own`, is for how long it stood still where nothing else is known."""
        self._record[tag(operation, outcome)](max(1, int((moment - intended) * 1e6)))
        own = self._pulse.stopped(intended, moment) if own is None else own
        self._own_delay(tag(self._called[operation], outcome), moment - intended, own)
        if outcome == "ok":
            self._record[tag(operation, service=True)](max(1, int((moment - sent) * 1e6)))
        elif outcome != "denied":
            self.errors.note(self._called[operation], outcome, message)

    def expire(self) -> None:
        """Give up what is older than the timeout; to be called a few times a second."""
        now = time.monotonic()
        limit = now - self._timeout
        for call in self._calls.values():  # in the order they were sent
            if call.sent > limit:
                break
            if call.sent + self._pulse.stopped(call.sent, now) > limit:
                continue  # while we stood still nobody would have heard its answer
            call.future.cancel()

    async def drain(self, within: float) -> None:
        """Wait for what is under way; what has no answer after `within` seconds counts as timed out at its age."""
        futures = [call.future for call in self._calls.values()]
        try:
            if futures:
                await asyncio.wait(futures, timeout=within)
                await asyncio.sleep(0)  # so that the last answers are counted before the rest is given up
        except asyncio.CancelledError:
            self.cut()
            raise
        self._give_up(older_than=0.0)

    def cut(self) -> None:
        """Wait for nothing; see Load."""
        self._give_up(older_than=OWED)

    def _give_up(self, older_than: float) -> None:
        """Cancel what is under way; what was due longer ago than that counts as timed out at its age."""
        now = time.monotonic()
        for number, call in list(self._calls.items()):
            if call.future.done():  # of which it is told a moment later
                self._answered(number, call.future)
                continue
            del self._calls[number]
            if now - call.intended > older_than:
                self._count(call, "timeout", now, "no answer when the load ended")
            call.future.cancel()

    def _count(self, call: _Call, outcome: str, moment: float, message: str) -> None:
        if call.timed:
            own = call.delay + self._pulse.stopped(call.sent, moment)
            self.count(call.operation, outcome, call.intended, call.sent, moment, message, own)
        elif outcome not in ("ok", "denied"):
            self.errors.note(self._called[call.operation], outcome, message)

    def _answered(self, number: int, future: Future[Any]) -> None:
        call = self._calls.pop(number, None)
        if call is None:
            if not future.cancelled():
                future.exception()  # counted already: nobody else looks at it
            return
        now = time.monotonic()
        problem = None if future.cancelled() else future.exception()
        if isinstance(problem, NothingToDo):
            outcome, message = "nothing", ""
        else:
            outcome, message = failure(future, self._timeout) or ("ok", "")
            if isinstance(problem, Exists | Gone):
                outcome = "denied"
            self._count(call, outcome, now, message)
        answer = future.result() if outcome == "ok" else None
        call.ended(Ended(outcome, now, call.intended, answer, message, problem))
