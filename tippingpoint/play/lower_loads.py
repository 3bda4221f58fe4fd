"""Applies the loads that follow a cliff: the one that broke the target again, and then lower ones.

How a load goes down depends on its kind. Leases and renewals become fewer, and a rate becomes slower. Things and units
are removed, down to the lower load. At a pace whose things stay, existing ones stay too, and a step makes its own in
addition.
"""

from __future__ import annotations

from tippingpoint.plan.read import AnyStage
from tippingpoint.play.capacity_gate import CapacityGate
from tippingpoint.play.messages import Pause, Paused
from tippingpoint.play.plan_share import PlanShare
from tippingpoint.play.record import Record
from tippingpoint.play.stages import Stages
from tippingpoint.play.worker_pool import WorkerPool


class LowerLoads:
    """The loads of `after: recover` on this machine: all of each load, or a unit's share of it."""

    def __init__(
        self, plan_share: PlanShare, stages: Stages, pool: WorkerPool, gate: CapacityGate, record: Record
    ) -> None:
        self._plan_share = plan_share
        self._stages = stages
        self._pool = pool
        self._gate = gate
        self._record = record

    async def from_nothing(self, load: float) -> None:
        """Remove the load, and everything that was made, before this load comes."""
        await self.pause()
        await self._pool.prepare([self._plan_share.probe(load)[0]], fresh=True)
        self._gate.empty()

    async def pause(self) -> None:
        """Put no load on the target."""
        await self._pool.ask(Paused, lambda _: Pause())

    def goes_down(self, load: float) -> bool:
        """Return whether things are removed for a load."""
        return self._gate.has_more_than(self._spec(load))

    async def look(self, load: float, number: int) -> str:
        """Return why the stage of this number has no room for a load; empty if it has, or if the load goes down."""
        return "" if self.goes_down(load) else await self._gate.look(self._spec(load), number, "after")

    async def bring_up(self, number: int, load: float) -> str:
        """Change from the previous load to this one; returns why that failed, or an empty text."""
        spec, began = self._spec(load), self._record.now()
        goes_down = self.goes_down(load)
        size = self._plan_share.probe(load)[1]
        await self._stages.bring_up(number, "recover", size, spec, spec.over, None)
        return self._left(began) if goes_down else ""

    def _spec(self, load: float) -> AnyStage:
        spec, before = self._plan_share.probe(load)[0], self._gate.filled
        if before is None or not self._plan_share.whole.accumulates:
            return spec
        # A unit without a share of this load keeps what it has.
        return spec.on_top(before) if spec.size else before

    def _left(self, began: float) -> str:
        """Return what remains of the previous load; empty if nothing does."""
        on, ticks = self._stages.progress, self._pool.ticks_after(began).values()
        if on is None or all(tick.up for tick in ticks):
            return ""
        over = sum(tick.held for tick in ticks) - on.goal
        return f"{over} {on.things} of the load before could not be removed" if over > 0 else ""
