"""The turns of a run: brings up and holds our share of each when the conductor says so."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING, TypeVar

from tippingpoint.conduct.run_state import Turn
from tippingpoint.errors import UserError
from tippingpoint.play.capacity_gate import CapacityGate
from tippingpoint.play.conductor import Conductor
from tippingpoint.play.fault_timeline import FaultTimeline
from tippingpoint.play.interruption import EndedEarly
from tippingpoint.play.messages import Tick
from tippingpoint.play.plan_share import PlanShare
from tippingpoint.play.record import Record
from tippingpoint.play.stage_figures import close_figures
from tippingpoint.play.stages import Stages
from tippingpoint.play.turn_report import TurnReport
from tippingpoint.play.worker_pool import WorkerPool
from tippingpoint.util import timing
from tippingpoint.workloads.load import ShareOrder

if TYPE_CHECKING:  # a run without lower loads judges nothing, and needs no numpy
    from tippingpoint.play.lower_turns import LowerTurns

_LATE = 1.0
"""Seconds after a turn's begin beyond which a late start is reported."""

T = TypeVar("T")


class Turns:
    """Plays the turns that a conductor announces."""

    def __init__(
        self,
        conductor: Conductor,
        plan_share: PlanShare,
        stages: Stages,
        pool: WorkerPool,
        faults: FaultTimeline,
        gate: CapacityGate,
        record: Record,
        lower: LowerTurns | None,
    ) -> None:
        """`lower` plays the turns after the last load, in a run that may have any."""
        self._conductor = conductor
        self._plan_share = plan_share
        self._stages = stages
        self._pool = pool
        self._faults = faults
        self._gate = gate
        self._record = record
        self._lower = lower

    def heard(self, tick: Tick) -> None:
        """Take a worker's tick."""
        if self._lower is not None:
            self._lower.heard(tick)

    async def play(self) -> None:
        """Bring up and hold our share of each turn when the conductor says so, until there are no more turns."""
        conductor = self._conductor
        await self._heed(conductor.ready())
        turn = await self._heed(conductor.next_turn())
        while turn is not None:
            refused = await self._get_ready(turn)
            lower = self._lower_of(turn)
            begin = turn.begin + (lower or self).begins_after(turn)
            try:
                # Until it begins, another turn may replace it.
                turn = await self._heed(conductor.next_turn(), until=begin)
                continue
            except TimeoutError:
                pass
            if refused:
                raise EndedEarly("cut", refused)
            turn = await self._play_turn(turn, conductor.now() - begin)
        if conductor.stopped:
            raise EndedEarly("cut" if conductor.alone else "interrupted", conductor.stopped)
        await self._stages.hold_to_the_end()

    async def _play_turn(self, turn: Turn, late: float) -> Turn | None:
        """Play one turn, which begins now; returns the next one as soon as that is known."""
        if late > _LATE and not self._conductor.alone:
            self._record.event("began-late", stage=turn.number, seconds=round(late, 3))
        if turn.kind == "storm" and self._conductor.alone:
            self._record.event("fault", do="drop-claims")
        lower = self._lower_of(turn)
        is_up = await (lower or self).bring_up(turn)
        if not is_up and self._conductor.alone:  # nobody else holds it
            await (lower or self).report(turn)
            return await self._heed(self._conductor.next_turn())
        hold = await self._heed(self._conductor.up(turn))
        if hold is None:
            return None
        await self._pool.wait(hold - self._conductor.now())
        seconds = turn.lasts
        if not self._conductor.alone:  # all units end it at the same moment
            seconds = max(0.0, hold + turn.lasts - self._conductor.now())
        if lower is not None:
            await lower.hold(turn, seconds)
            return await self._heed(self._conductor.next_turn())
        self._stages.begin_hold(seconds)
        return await self._hold(turn)

    def _lower_of(self, turn: Turn) -> LowerTurns | None:
        """Return what plays a turn of a lower load; None for any other turn."""
        return self._lower if turn.kind == "recover" else None

    async def _get_ready(self, turn: Turn) -> str:
        """Take our share of the next turn, and prepare it; returns why it cannot begin, or an empty text."""
        share = index, of = self._conductor.place(turn), turn.of
        manifest = self._record.manifest
        known = manifest.share, manifest.first_stage
        if share != self._plan_share.share:
            try:
                self._plan_share.take(share)
            except UserError as refused:
                return str(refused)
            manifest.share = share
            self._record.event("share", index=index, of=of)
            self._pool.tell(ShareOrder(index=index, of=of))
            await self._prepare_anew()
        if not self._stages.begun:
            manifest.first_stage = self._first_stage(turn)
        if (manifest.share, manifest.first_stage) != known:
            self._record.save_manifest()
        lower = self._lower_of(turn)
        if lower is not None:
            await lower.prepare(turn)
            return ""
        return await self._prepare(turn)

    async def _prepare_anew(self) -> None:
        """Prepare what a new share of the whole plan needs."""
        await self._pool.prepare(self._plan_share.plan.planned, fresh=False)

    def _first_stage(self, turn: Turn) -> int:
        """Return the number that the manifest has if this turn is our first."""
        return turn.stage

    async def _prepare(self, turn: Turn) -> str:
        """Make room for our share of a turn; returns why it cannot begin, or an empty text."""
        if turn.kind == "storm" or (self._conductor.alone and not self._stages.begun):
            return ""  # there is room: the load is already applied, or the first stage has just been checked
        return await self._gate.look(
            self._plan_share.spec(turn.stage), turn.stage, f"stages.{turn.stage - 1}"
        )

    def begins_after(self, turn: Turn) -> float:
        """Return how many seconds after a turn begins our part of it begins."""
        return 0.0 if turn.kind == "storm" else self._plan_share.begins_after(turn.stage)

    async def bring_up(self, turn: Turn) -> bool:
        """Bring our share of a turn up, or as far up as it will get; returns whether there is something to hold."""
        size, spec = self._plan_share.size(turn.stage), self._plan_share.spec(turn.stage)
        over = 0.0 if turn.kind == "storm" else spec.over
        whole = self._plan_share.whole.loads[turn.stage - 1][1]
        self._plan_share.of_load = fraction_of(size, whole, turn)
        await self._stages.bring_up(turn.number, turn.kind, size, spec, over, turn.stage)
        return True

    async def _hold(self, turn: Turn) -> Turn | None:
        """Hold our share; returns the next turn, which ends the hold.

        If the hold is over and no turn was named, the conductor may wait for its end and receive the measurements.
        """
        if turn.kind != "storm":
            self._faults.start(turn.stage)
        conductor = self._conductor
        if conductor.reports:
            try:
                return await self._heed(conductor.next_turn(), until=conductor.now() + self._stages.hold_left)
            except TimeoutError:
                await self._stages.end_hold_in_order()
            await self.report(turn)
        return await self._heed(conductor.next_turn())

    async def report(self, turn: Turn) -> None:
        """Report that the hold is over, with all that was measured in a run whose stages are judged now."""
        if self._conductor.judges_stages:
            await close_figures(self._pool)
        await self._conductor.held(
            TurnReport(
                turn=turn.number,
                inside=self._record.inside,
                stage=None,
                began=self._stages.began,
                hold_began=self._stages.hold_began,
                ended=self._record.now(),
            )
        )

    async def _heed(self, saying: Awaitable[T], until: float = float("inf")) -> T:
        """Return the conductor's answer during the run.

        Raises TimeoutError without an answer by `until`, on the conductor's clock.
        """
        heard = asyncio.Event()
        deadline = timing.monotonic() + until - self._conductor.now()
        said = asyncio.ensure_future(saying)
        said.add_done_callback(lambda _: heard.set())
        try:
            await asyncio.sleep(0)  # so that an answer that is already known is returned, however late
            while not said.done():
                left = deadline - timing.monotonic()
                if left <= 0:
                    raise TimeoutError
                await self._pool.wait_for(heard, min(left, 1.0))
            return said.result()
        finally:
            said.cancel()


def fraction_of(size: float, whole: float, turn: Turn) -> float:
    """Return which share of a turn's load our load is, from 0 to 1."""
    if turn.of == 1:
        return 1.0
    return size / whole if whole else 0.0
