"""The turns of a search: our share of each load, and what we measured of it.

The load goes from one turn to the next without a pause, unless the turn begins from nothing. A hold ends early when the
answer is clear on all units. On one machine, a threshold with `abort` that is missed ends a load, and not the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from tippingpoint.analysis.judged_probe import is_silent
from tippingpoint.conduct.run_state import Turn
from tippingpoint.conduct.search_messages import ClearHold
from tippingpoint.plan.find import Find
from tippingpoint.plan.read import SearchPlan
from tippingpoint.play.capacity_gate import CapacityGate
from tippingpoint.play.conductor import Conductor
from tippingpoint.play.early_end_vote import EarlyEndVote, ShareSoFar
from tippingpoint.play.early_warning import EarlyWarning
from tippingpoint.play.fault_timeline import FaultTimeline
from tippingpoint.play.live_stage import LiveStage
from tippingpoint.play.lower_turns import LowerTurns
from tippingpoint.play.messages import Tick
from tippingpoint.play.named_end import hold_to_named_end
from tippingpoint.play.plan_share import PlanShare
from tippingpoint.play.probe_loads import ProbeLoads, round_of
from tippingpoint.play.record import Record
from tippingpoint.play.stage_figures import unanswered_in
from tippingpoint.play.stages import Stages
from tippingpoint.play.turn_report import TurnReport
from tippingpoint.play.turns import Turns, fraction_of
from tippingpoint.play.worker_pool import WorkerPool
from tippingpoint.rundir.operations import OWN_LOAD

if TYPE_CHECKING:  # a run without Prometheus figures needs no Prometheus client
    from tippingpoint.play.run_figures import RunFigures

_LOOK_EVERY = 1.0
"""Seconds between two checks of a hold: workers report once a second what they measured."""


class SearchTurns(Turns):
    """Plays the turns of a search."""

    def __init__(
        self,
        plan: SearchPlan,
        find: Find,
        gone: Callable[[], Awaitable[str]],
        conductor: Conductor,
        plan_share: PlanShare,
        stages: Stages,
        pool: WorkerPool,
        faults: FaultTimeline,
        gate: CapacityGate,
        record: Record,
        lower: LowerTurns | None,
        figures: RunFigures | None,
    ) -> None:
        """`gone` returns why the target can no longer be reached, or an empty text.

        `figures` are those of Prometheus, on one machine.
        """
        super().__init__(conductor, plan_share, stages, pool, faults, gate, record, lower)
        self._plan = plan
        self._gone = gone
        self._figures = figures
        self._loads = ProbeLoads(plan, stages, pool, gate)
        conductor.take_load_away = self._loads.stop
        self._share = ShareSoFar(plan, find)
        self._so_far: LiveStage | None = None
        self._warning = EarlyWarning(())
        """Watches thresholds with `abort` on one machine; many units end the run for these."""
        self._watch: asyncio.Task[None] | None = None
        """Watches figures with `abort` while a load is applied."""

    def heard(self, tick: Tick) -> None:
        """Take a worker's tick."""
        super().heard(tick)
        if self._so_far is not None:
            self._so_far.add(tick)
            self._warning.heard(tick, self._so_far.held)

    async def play(self) -> None:
        """Play turns until there are no more."""
        try:
            await super().play()
        finally:
            self._unwatch()

    async def _prepare_anew(self) -> None:
        """Prepare nothing: each load is prepared on its own."""

    def _first_stage(self, turn: Turn) -> int:
        return turn.number

    async def _prepare(self, turn: Turn) -> str:
        assert turn.load is not None
        spec = self._plan_share.probe(turn.load)[0]
        return await self._loads.prepare(spec, turn.number, fresh=turn.fresh or self._loads.is_empty)

    def begins_after(self, turn: Turn) -> float:
        """Return how many seconds after a turn begins our part of it begins."""
        assert turn.load is not None
        return self._plan_share.probe(turn.load)[2]

    async def bring_up(self, turn: Turn) -> bool:
        """Bring our share up from the load before, or from nothing; returns whether there is something to hold."""
        assert turn.load is not None
        spec, size, _ = self._plan_share.probe(turn.load)
        load, began = self._plan.load_at(turn.load), self._record.now()
        self._plan_share.of_load = fraction_of(size, load, turn)
        self._warning = warning = EarlyWarning(self._plan.thresholds if self._conductor.alone else (), began)
        self._so_far = LiveStage(turn.number, size, "find", began)
        if self._figures is not None:
            self._watch = asyncio.create_task(self._figures.watch(self._record, lambda: began, warning.alarm))
        await self._loads.bring_up(turn.number, load, size, spec, until=warning.missed)
        return not warning.missed.is_set()

    async def _hold(self, turn: Turn) -> Turn | None:
        """Hold the load until its end or a clear result, and report the measurements; the load continues until the next
        turn, which this returns."""
        await self._until_over(turn)
        await self._stages.end_hold_in_order()
        await self.report(turn)
        return await self._heed(self._conductor.next_turn())

    async def report(self, turn: Turn) -> None:
        """Close the figures of a load, and report the measurements; the load continues unless it is too much."""
        self._unwatch()
        aborted, ended = self._warning.why, self._record.now()
        if aborted:
            await self._loads.stop()
        unanswered = await unanswered_in(self._pool)
        so_far, self._so_far = self._so_far, None
        assert so_far is not None
        gone = ""
        if await asyncio.to_thread(self._is_silent, turn.number, so_far):
            await self._loads.stop()
            gone = await self._gone()
        await self._conductor.held(
            TurnReport(
                turn=turn.number,
                inside=self._record.inside,
                stage=turn.number,
                began=self._stages.began,
                hold_began=self._stages.hold_began,
                ended=ended,
                unanswered=unanswered,
                parts=so_far.parts,
                aborted=aborted,
                gone=gone,
            )
        )

    async def _until_over(self, turn: Turn) -> None:
        """Hold the load until its end, or until the earlier moment that is named once all shares are clear."""
        so_far = self._so_far
        assert so_far is not None
        assert turn.load is not None
        so_far.begin_hold(self._record.now())
        await self._until_clear(turn, turn.load, so_far)
        if self._warning.missed.is_set():
            self._stages.end_hold(0.0)
        else:
            await hold_to_named_end(turn, self._conductor, self._stages, self._pool)
        await asyncio.to_thread(self._share.remember, turn.load, self._plan_share.of_load, so_far)

    async def _until_clear(self, turn: Turn, load: float, so_far: LiveStage) -> None:
        """Report when our share of the load has a clear result, while the hold can still end early.

        In each round of renewals every lease is renewed once, so a part of a round does not represent the load.
        """
        conductor, stages, missed = self._conductor, self._stages, self._warning.missed
        whole_round = round_of(self._plan, self._plan_share.probe(load)[0])
        stance = EarlyEndVote()
        while (
            not stance.is_final
            and conductor.may_end_early(left := stages.hold_left)
            and conductor.ends(turn) is None
        ):
            await self._pool.wait_for(missed, min(left, _LOOK_EVERY))
            if left <= _LOOK_EVERY or missed.is_set():
                return
            if self._figures is not None:
                so_far.figures = self._figures.so_far(
                    self._record, so_far.number, stages.began, stages.hold_began
                )
            shown = await asyncio.to_thread(
                self._share.shows, load, self._plan_share.of_load, so_far, turn.lasts
            )
            news = stance.news(shown if so_far.held_for >= whole_round else "")
            if news is not None:
                conductor.clear(ClearHold(turn=turn.number, shows=news))

    def _is_silent(self, number: int, so_far: LiveStage) -> bool:
        """Return whether nothing of our load succeeded; reads the rest of what was measured, too."""
        so_far.read()
        seen = so_far.stage
        if not self._plan_share.of_load or any(map(seen.count, OWN_LOAD[self._plan.workload.kind])):
            return False
        run = self._record.so_far.load()
        return is_silent(run, run.stage(number))

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
