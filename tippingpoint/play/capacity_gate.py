"""Makes room on the target for the next stage: starts members of a lab, and checks the target's free capacity."""

from __future__ import annotations

from typing import Any

from tippingpoint.errors import TargetError, UserError
from tippingpoint.plan.read import AnyStage
from tippingpoint.plan.spawn import SpawnStage
from tippingpoint.play.fault_timeline import FaultTimeline
from tippingpoint.play.interruption import Interruption
from tippingpoint.play.inventory import Inventory
from tippingpoint.play.plan_share import PlanShare
from tippingpoint.play.record import Record
from tippingpoint.targets.target import Target


class CapacityGate:
    """Checks that the target has room for what a plan makes; with `force` it does not ask the target."""

    def __init__(
        self,
        target: Target[Any, Any, Any],
        plan_share: PlanShare,
        inventory: Inventory,
        faults: FaultTimeline,
        record: Record,
        interruption: Interruption,
        *,
        force: bool,
    ) -> None:
        self._target = target
        self._plan_share = plan_share
        self._inventory = inventory
        self._faults = faults
        self._record = record
        self._interruption = interruption
        self._force = force
        self._filled: AnyStage | None = None
        """The stage whose things already have their room: the previous one, or that of the run that is resumed."""

    @property
    def filled(self) -> AnyStage | None:
        """The stage whose instances exist; None without any."""
        return self._filled

    def fill(self, spec: AnyStage) -> None:
        """Note that the things of this stage take up room from now on."""
        self._filled = spec

    def empty(self) -> None:
        """Note that all things were removed."""
        self._filled = None

    def has_more_than(self, spec: AnyStage) -> bool:
        """Return whether things have to be removed for this stage because the previous one had more."""
        return self._filled is not None and self._plan_share.plan.removes(self._filled, spec)

    async def make(self, spec: AnyStage, place: str) -> None:
        """Start the lab members that a stage needs; raises UserError if the stage does not fit.

        `place` is the plan's field that has the stage.
        """
        # Only a spawn stage asks for members, or is known to a target's room.
        if not isinstance(spec, SpawnStage):
            return
        unless_asked = self._interruption.unless_asked
        await unless_asked(self._faults.start_members(spec.members or 0))
        if not self._force:
            await unless_asked(self._check(spec, place))

    async def look(self, spec: AnyStage, stage: int, place: str) -> str:
        """Make room for the stage with this number; returns why it cannot begin, or an empty text."""
        try:
            await self.make(spec, place)
        except UserError as refused:
            return f"stage {stage} was not begun: {refused}"
        except TargetError as problem:  # the target fails, and the stage will show that
            self._record.event("room-unknown", stage=stage, problem=str(problem))
        return ""

    async def _check(self, spec: SpawnStage, place: str) -> None:
        try:
            there = self._filled.size if self._filled is not None else 0
            await self._target.check_room(self._inventory.entries[0], self._plan_share.plan, spec, there)
        except UserError as refused:
            if refused.field.startswith("target."):
                raise
            raise UserError(f"{place}.{refused.field}", refused.value, refused.accepted) from None
