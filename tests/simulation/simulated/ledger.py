"""What a run makes in a simulated service."""

from __future__ import annotations

from typing import Literal

from tests.simulation.simulated.plan import SimulatedTarget
from tippingpoint.rundir.ownership import LastingEntry


class SimulatedEntry(LastingEntry, frozen=True):
    """Leases or things whose names begin with a prefix."""

    kind: Literal["simulated"] = "simulated"
    target: SimulatedTarget

    @property
    def described(self) -> str:
        return f"{self.prefix}-... of {self.target.name}"


ENTRY = SimulatedEntry
