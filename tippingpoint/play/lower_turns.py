"""The turns after the last load of a run (`after: recover`): our share of each lower load.

We report when thresholds are met again on our share. Once all units have reported that, an earlier end of the hold is
named, and the measurements of all units until then are judged.
"""

from __future__ import annotations

import asyncio
from math import inf

from tippingpoint.analysis.recovery.recovery_watch import RecoveryWatch, window_of
from tippingpoint.conduct.load_reduction import is_none, judged_whole
from tippingpoint.conduct.run_state import Turn
from tippingpoint.conduct.search_messages import HOLDS, ClearHold
from tippingpoint.plan.read import SearchPlan
from tippingpoint.plan.share import threshold_part
from tippingpoint.play.conductor import Conductor
from tippingpoint.play.lower_loads import LowerLoads
from tippingpoint.play.messages import Tick
from tippingpoint.play.named_end import hold_to_named_end
from tippingpoint.play.plan_share import PlanShare
from tippingpoint.play.record import Record
from tippingpoint.play.stage_figures import close_figures
from tippingpoint.play.stages import Stages
from tippingpoint.play.turn_report import TurnReport
from tippingpoint.play.worker_pool import WorkerPool


class LowerTurns:
    """Plays the turns of lower loads, and reports on each; conduct/next_lower.py judges them."""

    def __init__(
        self,
        plan: SearchPlan,
        conductor: Conductor,
        plan_share: PlanShare,
        loads: LowerLoads,
        stages: Stages,
        pool: WorkerPool,
        record: Record,
    ) -> None:
        self._plan = plan
        self._conductor = conductor
        self._plan_share = plan_share
        self._loads = loads
        self._stages = stages
        self._pool = pool
        self._record = record
        self._missing = ""
        """Why our share of the present load is not applied; empty if it is."""
        self._begun = False
        """Whether the present load has a stage in the journals."""
        self._watch: RecoveryWatch | None = None
        """Watches our share of the present load; None if we have none, or if the whole load is judged."""
        self._recovered = asyncio.Event()
        """Set once the watch has seen that thresholds are met again."""
        self._from_hold = False
        """Whether nothing counts before the present load's hold."""

    def heard(self, tick: Tick) -> None:
        """Take a worker's tick."""
        watch = self._watch
        if watch is not None and watch.counts(tick.t, tick.seconds):  # only then is it decoded
            watch.add(tick.t, tick.seconds, tick.measured)
            if watch.recovered:
                self._recovered.set()

    async def prepare(self, turn: Turn) -> None:
        """Prepare our share of a turn, whether or not there is room for it."""
        self._missing, self._begun = "", False
        load = turn.load or 0.0
        if not load:
            return
        if turn.fresh:
            await self._loads.from_nothing(load)
        else:
            await self._pool.prepare([self._plan_share.probe(load)[0]], fresh=False)
        self._missing = await self._loads.look(load, turn.number)

    def begins_after(self, turn: Turn) -> float:
        """Return how many seconds after a turn begins our part of it begins."""
        return self._plan_share.probe(turn.load)[2] if turn.load else 0.0

    async def bring_up(self, turn: Turn) -> bool:
        """Change our share from the previous load to this one, as far as possible; returns whether any load is left to
        hold."""
        load, self._watch = turn.load or 0.0, None
        if is_none(self._plan, load):
            await self._loads.pause()
        elif not self._missing:
            self._begun = True
            self._begin_watch(load)
            self._missing = await self._loads.bring_up(turn.number, load)
        return not self._missing

    async def hold(self, turn: Turn, seconds: float) -> None:
        """Hold our share for `seconds`, and report on it."""
        if not self._begun:
            await self._pool.wait(seconds)
        else:
            self._stages.begin_hold(seconds)
            await self._until_recovered(turn)
            await hold_to_named_end(turn, self._conductor, self._stages, self._pool)
            await self._stages.end_hold_in_order()
        await self.report(turn)

    async def report(self, turn: Turn) -> None:
        """Report what was measured of our share, or why it was not applied."""
        watch, self._watch = self._watch, None
        if self._begun:
            await close_figures(self._pool)
        await self._conductor.held(
            TurnReport(
                turn=turn.number,
                inside=self._record.inside,
                stage=turn.number,
                is_measured=self._begun,
                began=self._stages.began,
                hold_began=self._stages.hold_began,
                ended=self._record.now(),
                held_since=inf if watch is None else watch.good_since,
                missing=self._missing,
            )
        )

    def _begin_watch(self, load: float) -> None:
        """Watch our share of a load that is about to be brought up, unless the whole load is judged.

        Where things are removed, nothing counts before the lower load is held. The same applies to many units where
        things are made, as in FromDigests.held_since.
        """
        size, plan = self._plan_share.probe(load)[1], self._plan
        if judged_whole(plan) or not size:
            return
        of_load = size / plan.load_at(load)
        thresholds = [threshold_part(threshold, of_load) for threshold in plan.thresholds]
        self._watch = RecoveryWatch(thresholds, window_of(plan))
        self._recovered = asyncio.Event()
        together = not self._conductor.alone
        self._from_hold = self._loads.goes_down(load) or (together and not plan.is_held)
        if not self._from_hold:
            self._watch.begin(self._record.now())

    async def _until_recovered(self, turn: Turn) -> None:
        """Report that thresholds are met again on our share, while there is time for an earlier end of the hold.

        A unit without a share of this load does not block an early end.
        """
        watch, load = self._watch, turn.load or 0.0
        if watch is not None and self._from_hold:
            watch.begin(self._record.now())
        if not load or judged_whole(self._plan) or not self._conductor.may_end_early(self._stages.hold_left):
            return
        if watch is not None:
            await self._pool.wait_for(self._recovered, self._stages.hold_left)
            if not watch.recovered:
                return
        self._conductor.clear(ClearHold(turn=turn.number, shows=HOLDS))
