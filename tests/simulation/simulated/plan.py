"""What a plan says of a simulated service."""

from __future__ import annotations

from typing import ClassVar, Literal

from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.kinds import TargetSection
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.plan.store import StorePlan


class SimulatedTarget(TargetSection, frozen=True):
    """A service by its name; service.SERVICES has it."""

    plans: ClassVar = {"claim": ClaimPlan, "spawn": SpawnPlan, "store": StorePlan}

    kind: Literal["simulated"]
    name: str


SECTION = SimulatedTarget
