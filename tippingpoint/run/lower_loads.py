"""Brings the loads that follow a cliff onto the target: the one that broke it once more, and lower ones.

Going down means what it can for each kind of load. Leases and renewals become fewer, and a rate slower. Things and
units are removed, down to the lower load. At a pace whose things stay, those that are there stay too, and a step makes
its own beside them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tippingpoint.plan.grow import GrowPlan, GrowStage
from tippingpoint.plan.read import AnyStage, SearchPlan
from tippingpoint.plan.spawn import PACES, SpawnPlan, SpawnStage
from tippingpoint.run.crew import Crew
from tippingpoint.run.messages import Pause, Paused
from tippingpoint.run.record import Record
from tippingpoint.run.room import Room
from tippingpoint.run.settling import Settling
from tippingpoint.run.stages import Stages


@dataclass(frozen=True)
class Played:
    """One load that was on the target, or was to be."""

    stage: int | None
    """The stage's number in the journals; None if there was none."""
    why: str = ""
    """Why the load was never there; empty if it was."""


class LowerLoads:
    """The loads of `after: recover`."""

    def __init__(self, plan: SearchPlan, stages: Stages, crew: Crew, room: Room, record: Record) -> None:
        self._plan = plan
        self._stages = stages
        self._crew = crew
        self._room = room
        self._record = record
        self._before: AnyStage | None = plan.stages[-1] if plan.stages else None

    def possible(self, load: float) -> float:
        """Return the load nearest to this one that can be put on the target: a whole number of what it is made of."""
        if self._plan.load in ("renewals", "claims", "rate"):
            return round(load, 3)
        return self._plan.load_at(round(load))

    @property
    def judged_whole(self) -> bool:
        """Whether a step is judged when all that it makes is there, as the load is how fast that is made."""
        return self._plan.load in PACES

    async def from_nothing(self, load: float) -> None:
        """Take the load away, and have all that was made removed, before this load comes."""
        await self._pause()
        await self._crew.prepare([self._plan.stage_at(load)], fresh=True)
        self._room.empty()
        self._before = None

    async def none_for(self, seconds: float) -> None:
        """Put no load on the target for a while."""
        await self._pause()
        await self._crew.wait(seconds)

    async def play(self, load: float, settling: Settling | None = None) -> Played:
        """Put a load on the target until `settling` says that thresholds hold again, at most for as long as its hold.

        Without `settling`, it is held to its end.
        """
        asked = self._asked(load)
        number = self._stages.following
        goes_down = self._room.has_more_than(asked)
        if not goes_down and (refused := await self._room.look(asked, number, "after")):
            return Played(None, refused)
        began = self._record.now()
        if settling is not None and not goes_down:
            settling.begin(began)
        await self._stages.bring_up(number, "recover", load, asked, asked.over, None)
        self._before = asked
        if goes_down and (left := self._left(began)):
            return Played(number, left)
        if settling is not None and goes_down:
            settling.begin(self._record.now())
        self._stages.begin_hold(asked.hold)
        if settling is not None:
            await self._crew.wait_for(settling.settled, asked.hold)
        else:
            await self._crew.wait(asked.hold)
        await self._stages.await_faults()
        return Played(number)

    def _asked(self, load: float) -> AnyStage:
        plan, before = self._plan, self._before
        asked = plan.stage_at(load)
        if not plan.piles_up:
            return asked
        if isinstance(plan, SpawnPlan) and isinstance(asked, SpawnStage) and isinstance(before, SpawnStage):
            return plan.on_top(asked, before)
        if isinstance(plan, GrowPlan) and isinstance(asked, GrowStage) and isinstance(before, GrowStage):
            return plan.on_top(asked, before)
        return asked

    def _left(self, began: float) -> str:
        """Return what of the load before is still there; empty if nothing is."""
        on, ticks = self._stages.progress, self._crew.ticks_after(began).values()
        if on is None or all(tick.up for tick in ticks):
            return ""
        over = sum(tick.held for tick in ticks) - on.goal
        return f"{over} {on.things} of the load before could not be removed" if over > 0 else ""

    async def _pause(self) -> None:
        await self._crew.ask(Paused, lambda _: Pause())
