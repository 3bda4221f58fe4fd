"""A unit's turns in a search by many units: its share of each load, and its report on what it measured."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np

from tippingpoint.plan.read import SearchPlan
from tippingpoint.run.crew import Crew
from tippingpoint.run.interruption import EndedEarly
from tippingpoint.run.messages import Settle, Settled
from tippingpoint.run.own_part import OwnPart
from tippingpoint.run.probe_loads import ProbeLoads
from tippingpoint.run.record import Record
from tippingpoint.run.room import Room
from tippingpoint.run.stages import Stages
from tippingpoint.run.turns import Turns
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.results import load_run
from tippingpoint.units.conductor import Conductor
from tippingpoint.units.digest import make_digest
from tippingpoint.units.search_words import DIGEST, ProbeReport
from tippingpoint.units.shared_run import Turn


class SearchTurns(Turns):
    """Plays the turns of a search. The load goes from one turn to the next unless the turn begins from nothing."""

    def __init__(
        self,
        plan: SearchPlan,
        gone: Callable[[], Awaitable[str]],
        conductor: Conductor,
        own: OwnPart,
        stages: Stages,
        crew: Crew,
        room: Room,
        record: Record,
    ) -> None:
        """`gone` tells why the target cannot be reached any more, or an empty text."""
        super().__init__(conductor, own, stages, crew, room, record)
        self._plan = plan
        self._gone = gone
        self._loads = ProbeLoads(plan, stages, crew, room)

    async def _prepare_anew(self) -> None:
        """Prepare nothing: each load is prepared by itself."""

    def _first_stage(self, turn: Turn) -> int:
        return turn.number

    async def _prepare(self, turn: Turn) -> str:
        assert turn.load is not None
        asked = self._own.probe(turn.load)[0]
        return await self._loads.prepare(asked, turn.number, fresh=turn.fresh or self._loads.is_empty)

    def _begins_after(self, turn: Turn) -> float:
        assert turn.load is not None
        return self._own.probe(turn.load)[2]

    async def _bring_up(self, turn: Turn) -> None:
        assert turn.load is not None
        asked, size, _ = self._own.probe(turn.load)
        self._own.of_load = size / self._plan.load_at(turn.load)
        await self._loads.bring_up(turn.number, turn.load, size, asked)

    async def _hold(self, turn: Turn) -> None:
        """Hold the load to the end, and report what was measured; the load goes on."""
        await self._stages.hold_to_the_end()
        unanswered: dict[str, Histogram] = {}
        for answer in await self._crew.ask(Settled, lambda _: Settle()):
            for operation, ages in answer.unanswered.items():
                unanswered.setdefault(operation, Histogram()).add(Histogram.of(np.asarray(ages) * 1e6))
        if self._crew.unwritten:
            raise EndedEarly("cut", "no disk space left for the journal, which the search needs")
        silent, digest = await asyncio.to_thread(self._measured, turn.number)
        gone = ""
        if silent:
            await self._loads.stop()
            gone = await self._gone()
        self._conductor.held(
            ProbeReport(
                turn=turn.number,
                digest=digest,
                unanswered={operation: ages.encode() for operation, ages in unanswered.items()},
                gone=gone[:1000],
            )
        )

    def _measured(self, number: int) -> tuple[bool, str]:
        """Return whether nothing of our load succeeded, and the digest of the stage."""
        directory = self._record.directory
        run = load_run(directory)
        stage = run.stage(number)
        tried = any(stage.attempts(operation) for operation in run.own_load)
        silent = tried and not any(stage.count(operation) for operation in run.own_load)
        return silent, make_digest(directory, DIGEST, number)
