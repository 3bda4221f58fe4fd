"""What a plan says of a simulated lease service."""

from __future__ import annotations

from typing import ClassVar, Literal

from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.kinds import TargetSection


class SimulatedTarget(TargetSection, frozen=True):
    """A service by its name; service.SERVICES has it."""

    plans: ClassVar = {"claim": ClaimPlan}

    kind: Literal["simulated"]
    name: str


SECTION = SimulatedTarget
