"""What a plan says of a directory of leases."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.kinds import TargetSection


class DirectoryTarget(TargetSection, frozen=True):
    """A directory that all workers see."""

    plans: ClassVar = {"claim": ClaimPlan}

    kind: Literal["directory"]
    path: Path = Field(description="where it is; the leases of a run are files in it")


SECTION = DirectoryTarget
