"""Outcomes and messages of failed operations, the same for every workload."""

from __future__ import annotations

from asyncio import Future
from collections import Counter
from typing import Any

from tippingpoint.errors import Limited, OperationFailed

_DISTINCT_MESSAGES = 20


def failure(future: Future[Any], timeout: float) -> tuple[str, str] | None:
    """Return outcome and message of a failed operation; None if it succeeded. A cancelled one has timed out."""
    if future.cancelled():
        return "timeout", f"no answer within {timeout:g} s"
    problem = future.exception()
    if problem is None:
        return None
    if isinstance(problem, Limited):
        return "limited", str(problem)
    if isinstance(problem, OperationFailed):
        return "error", str(problem)
    return "error", f"{type(problem).__name__}: {problem}"


class Errors(Counter[tuple[str, str, str]]):
    """Failures by (operation, outcome, message) since they were last cleared."""

    def note(self, operation: str, outcome: str, message: str) -> None:
        """Count a failure; beyond twenty different messages, all others are counted together."""
        key = (operation, outcome, message)
        if key not in self and len(self) >= _DISTINCT_MESSAGES:
            key = (operation, outcome, "other errors")
        self[key] += 1
