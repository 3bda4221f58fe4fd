"""What is known about a run's last turn, for judging it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tippingpoint.analysis.search.stage_margins import Second
from tippingpoint.conduct.run_state import SharedRun
from tippingpoint.plan.read import SearchPlan
from tippingpoint.rundir.results import RunData


class TurnReports(Protocol):
    """What units reported on the last turn of a run. Moments are on the reference's clock."""

    @property
    def run(self) -> SharedRun: ...

    @property
    def ended(self) -> float:
        """When the turn ended, or a moment after that; the present moment, or 0, before the first."""
        ...

    @property
    def lost(self) -> str:
        """Which unit of the turn is missing; empty if none is."""
        ...

    @property
    def unread(self) -> str:
        """The unit whose report on the turn is missing; empty if none is."""
        ...

    @property
    def aborted(self) -> str:
        """Which threshold with `abort` ended only the load, not the run; empty if none did."""
        ...

    @property
    def gone(self) -> str:
        """Why the target no longer accepts a login; empty if it does."""
        ...

    @property
    def missing(self) -> str:
        """Why the load was never applied; empty if it was."""
        ...

    @property
    def unanswered(self) -> Mapping[str, Sequence[float]]:
        """By operation, the ages in seconds of calls without an answer."""
        ...

    @property
    def parts(self) -> Sequence[Second]:
        """What was measured in equal parts of the hold, in order."""
        ...

    def held_since(self, plan: SearchPlan, *, whole_hold: bool) -> float:
        """Return the moment since which thresholds held at a lower load; infinite if they did not.

        If it is unknown how the samples are spread, thresholds have to be met over the `whole_hold`.
        """
        ...

    def whole(self, *, all_turns: bool = False) -> AbstractContextManager[RunData]:
        """Read the turn, or the run so far, while the context lasts."""
        ...

    def is_whole(self, stage: int, size: float) -> bool:
        """Return whether the shares that were measured add up to the load."""
        ...
