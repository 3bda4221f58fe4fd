"""The operations in flight: each is timed from its intended moment and from its send, and counted by its outcome."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tippingpoint.rundir.recorder import Recorder
from tippingpoint.rundir.tags import OUTCOMES, SCHEDULE_LAG, tag
from tippingpoint.util import timing
from tippingpoint.workloads.failures import Errors
from tippingpoint.workloads.load import DRAIN_TIMEOUT

Subject = TypeVar("Subject")


@dataclass(slots=True)
class Call(Generic[Subject]):
    """One operation in flight."""

    subject: Subject
    """The subject of the operation, for the caller that added it."""
    operation: str
    intended: float
    sent: float
    future: Future[Any]
    ended: Callable[[Call[Subject], float], None]
    """Called with the call and the moment of its answer; counts the call."""
    timed: bool
    """Whether it is recorded; for other calls, only failures are reported."""
    queued: bool
    """Whether it waits for its turn: `sent` is then when we requested it, and no answer is due yet."""
    delay: float
    """Seconds by which it was sent late because the generator was late."""
    calls: Calls[Subject]
    number: int
    """Its number among its worker's calls."""

    def __call__(self, future: Future[Any]) -> None:
        """Count the call when its future has ended."""
        self.calls.answered(self.number, future)


class Turn(Generic[Subject]):
    """The turn of a queued call, to be called when it has come. A load has one for each connection that waits."""

    __slots__ = ("_calls", "_number")

    def __init__(self, calls: Calls[Subject], number: int) -> None:
        self._calls = calls
        self._number = number

    def __call__(self) -> None:
        """Start the service time of the call."""
        self._calls.its_turn_came(self._number)


class Calls(Generic[Subject]):
    """The operations of one worker. An operation without an answer after `timeout` seconds is cancelled.

    `called` has the operations that are recorded under another name. `unanswered` is called with each operation that
    is given up when the load ends, and the moment; without it, each of these counts as timed out.
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
        """Failures by (operation, outcome, message); a flood of different messages is counted together."""

    def name(self, operation: str) -> str:
        """Return the name under which an operation is recorded."""
        return self._called[operation]

    @property
    def under_way(self) -> int:
        """How many operations are sent and not answered."""
        return len(self._calls)

    @property
    def oldest(self) -> float:
        """Seconds since the oldest operation in flight was due; 0 without any."""
        due = min((call.intended for call in self._calls.values() if call.timed), default=None)
        return 0.0 if due is None else max(0.0, timing.monotonic() - due)

    @property
    def next_turn(self) -> Turn[Subject]:
        """The turn of the call that will be added next."""
        return Turn(self, self._number + 1)

    def silence(self, since: float, now: float, due: float, operations: Collection[str]) -> float:
        """Return how many seconds before `now` none of these operations was answered while one was due.

        `since` is the last answer's moment, and `due` when the operation that is answered now was due. Standstills of
        the worker are left out.
        """
        others = (call.intended for call in self._calls.values() if call.operation in operations)
        begin = max(since, min((*others, due)))
        return now - begin - self._pulse.stopped(begin, now)

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
        own: float = 0.0,
    ) -> None:
        """Time an operation that is sent now, was due at `intended`, and could not be sent before `ready`.

        A delay up to `ready` is the target's, and is only in the response time, except for `own` seconds: the operation
        could have been sent that much earlier without the generator's own delay in what it waited for. A delay after
        `ready` is the generator's.
        """
        sent = timing.monotonic()
        ready = max(intended, ready)
        delay = sent - ready
        self._lag(max(1, int(delay * 1e6)))
        if ready > intended:
            delay += min(ready - intended, max(own, self._pulse.stopped(intended, ready)))
        self._number = number = self._number + 1
        call = Call(subject, operation, intended, sent, future, ended, timed, queued, delay, self, number)
        self._calls[number] = call
        future.add_done_callback(call)

    def its_turn_came(self, number: int) -> None:
        """Start the service time of a queued call; its response time has been running since it was due."""
        call = self._calls.pop(number, None)
        if call is not None:
            now = timing.monotonic()
            call.delay += self._pulse.stopped(call.sent, now)
            call.sent = now
            call.queued = False
            self._calls[number] = call

    def own_delay(self, call: Call[Subject], moment: float) -> float:
        """Return how many seconds of a call that ended at a moment were caused by the generator itself."""
        return call.delay + self._pulse.stopped(call.sent, moment)

    def end(self, call: Call[Subject], outcome: str, moment: float, message: str = "") -> None:
        """Count a call with its outcome."""
        if call.timed:
            own = self.own_delay(call, moment)
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
        """Count something that is not a call but took time: from `intended`, or `sent`, until `moment`.

        `own` is the generator's part of that time; by default, the time for which the worker stood still.
        """
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
        """Cancel calls that are older than the timeout; to be called a few times a second."""
        now = timing.monotonic()
        limit = now - self.timeout
        for call in self._calls.values():  # in the order in which they were sent, except queued ones
            if call.queued:
                continue  # no answer is due for a request that was not sent
            if call.sent > limit:
                break
            if call.sent + self._pulse.stopped(call.sent, now) > limit:
                continue  # while we stood still, we could not have received its answer
            call.future.cancel()

    async def drain(self, within: float) -> None:
        """Wait for calls in flight; those without an answer after `within` seconds count as timed out at their
        age."""
        futures = [call.future for call in self._calls.values()]
        try:
            if futures:
                await asyncio.wait(futures, timeout=within)
                await asyncio.sleep(0)  # count the last answers before the rest is given up
        except asyncio.CancelledError:
            self.cut()
            raise
        self.give_up(older_than=0.0)

    async def settle(self, within: float, *, count: bool = False) -> dict[str, list[float]]:
        """Wait for the calls that are in flight now, while others may begin; see workloads.load.Settling."""
        waited = {number: call for number, call in self._calls.items() if call.timed}
        if waited:
            await asyncio.wait([call.future for call in waited.values()], timeout=within)
            await asyncio.sleep(0)  # count the last answers
        now = timing.monotonic()
        unanswered: dict[str, list[float]] = {}
        for number, call in waited.items():
            if number not in self._calls:
                continue
            if count:
                self.end(call, "timeout", now, "no answer when the load was judged")
            else:
                unanswered.setdefault(self.name(call.operation), []).append(now - call.intended)
        return unanswered

    def cut(self) -> None:
        """Wait for nothing; see Load."""
        self.give_up(older_than=DRAIN_TIMEOUT)

    def give_up(self, older_than: float) -> None:
        """Cancel all calls in flight; those that were due longer ago than that count as timed out at their age."""
        now = timing.monotonic()
        for number, call in list(self._calls.items()):
            if call.future.done():  # its callback would come a moment later
                self.answered(number, call.future)
                continue
            del self._calls[number]
            if now - call.intended > older_than:
                self._unanswered(call, now)
            call.future.cancel()

    def abandon(self) -> None:
        """Cancel all calls in flight, without counting any of them."""
        calls = list(self._calls.values())
        self._calls.clear()
        for call in calls:
            call.future.cancel()

    def _timed_out(self, call: Call[Subject], now: float) -> None:
        self.end(call, "timeout", now, "no answer when the load ended")

    def answered(self, number: int, future: Future[Any]) -> None:
        """Count a call whose future has ended, unless it was already counted or abandoned."""
        if not future.cancelled():
            future.exception()  # mark it as retrieved, or asyncio would complain on standard error
        call = self._calls.pop(number, None)
        if call is not None:
            call.ended(call, timing.monotonic())
