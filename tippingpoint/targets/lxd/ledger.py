"""The ledger entry of a run in LXD."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, Self

from tippingpoint.errors import UserError
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import LastingEntry
from tippingpoint.targets.lxd.plan import LxdTarget

KEY_PAIR = "trust"
"""The directory beside the ledger with the key pair for which a trust token was redeemed."""


class LxdEntry(LastingEntry, frozen=True):
    """Everything a run creates in LXD: projects with their profile and containers, an image, an entry of trust.

    If the target names `projects`, the containers and the image are in these, and the run creates no projects.
    """

    kind: Literal["lxd"] = "lxd"
    image: str
    """Fingerprint of the image to import; empty if the plan names an image on the server."""
    target: LxdTarget
    """The plan's target, with the remote's name: lxc's default remote may change."""
    store: Path | None
    """The lxc client's directory that has the remote; None if the plan names a socket, credentials or a token."""
    identity: Path | None
    """Directory of the key pair made for a trust token; None without a token."""

    @property
    def described(self) -> str:
        if self.target.projects:
            return f"the containers {self.prefix}-... from {', '.join(self.target.projects)}"
        return f"the projects {self.prefix}-... and what is in them"

    def own(self, directory: Path, manifest: Manifest) -> Self:
        super().own(directory, manifest)
        if not re.fullmatch("([0-9a-f]{64})?", self.image):
            raise UserError("ledger", self.image, "the fingerprint (SHA-256) of an image, or none")
        if self.identity is None:
            return self
        identity = self.find_file(self.identity, KEY_PAIR, directory, manifest)
        return self.model_copy(update={"identity": identity})


ENTRY = LxdEntry
