"""Operations whose answer or failure says how they ended: what is told of each when it is counted."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tippingpoint.workloads.calls import Call, Calls
from tippingpoint.workloads.failures import failure
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


class Operations(Calls[Callable[[Ended], None]]):
    """The operations of one worker, each counted by what its future ends with."""

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
        """Time an operation as `add` does, count it by what the future ends with, and then tell `ended` of it."""
        self.add(ended, operation, future, intended, ready, self._judge, timed)

    def _judge(self, call: Call[Callable[[Ended], None]], now: float) -> None:
        future = call.future
        problem = None if future.cancelled() else future.exception()
        if isinstance(problem, NothingToDo):
            outcome, message = "nothing", ""
        else:
            outcome, message = failure(future, self.timeout) or ("ok", "")
            if isinstance(problem, Exists | Gone):
                outcome = "denied"
            self.end(call, outcome, now, message)
        answer = future.result() if outcome == "ok" else None
        call.subject(Ended(outcome, now, call.intended, answer, message, problem))
