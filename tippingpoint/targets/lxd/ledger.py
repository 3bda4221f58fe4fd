"""What a run makes in an LXD."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, Self

from tippingpoint.errors import UserError
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import LastingEntry
from tippingpoint.targets.lxd.plan import LxdTarget

KEY_PAIR = "trust"
"""Beside the ledger: the directory of the key pair that a trust token was redeemed for."""


class LxdEntry(LastingEntry, frozen=True):
    """Everything a run makes in an LXD: projects with their profile and containers, an image, our trust.

    Where its target names `projects`, the containers and the image are in these, and it makes no projects.
    """

    kind: Literal["lxd"] = "lxd"
    image: str
    """Fingerprint of the image that is imported unless it is there; empty where the plan names one on the server."""
    target: LxdTarget
    """As the plan has it, with the remote's name, whatever becomes lxc's default one meanwhile."""
    store: Path | None
    """The lxc client's directory that names the remote; None where the plan says otherwise who we are."""
    identity: Path | None
    """Directory of the key pair made for a trust token; None without one."""

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
