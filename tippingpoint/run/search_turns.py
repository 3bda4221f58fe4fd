"""A unit's turns in a search by many units: its share of each load, and its report on what it measured."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tippingpoint.plan.find import Find
from tippingpoint.plan.read import SearchPlan
from tippingpoint.run.conductor import Conductor
from tippingpoint.run.crew import Crew
from tippingpoint.run.fault_timeline import FaultTimeline
from tippingpoint.run.hold_so_far import HoldSoFar
from tippingpoint.run.lower_turns import LowerTurns
from tippingpoint.run.messages import Tick
from tippingpoint.run.named_end import hold_to_named_end
from tippingpoint.run.own_part import OwnPart
from tippingpoint.run.probe_loads import ProbeLoads, round_of
from tippingpoint.run.record import Record
from tippingpoint.run.room import Room
from tippingpoint.run.share_so_far import ShareSoFar, Stance
from tippingpoint.run.stage_figures import unanswered_in
from tippingpoint.run.stages import Stages
from tippingpoint.run.turns import Turns
from tippingpoint.rundir.results import GrowingRun
from tippingpoint.units.search_words import ClearHold
from tippingpoint.units.shared_run import Turn

_LOOK_EVERY = 1.0
"""Seconds between two looks at a hold: workers tell once a second what they measured."""


class SearchTurns(Turns):
    """Plays the turns of a search. The load goes from one turn to the next unless the turn begins from nothing."""

    def __init__(
        self,
        plan: SearchPlan,
        find: Find,
        gone: Callable[[], Awaitable[str]],
        conductor: Conductor,
        own: OwnPart,
        stages: Stages,
        crew: Crew,
        faults: FaultTimeline,
        room: Room,
        record: Record,
        lower: LowerTurns | None,
    ) -> None:
        """`gone` tells why the target cannot be reached any more, or an empty text."""
        super().__init__(conductor, own, stages, crew, faults, room, record, lower)
        self._plan = plan
        self._gone = gone
        self._loads = ProbeLoads(plan, stages, crew, room)
        self._share = ShareSoFar(plan, find)
        self._so_far: HoldSoFar | None = None
        self._run = GrowingRun(record.inside)

    def heard(self, tick: Tick) -> None:
        """Take a worker's tick."""
        super().heard(tick)
        if self._so_far is not None:
            self._so_far.add(tick)

    async def _prepare_anew(self) -> None:
        """Prepare nothing: each load is prepared by itself."""

    def _first_stage(self, turn: Turn) -> int:
        return turn.number

    async def _prepare(self, turn: Turn) -> str:
        assert turn.load is not None
        asked = self._own.probe(turn.load)[0]
        return await self._loads.prepare(asked, turn.number, fresh=turn.fresh or self._loads.is_empty)

    def begins_after(self, turn: Turn) -> float:
        """Return the seconds from a turn's begin until our part of it begins."""
        assert turn.load is not None
        return self._own.probe(turn.load)[2]

    async def bring_up(self, turn: Turn) -> None:
        """Bring our share up from the load before, or from nothing."""
        assert turn.load is not None
        asked, size, _ = self._own.probe(turn.load)
        self._own.of_load = size / self._plan.load_at(turn.load)
        self._so_far = HoldSoFar(turn.number, size, "find", self._record.now())
        await self._loads.bring_up(turn.number, turn.load, size, asked)

    async def _hold(self, turn: Turn) -> Turn | None:
        """Hold the load until its end or until it is clear, and report what was measured; the load goes on until the
        next turn, which this returns."""
        await self._until_over(turn)
        unanswered = await unanswered_in(self._crew)
        gone = ""
        if await asyncio.to_thread(self._is_silent, turn.number):
            await self._loads.stop()
            gone = await self._gone()
        await self._conductor.held(self._report(turn, stage=turn.number, unanswered=unanswered, gone=gone))
        return await self._heed(self._conductor.next_turn())

    async def _until_over(self, turn: Turn) -> None:
        """Hold the load until its end, or until the earlier moment that the leader names once all shares are clear."""
        await self._until_clear(turn)
        await hold_to_named_end(turn, self._conductor, self._stages, self._crew)
        so_far, self._so_far = self._so_far, None
        if so_far is not None and turn.load is not None:
            await asyncio.to_thread(self._share.remember, turn.load, self._own.of_load, so_far)

    async def _until_clear(self, turn: Turn) -> None:
        """Report when our share of the load is clear, while there is time for an earlier end of the hold."""
        so_far, load = self._so_far, turn.load
        assert so_far is not None
        assert load is not None
        so_far.begin_hold(self._record.now())
        whole_round = round_of(self._plan, self._own.probe(load)[0])
        stance = Stance()
        while (
            not stance.is_final
            and self._conductor.may_end_early(self._stages.hold_left)
            and self._conductor.ends(turn) is None
        ):
            await self._crew.wait(_LOOK_EVERY)
            shown = await asyncio.to_thread(self._share.shows, load, self._own.of_load, so_far)
            news = stance.news(shown if so_far.held_for >= whole_round else "")
            if news is not None:
                self._conductor.clear(ClearHold(turn=turn.number, shows=news))

    def _is_silent(self, number: int) -> bool:
        """Return whether nothing of our load succeeded."""
        run = self._run.load()
        stage = run.stage(number)
        tried = any(stage.attempts(operation) for operation in run.own_load)
        return tried and not any(stage.count(operation) for operation in run.own_load)
