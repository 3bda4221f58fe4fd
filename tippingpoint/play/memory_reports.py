"""What is known about the last turn of a run on one machine, for judging it."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from tippingpoint.analysis.search.stage_margins import Second
from tippingpoint.conduct.run_state import SharedRun
from tippingpoint.plan.read import SearchPlan
from tippingpoint.play.turn_report import TurnReport
from tippingpoint.rundir.results import GrowingRun, RunData


@dataclass(frozen=True)
class FromMemory:
    """A turn of a run on one machine, with all its measurements. Moments are on the reference's clock."""

    run: SharedRun
    report: TurnReport | None
    """None before the first turn."""
    so_far: GrowingRun
    started: float
    """The moment of the run's start."""
    ended: float
    """The present moment: by then the turn has ended."""
    lost = unread = ""

    @property
    def aborted(self) -> str:
        """Which threshold with `abort` ended only the load, not the run; empty if none did."""
        return self._report.aborted

    @property
    def gone(self) -> str:
        """Why the target no longer accepts a login; empty if it does."""
        return self._report.gone

    @property
    def missing(self) -> str:
        """Why the load was never applied; empty if it was."""
        return self._report.missing

    @property
    def unanswered(self) -> Mapping[str, Sequence[float]]:
        """By operation, the ages in seconds of calls without an answer."""
        return self._report.unanswered

    @property
    def parts(self) -> Sequence[Second]:
        """What was measured in equal parts of the hold, in order."""
        return self._report.parts

    def held_since(self, plan: SearchPlan, *, whole_hold: bool) -> float:
        """Return the moment since which thresholds held at a lower load; infinite if they did not."""
        return self.started + self._report.held_since

    @contextlib.contextmanager
    def whole(self, *, all_turns: bool = False) -> Generator[RunData]:
        """Read the run as far as it is written."""
        yield self.so_far.load()

    def is_whole(self, stage: int, size: float) -> bool:
        """Return True: there are no other shares."""
        return True

    @property
    def _report(self) -> TurnReport:
        assert self.report is not None  # there is a turn
        return self.report
