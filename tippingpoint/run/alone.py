"""Conducts a run on one machine: a run of one unit, whose mailbox is in memory.

What happens next is said by the same rules as in a run of many units (units/shared_run.py), at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tippingpoint.plan.read import Plan
from tippingpoint.run.conductor import Follower
from tippingpoint.run.record import Record
from tippingpoint.run.turn_report import TurnReport
from tippingpoint.units.search_words import ClearHold
from tippingpoint.units.shared_run import SharedRun, UnitWord, conduct

if TYPE_CHECKING:  # a run without figures of Prometheus needs no client of it
    from tippingpoint.run.run_figures import RunFigures

_UNIT = "run/0"


class Alone(Follower):
    """The only unit of a run, and its leader. Its clock goes on as the run does, whatever the wall clock is set to."""

    alone = True

    def __init__(self, plan: Plan, record: Record, first: int, figures: RunFigures | None) -> None:
        """`first` is the number of the first stage in the journals. `figures` are those of Prometheus that thresholds
        are about."""
        self._record = record
        self._figures = figures
        run = SharedRun.in_memory(plan, _UNIT, first, self.now())
        super().__init__(_UNIT, run, self._say_phase, tell_clear=self._say_clear)
        self._word = UnitWord(run=run.id, phase="making", t=self.now())

    def now(self) -> float:
        """Return the present moment."""
        return self._record.started_wall + self._record.now()

    def reports(self, turn: object) -> bool:
        """Return whether the end of a hold is reported: all that belongs to it is done then."""
        return True

    async def held(self, report: TurnReport) -> None:
        """Name what follows."""
        if self._figures is not None and self._run.turns[-1].kind != "destroy":
            self._figures.measure_meanwhile(
                self._record, report.turn, report.began, report.hold_began, report.ended
            )
        self._say_word(held=report.turn)

    def _say_phase(self, phase: Literal["ready", "up"], turn: int) -> None:
        self._say_word(phase=phase, turn=turn)

    def _say_clear(self, shown: ClearHold) -> None:
        self._say_word(clear=shown)

    def _say_word(self, **fields: object) -> None:
        now = self.now()
        self._word = self._word.model_copy(update={**fields, "t": now})
        self.see(conduct(self._run, {_UNIT: self._word}, now), 0.0)
