"""The ledger entry of a run in a Pacemaker cluster. All names follow from the run's id."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from tippingpoint.errors import UserError
from tippingpoint.rundir.ledger import Entry
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.targets.pacemaker.plan import PacemakerTarget


class PacemakerEntry(Entry, frozen=True):
    """Everything that a run creates in a CIB: the tickets and sets of properties whose ids begin with PREFIX-."""

    kind: Literal["pacemaker"] = "pacemaker"
    prefix: str
    """The beginning of all ids of the run, without the hyphen that follows."""
    target: PacemakerTarget

    @property
    def described(self) -> str:
        return f"{self.prefix}-... from the CIB"

    @property
    def made_by_workers(self) -> bool:
        return True

    def own(self, directory: Path, manifest: Manifest) -> Self:
        prefix = name_prefix(manifest.id)
        if self.prefix != prefix:
            raise UserError("ledger", self.prefix, f"what this run made, named {prefix}-...")
        return self


ENTRY = PacemakerEntry
