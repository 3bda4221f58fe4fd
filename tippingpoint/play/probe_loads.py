"""Applies the loads of a search to the target: from one to the next without a pause, or from nothing."""

from __future__ import annotations

import asyncio

from tippingpoint.analysis.thresholds import limits_of
from tippingpoint.plan.read import AnyStage, SearchPlan
from tippingpoint.play.capacity_gate import CapacityGate
from tippingpoint.play.messages import Pause, Paused
from tippingpoint.play.stages import Stages
from tippingpoint.play.worker_pool import WorkerPool

_CALM = 1.0
"""How old, in seconds, an operation may be in a steady load, if the plan has no limit on latency."""


def round_of(plan: SearchPlan, spec: AnyStage) -> float:
    """Return the seconds in which every lease is renewed once; 0 if nothing is renewed."""
    held, every = plan.leases(spec) or (0, 0.0)
    return every if held else 0.0


class ProbeLoads:
    """The loads of one search on this machine: all of each, or a unit's share."""

    def __init__(self, plan: SearchPlan, stages: Stages, pool: WorkerPool, gate: CapacityGate) -> None:
        self._plan = plan
        self._stages = stages
        self._pool = pool
        self._gate = gate
        self._on: float | None = None
        """The load that is on the target; None for none."""

    @property
    def is_empty(self) -> bool:
        """Whether no load is on the target."""
        return self._on is None

    async def stop(self) -> None:
        """Take the load away."""
        await self._pool.ask(Paused, lambda _: Pause())
        self._on = None

    async def prepare(self, spec: AnyStage, number: int, *, fresh: bool) -> str:
        """Prepare a load, and empty the target before a fresh one; returns why there is no room, or an empty text."""
        if fresh:
            await self.stop()
        await self._pool.prepare([spec], fresh=fresh)
        if fresh:
            self._gate.empty()
        return await self._gate.look(spec, number, "find")

    async def bring_up(
        self, number: int, load: float, size: float, spec: AnyStage, until: asyncio.Event | None = None
    ) -> None:
        """Change from the previous load, or from nothing, to this one. The event `until` ends the wait for it.

        `spec` and `size` are this machine's share of `load`.
        """
        over = self._over(load, spec)
        await self._stages.bring_up(number, "find", size, spec, over, None, calm=self._calm, until=until)
        self._on = load

    def _over(self, load: float, spec: AnyStage) -> float:
        """Return the seconds over which the load changes: new load arrives as fast as it would from nothing.

        Renewals follow claims, so those of a small change are spread over a whole round of renewals too.
        """
        change = 1.0 if self._on is None else abs(load - self._on) / load
        return min(spec.over, max(spec.over * change, round_of(self._plan, spec)))

    @property
    def _calm(self) -> float:
        """How old, in seconds, an operation may be in a steady load."""
        limits = (limit for threshold in self._plan.thresholds for limit in limits_of(threshold))
        return min((limit.allowed / 1e6 for limit in limits if limit.percentile is not None), default=_CALM)
