"""The ledger entry of a run in OpenStack."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import LastingEntry
from tippingpoint.targets.openstack.plan import OpenstackTarget

PASSWORD = "openstack-user"
"""The file beside the ledger with the password of the user that the run creates."""


class OpenstackEntry(LastingEntry, frozen=True):
    """Everything a run creates in OpenStack: servers and, if its target says so, what servers need.

    This can be projects with a user in them, networks with their subnets and routers, a flavor, and an image.
    """

    kind: Literal["openstack"] = "openstack"
    target: OpenstackTarget
    """The plan's target, with the cloud's name and file: the default cloud may change."""
    identity: Path | None
    """File with the password of the user that the run creates; None without one."""

    @property
    def described(self) -> str:
        return f"the servers {self.prefix}-... and everything created for them"

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
