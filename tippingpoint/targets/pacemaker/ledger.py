"""The ledger entry of a run in a Pacemaker cluster. All names follow from the run's id."""

from __future__ import annotations

from typing import Literal

from tippingpoint.rundir.ownership import LastingEntry
from tippingpoint.targets.pacemaker.plan import PacemakerTarget


class PacemakerEntry(LastingEntry, frozen=True):
    """Everything that a run creates in a CIB: tickets, sets of properties and resources, with ids PREFIX-..."""

    kind: Literal["pacemaker"] = "pacemaker"
    target: PacemakerTarget
    spawns: bool = False
    """Whether it makes resources."""

    @property
    def described(self) -> str:
        return f"{self.prefix}-... from the CIB"

    @property
    def made_by_workers(self) -> bool:
        return not self.spawns  # remote nodes exist before the workers


ENTRY = PacemakerEntry
