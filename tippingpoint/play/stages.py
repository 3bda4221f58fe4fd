"""The stages of a run: all workers bring a load up and hold it, with the restart storms in between."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tippingpoint.plan.fields import StageKind
from tippingpoint.plan.lasting import Lasting, Schedule
from tippingpoint.plan.read import AnyStage
from tippingpoint.play.capacity_gate import CapacityGate
from tippingpoint.play.fault_timeline import FaultTimeline
from tippingpoint.play.messages import Begun, Hold
from tippingpoint.play.plan_share import PlanShare
from tippingpoint.play.record import Record
from tippingpoint.play.steadiness import Steadiness
from tippingpoint.play.watcher import StageProgress
from tippingpoint.play.worker_pool import Headway, WorkerPool
from tippingpoint.util import timing
from tippingpoint.util.lab_socket import ANSWER_TIMEOUT_S
from tippingpoint.workloads.load import StageOrder

if TYPE_CHECKING:  # a run without profiles needs no HTTP client
    from tippingpoint.play.profiler import Profiler

_AT_MOST = 3
"""How long to wait for a load whose backlog drains, in time limits of an operation."""
_STEPS: tuple[StageKind, ...] = ("ramp", "find")
"""The kinds of stages that are profiled: what a plan asks the target to hold."""


class Stages:
    """Brings stages up and holds them, and knows the current one."""

    def __init__(
        self,
        plan_share: PlanShare,
        pool: WorkerPool,
        faults: FaultTimeline,
        gate: CapacityGate,
        record: Record,
    ) -> None:
        self.profiler: Profiler | None = None
        """What profiles the target in each stage; None if nothing does."""
        self._plan_share = plan_share
        self._pool = pool
        self._faults = faults
        self._gate = gate
        self._record = record
        self._schedule = Schedule(plan_share.whole)
        self._on: StageOrder | None = None
        self._storms = 0
        """How many restart storms there were in the current listed stage."""
        self._first_began = 0.0
        self.began = 0.0
        """The moment in the run at which the latest stage began."""
        self._hold_began = 0.0
        self._hold_ends: float | None = None

    @property
    def begun(self) -> bool:
        """Whether any stage has begun."""
        return self._on is not None

    @property
    def progress(self) -> StageProgress | None:
        """Where the run is; None before its first stage."""
        if self._on is None:
            return None
        plan = self._plan_share.whole
        goal, things = plan.goal(self._on.spec) or (round(self._on.size), plan.load_unit)
        return StageProgress(
            elapsed=self._record.now(),
            stage=self._on.number,
            stages=len(plan.stages) or None,
            size=self._on.size,
            goal=goal,
            things=things,
            kind=self._on.kind,
            remaining=None if self._hold_ends is None else self.hold_left,
            listed=self._on.listed,
            left=self._left(self._on),
        )

    def _left(self, on: StageOrder) -> Lasting | None:
        if on.listed is not None:
            hold = None if self._hold_ends is None else self.hold_left
            ramp = self._record.now() - self.began
            return self._schedule.left(on.listed, ramp=ramp, hold=hold, storms=self._storms)
        return self._schedule.left_of_search(self._record.now() - self._first_began)

    async def end_hold_in_order(self) -> None:
        """Wait for everything under way that belongs to this hold, not to the next stage: faults, because a lab may
        take its time, and profiles."""
        await self._pool.wait_for(self._faults.done, ANSWER_TIMEOUT_S)
        if self.profiler is not None:
            await self._pool.wait_for(self.profiler.taken, self.profiler.within)

    @property
    def hold_began(self) -> float | None:
        """The moment in the run at which the latest stage's hold began; None if it has not."""
        return None if self._hold_ends is None else self._hold_began - self._record.started

    async def bring_up(
        self,
        number: int,
        kind: StageKind,
        size: float,
        spec: AnyStage,
        over: float,
        listed: int | None,
        *,
        calm: float | None = None,
        until: asyncio.Event | None = None,
    ) -> None:
        """Begin a stage; returns when its load is up, or when the plan's patience has passed without progress.

        With `calm`, the load also has to be steady, so that the backlog of the previous load is not blamed on this one:
        no operation is older than `calm` seconds, or the oldest has stopped getting younger (steadiness.py). The event
        `until` ends the wait.
        """
        removing = kind == "destroy" or self._gate.has_more_than(spec)
        await self._begin(number, kind, size, spec, over, listed)
        plan = self._plan_share.whole
        patience = plan.patience
        begun = self._record.now()
        deadline = timing.monotonic() + over + patience
        latest = timing.monotonic() + over + _AT_MOST * patience
        headway = Headway(removing=removing, making=not plan.is_held)
        steadiness = Steadiness(calm)
        while timing.monotonic() < deadline and not (until is not None and until.is_set()):
            # Ticks from before the stage say nothing about it: a storm begins with less load, a removal with more.
            heard = self._pool.ticks_after(begun)
            if len(heard) == len(self._pool.alive) and all(tick.up for tick in heard.values()):
                now = timing.monotonic()
                if steadiness.is_reached(max(tick.oldest for tick in heard.values()), now):
                    return
                if steadiness.is_near(now):
                    deadline = max(deadline, min(latest, now + patience))
            if headway.made(heard):
                deadline = max(deadline, timing.monotonic() + patience)
            self._pool.changed.clear()
            await self._pool.wait_for(self._pool.changed, deadline - timing.monotonic())

    def begin_hold(self, hold: float) -> None:
        """Hold the load for `hold` seconds from now on."""
        self._hold_began = timing.monotonic()
        self._hold_ends = self._hold_began + hold
        self._pool.tell(Hold())
        if self._plan_share.whole.is_held:  # the load is applied in a hold, and not while it is brought up
            self._profile(hold)

    def end_hold(self, seconds: float) -> None:
        """End the latest hold `seconds` from now."""
        self._hold_ends = timing.monotonic() + seconds

    @property
    def hold_left(self) -> float:
        """How many seconds are left of the latest hold; 0 without one."""
        return 0.0 if self._hold_ends is None else max(0.0, self._hold_ends - timing.monotonic())

    async def hold_to_the_end(self) -> None:
        """Wait until the latest hold is over, if any."""
        if self._hold_ends is not None:
            await self._pool.wait(self.hold_left)

    async def _begin(
        self, number: int, kind: StageKind, size: float, spec: AnyStage, over: float, listed: int | None
    ) -> None:
        self.began = self._record.now()
        if self._on is None:
            self._first_began = self.began
        self._storms = self._storms + 1 if kind == "storm" else 0
        self._hold_ends = None
        self._gate.fill(spec)
        order = StageOrder(
            number=number, size=size, kind=kind, spec=spec, over=over, share=(0, 1), listed=listed
        )
        self._on = order
        await self._pool.ask(Begun, lambda share: order.model_copy(update={"share": share}))
        if not self._plan_share.whole.is_held:
            self._profile(over + spec.hold)

    def _profile(self, lasts: float) -> None:
        if self.profiler is not None and self._on is not None and self._on.kind in _STEPS:
            self.profiler.begin(self._on.number, lasts)
