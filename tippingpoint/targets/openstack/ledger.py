"""What a run makes in an OpenStack."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import LastingEntry
from tippingpoint.targets.openstack.plan import OpenstackTarget

PASSWORD = "openstack-user"
"""Beside the ledger: the file with the password of the user that was made."""


class OpenstackEntry(LastingEntry, frozen=True):
    """Everything a run makes in an OpenStack: servers; where its target says so also projects with a user in them,
    networks with their subnets and routers, a flavor, and an image."""

    kind: Literal["openstack"] = "openstack"
    target: OpenstackTarget
    """As the plan has it, with the cloud's name and file, whatever becomes the default meanwhile."""
    identity: Path | None
    """File with the password of the user that is made; None where none is."""

    @property
    def described(self) -> str:
        return f"the servers {self.prefix}-... and what was made for them"

    @property
    def passwords(self) -> list[Path]:
        return [] if self.identity is None else [self.identity]

    def own(self, directory: Path, manifest: Manifest) -> Self:
        super().own(directory, manifest)
        if self.identity is None:
            return self
        identity = self.find_file(self.identity, PASSWORD, directory, manifest)
        return self.model_copy(update={"identity": identity})


ENTRY = OpenstackEntry
