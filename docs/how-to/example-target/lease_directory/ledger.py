"""What a run makes in a directory of leases."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from lease_directory.plan import DirectoryTarget
from tippingpoint.errors import UserError
from tippingpoint.rundir.ledger import Entry
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import name_prefix


class DirectoryEntry(Entry, frozen=True):
    """Files whose names begin with a prefix."""

    kind: Literal["directory"] = "directory"
    prefix: str
    target: DirectoryTarget

    @property
    def described(self) -> str:
        return f"the leases {self.prefix}-... in {self.target.path}"

    def own(self, directory: Path, manifest: Manifest) -> Self:
        if self.prefix != name_prefix(manifest.id):
            raise UserError(
                "ledger", self.prefix, f"what this run made, named {name_prefix(manifest.id)}-..."
            )
        return self


ENTRY = DirectoryEntry
