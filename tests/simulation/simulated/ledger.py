"""What a run makes in a simulated lease service."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from tests.simulation.simulated.plan import SimulatedTarget
from tippingpoint.rundir.ledger import Entry
from tippingpoint.rundir.manifest import Manifest


class SimulatedEntry(Entry, frozen=True):
    """Leases whose names begin with a prefix."""

    kind: Literal["simulated"] = "simulated"
    prefix: str
    target: SimulatedTarget

    @property
    def described(self) -> str:
        return f"the leases {self.prefix}-... of {self.target.name}"

    def own(self, directory: Path, manifest: Manifest) -> Self:
        return self


ENTRY = SimulatedEntry
