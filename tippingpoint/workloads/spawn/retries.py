"""Decides whether a failure is retried, by its cause, with a limit for each thing and cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

from tippingpoint.errors import Limited
from tippingpoint.plan.spawn import RETRIES, Passing
from tippingpoint.util.backoff import backoff
from tippingpoint.workloads.spawn.operations import Ended
from tippingpoint.workloads.spawn.target import SpawnFailed, Trouble


class Retries:
    """How often each thing was retried after failures of each cause."""

    def __init__(self, asked: Mapping[Passing, int]) -> None:
        self._caps: dict[str, int] = {**RETRIES, **asked}
        self._spent: dict[Hashable, Counter[Trouble]] = {}

    def again(self, thing: Hashable, kind: Trouble) -> float | None:
        """Return the seconds until a failed thing is retried; None if its retries are used up.

        The wait grows with each failure of the thing, and is randomized. Failures that a user has to fix (`trust`,
        `setting`) are never retried.
        """
        spent = self._spent.setdefault(thing, Counter())
        if spent[kind] >= self._caps.get(kind, 0):
            return None
        spent[kind] += 1
        return backoff(spent.total())

    def forget(self, thing: Hashable) -> None:
        """Forget a thing's failures, because it is as wanted: a later failure is its first."""
        self._spent.pop(thing, None)

    def clear(self) -> None:
        """Forget all failures, because a stage begins."""
        self._spent.clear()


def kind_of(ended: Ended) -> Trouble:
    """Return the cause of a failure, for an operation without an answer."""
    if ended.outcome == "timeout":
        return "timeout"
    if isinstance(ended.problem, SpawnFailed):
        return ended.problem.kind
    return "busy" if isinstance(ended.problem, Limited) else "other"
