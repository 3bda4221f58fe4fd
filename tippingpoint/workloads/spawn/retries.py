"""Whether a failure is tried again: by what kind it is, with a cap for each thing and kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping

from tippingpoint.errors import Limited
from tippingpoint.plan.spawn import RETRIES, Passing
from tippingpoint.util.backoff import backoff
from tippingpoint.workloads.spawn.operations import Ended
from tippingpoint.workloads.spawn.target import SpawnFailed, Trouble


class Retries:
    """How often each thing was tried again after failures of each kind."""

    def __init__(self, asked: Mapping[Passing, int]) -> None:
        self._caps: dict[str, int] = {**RETRIES, **asked}
        self._spent: dict[Hashable, Counter[Trouble]] = {}

    def again(self, thing: Hashable, kind: Trouble) -> float | None:
        """Seconds to wait before a thing that failed so is tried again, longer with each of its failures and
        different each time; None when its tries are used up. What a user has to change (`trust`, `setting`) is
        never tried again."""
        spent = self._spent.setdefault(thing, Counter())
        if spent[kind] >= self._caps.get(kind, 0):
            return None
        spent[kind] += 1
        return backoff(spent.total())

    def forget(self, thing: Hashable) -> None:
        """It is as it was wanted: a later failure is its first."""
        self._spent.pop(thing, None)

    def clear(self) -> None:
        """Forget all: a stage begins."""
        self._spent.clear()


def kind_of(ended: Ended) -> Trouble:
    """Of what kind a failure was, for an operation that has no answer."""
    if ended.outcome == "timeout":
        return "timeout"
    if isinstance(ended.problem, SpawnFailed):
        return ended.problem.kind
    return "busy" if isinstance(ended.problem, Limited) else "other"
