"""Conducts a run on one machine: a run of one unit, whose mailbox is in memory.

The rules that decide what happens next are those of a run of many units (conduct/director.py, conduct/next_load.py).
Here they decide at once, from all measurements instead of digests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from tippingpoint.conduct.director import conduct, to_judge
from tippingpoint.conduct.recovery_messages import RECOVERING
from tippingpoint.conduct.run_state import SharedRun, Turn, UnitWord
from tippingpoint.conduct.search_messages import ClearHold, NextLoad
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.read import Plan
from tippingpoint.play.conductor import Conductor
from tippingpoint.play.record import Record
from tippingpoint.play.turn_report import TurnReport
from tippingpoint.play.watcher import SearchSoFar
from tippingpoint.rundir.probe_events import EVENT, FOUND, ProbeEvent

if TYPE_CHECKING:  # a run that judges nothing needs no numpy, and one without figures no Prometheus client
    from tippingpoint.analysis.search.searcher import Searcher
    from tippingpoint.play.machine_watch import MachineWatch
    from tippingpoint.play.memory_reports import FromMemory
    from tippingpoint.play.run_figures import RunFigures

_UNIT = "run/0"
_LONGEST_WAIT = 600.0
"""The most seconds that a search without `within` waits for other programs to leave the target's processors."""


class Alone(Conductor):
    """The only unit of a run, and its leader.

    Its clock is monotonic, whatever happens to the wall clock. Results of judged turns are written as events `probe`,
    `found` and `recovering`.
    """

    def __init__(
        self,
        plan: Plan,
        record: Record,
        first: int,
        resumed: Sequence[ProbeEvent] = (),
        figures: RunFigures | None = None,
        machine: MachineWatch | None = None,
    ) -> None:
        """`first` is the number of the first stage in the journals.

        `resumed` are the probes of the run that this one resumes. `figures` are the Prometheus figures that thresholds
        refer to. `machine` shows when other programs have left the target's processors.
        """
        self._record = record
        self._figures = figures
        self._machine = machine
        self._report: TurnReport | None = None
        self._searcher: Searcher | None = None
        self._interval: tuple[float, float] | None = None
        """The 95 % interval of the limit that is searched, once loads held and loads broke."""
        for event in resumed:
            self._record.event(EVENT, **event.model_copy(update={"stage": None}).model_dump())
        spent = max((event.began + event.seconds for event in resumed), default=0.0)
        run = SharedRun.in_memory(plan, _UNIT, first, self.now() - spent, resumed)
        super().__init__(_UNIT, run, self._say_phase, tell_clear=self._say_clear)
        self._word = UnitWord(run=run.id, phase="making", t=self.now())

    def now(self) -> float:
        """Return the present moment."""
        return self._record.started_wall + self._record.now()

    async def next_turn(self) -> Turn | None:
        """Judge the turn that was held, if it needs judging; return the next one."""
        while to_judge(self._run, {_UNIT: self._word}) is not None:
            following = await asyncio.to_thread(self._judged)
            if following.load is not None and following.probe is not None and following.probe.foreign:
                await self._until_others_have_gone(following.probe)
                following = await asyncio.to_thread(self._judged_later, following)
            self._say_word(following)
            if self._searcher is not None and self._run.probes:
                self._say_known(self._run.probes)
        return await super().next_turn()

    async def held(self, report: TurnReport) -> None:
        """Note what was measured, with the figures of Prometheus."""
        self._report, kind = report, self._run.turns[-1].kind
        if self._figures is not None and kind not in ("destroy", "recover"):
            spans = report.began, report.hold_began, report.ended
            if kind == "find":
                await self._figures.measure(self._record, report.turn, *spans)
            else:
                self._figures.measure_meanwhile(self._record, report.turn, *spans)
        self._say_word(held=report.turn)

    async def _until_others_have_gone(self, probe: ProbeEvent) -> None:
        """Wait until other programs have left the target's processors, but no longer than the search may take."""
        plan = self._run.validated()
        if self._machine is None or isinstance(plan, CtsPlan) or plan.find is None:
            return
        longest = _LONGEST_WAIT
        if plan.find.within is not None and self._run.started is not None:
            longest = self._run.started + plan.find.within - self.now()
        await self.take_load_away()
        began = self.now()
        gone = await self._machine.until_quiet(longest, f"{probe.foreign}: waiting until they have gone")
        self._record.event("waited", seconds=round(self.now() - began, 3), why=probe.foreign, gone=gone)

    def _judged_later(self, following: NextLoad) -> NextLoad:
        from tippingpoint.conduct.next_load import next_load_later

        assert self._searcher is not None  # it asked for this load
        return next_load_later(self._told(), self._searcher, following)

    def _judged(self) -> NextLoad:
        # It imports numpy, which a run needs only if it is judged while it runs.
        from tippingpoint.conduct.next_load import next_load, searcher_after

        plan = self._run.validated()
        if self._searcher is None and not isinstance(plan, CtsPlan) and plan.find is not None:
            self._searcher = searcher_after(plan, plan.find, self._run.probes)
        following = next_load(self._told(), self._searcher)
        if self._searcher is not None:
            self._interval = self._searcher.interval
        return following

    def _say_known(self, probes: Sequence[ProbeEvent]) -> None:
        held = max((probe.size for probe in probes if probe.held), default=None)
        broke = min((probe.size for probe in probes if probe.held is False), default=None)
        self._record.searched(SearchSoFar(held, broke, self._interval))

    def _told(self) -> FromMemory:
        from tippingpoint.play.memory_reports import FromMemory

        wall = self._record.started_wall
        return FromMemory(self._run, self._report, self._record.so_far, wall, self.now())

    def _say_phase(self, phase: Literal["ready", "up"], turn: int) -> None:
        self._say_word(phase=phase, turn=turn)

    def _say_clear(self, shown: ClearHold) -> None:
        self._say_word(clear=shown)

    def _say_word(self, following: NextLoad | None = None, **fields: object) -> None:
        # The word is always written anew: judging may take longer than a unit may be silent.
        now = self.now()
        self._word = self._word.model_copy(update={**fields, "t": now})
        self._take(conduct(self._run, {_UNIT: self._word}, now, following))

    def _take(self, run: SharedRun) -> None:
        """Take the next state of the run, and write what is new in it."""
        known = self._run
        for probe in run.probes[len(known.probes) :]:
            self._record.event(EVENT, **probe.model_dump())
        if run.found is not None and known.found is None:
            self._record.event(FOUND, **run.found.model_dump())
        recovery, before = run.recovery, known.recovery
        if recovery is not None and recovery != before:
            written = 0 if before is None else sum(1 for _ in before.events())
            for fields in [*recovery.events()][written:]:
                self._record.event(RECOVERING, **fields)
        self.see(run, 0.0)
