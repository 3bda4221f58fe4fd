"""The table of what is under way: each timed from its intended moment and from its send, counted by how it ended."""

from __future__ import annotations

import asyncio
import time
from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from tippingpoint.rundir.recorder import Recorder
from tippingpoint.rundir.tags import OUTCOMES, SCHEDULE_LAG, tag
from tippingpoint.workloads.failures import Errors
from tippingpoint.workloads.load import OWED

Subject = TypeVar("Subject")


@dataclass(slots=True)
class Call(Generic[Subject]):
    """One operation under way."""

    subject: Subject
    """What it is about, for whoever added it."""
    operation: str
    intended: float
    sent: float
    future: Future[Any]
    ended: Callable[[Call[Subject], float], None]
    """What is done about its answer, and at what moment it came: it counts the call."""
    timed: bool
    """Whether it is recorded; of one that is not, only failures are told."""
    queued: bool
    """Whether its turn has not come: `sent` is then when we asked for it, and it owes no answer yet."""
    delay: float
    """Seconds before `sent` for which it waited because the generator was late."""


class Calls(Generic[Subject]):
    """The operations of one worker. What has no answer after `timeout` seconds is cancelled.

    `called` has those that are recorded under another name than they have here. `unanswered` is told of each that
    is given up when the load ends, and at what moment; without it, each counts as timed out.
    """

    def __init__(
        self,
        names: Sequence[str],
        recorder: Recorder,
        timeout: float,
        called: Mapping[str, str] | None = None,
        unanswered: Callable[[Call[Subject], float], None] | None = None,
    ) -> None:
        self.timeout = timeout
        self._called = {name: name for name in names} | dict(called or {})
        self._record = {
            (operation, outcome): (recorder.appender(tag(name, outcome)), tag(name, outcome))
            for operation, name in self._called.items()
            for outcome in OUTCOMES
        }
        self._service = {
            operation: recorder.appender(tag(name, service=True)) for operation, name in self._called.items()
        }
        self._unanswered = unanswered or self._timed_out
        self._lag = recorder.appender(SCHEDULE_LAG)
        self._own_delay = recorder.own_delay
        self._pulse = recorder.pulse
        self._calls: dict[int, Call[Subject]] = {}
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

    @property
    def next_number(self) -> int:
        """The number of the call that begins next, for `its_turn_came`."""
        return self._number + 1

    def add(
        self,
        subject: Subject,
        operation: str,
        future: Future[Any],
        intended: float,
        ready: float,
        ended: Callable[[Call[Subject], float], None],
        timed: bool = True,
        queued: bool = False,
    ) -> None:
        """Time an operation that is sent now. It was meant for `intended`, and could not be sent before `ready`:
        lateness up to there is the target's and only in the response time, after it also the generator's."""
        sent = time.monotonic()
        ready = max(intended, ready)
        delay = sent - ready
        self._lag(max(1, int(delay * 1e6)))
        if ready > intended:
            delay += self._pulse.stopped(intended, ready)
        self._number = number = self._number + 1
        self._calls[number] = Call(subject, operation, intended, sent, future, ended, timed, queued, delay)
        future.add_done_callback(partial(self._answered, number))

    def its_turn_came(self, number: int) -> None:
        """Only from now on is the time that a queued call takes the target's, though its response time is all."""
        call = self._calls.pop(number, None)
        if call is not None:
            now = time.monotonic()
            call.delay += self._pulse.stopped(call.sent, now)
            call.sent = now
            call.queued = False
            self._calls[number] = call

    def end(self, call: Call[Subject], outcome: str, moment: float, message: str = "") -> None:
        """Count a call by how it ended."""
        if call.timed:
            own = call.delay + self._pulse.stopped(call.sent, moment)
            self.count(call.operation, outcome, call.intended, call.sent, moment, message, own)
        else:
            self._note(call.operation, outcome, message)

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
        record, name = self._record[operation, outcome]
        record(max(1, int((moment - intended) * 1e6)))
        own = self._pulse.stopped(intended, moment) if own is None else own
        self._own_delay(name, moment - intended, own)
        if outcome == "ok":
            self._service[operation](max(1, int((moment - sent) * 1e6)))
        else:
            self._note(operation, outcome, message)

    def _note(self, operation: str, outcome: str, message: str) -> None:
        if message and outcome not in ("ok", "denied"):
            self.errors.note(self._called[operation], outcome, message)

    def expire(self) -> None:
        """Give up what is older than the timeout; to be called a few times a second."""
        now = time.monotonic()
        limit = now - self.timeout
        for call in self._calls.values():  # in the order they were sent, but for those that were not
            if call.queued:
                continue  # it owes no answer to what nobody has asked it
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
        self.give_up(older_than=0.0)

    def cut(self) -> None:
        """Wait for nothing; see Load."""
        self.give_up(older_than=OWED)

    def give_up(self, older_than: float) -> None:
        """Cancel what is under way; what was due longer ago than that counts as timed out at its age."""
        now = time.monotonic()
        for number, call in list(self._calls.items()):
            if call.future.done():  # of which it is told a moment later
                self._answered(number, call.future)
                continue
            del self._calls[number]
            if now - call.intended > older_than:
                self._unanswered(call, now)
            call.future.cancel()

    def abandon(self) -> None:
        """Cancel what is under way, and count none of it."""
        calls = list(self._calls.values())
        self._calls.clear()
        for call in calls:
            call.future.cancel()

    def _timed_out(self, call: Call[Subject], now: float) -> None:
        self.end(call, "timeout", now, "no answer when the load ended")

    def _answered(self, number: int, future: Future[Any]) -> None:
        if not future.cancelled():
            future.exception()  # looked at whoever wants it, or asyncio complains of it on standard error
        call = self._calls.pop(number, None)
        if call is not None:  # else it was counted already, or abandoned
            call.ended(call, time.monotonic())
