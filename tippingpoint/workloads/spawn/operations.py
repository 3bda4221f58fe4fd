"""Operations that end by themselves: the outcome of each is determined when it is counted."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tippingpoint.workloads.calls import Call, Calls
from tippingpoint.workloads.failures import failure
from tippingpoint.workloads.spawn.target import Exists, Gone


class NothingToDo(Exception):
    """Raised by an operation that found nothing to do: it is neither an answer nor a failure, and is not counted."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How an operation ended: its outcome, the moment on the monotonic clock, and the answer if the outcome is ok."""

    outcome: str
    """One of tags.OUTCOMES, or `nothing`; `denied` if the thing existed already, or did not exist."""
    moment: float
    intended: float
    answer: Any = None
    message: str = ""
    """What went wrong, in one line."""
    problem: BaseException | None = None
    """The exception; None for an answer or a timeout."""


class Operations(Calls[Callable[[Ended], None]]):
    """The operations of one worker, each counted by how its future ends."""

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
        """Time an operation as `add` does, count it by how its future ends, and then call `ended`."""
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
