"""The workspace of a run on a Juju controller."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from tippingpoint.targets.juju.plan import JujuTarget


class JujuWorkspace(BaseModel):
    """Names that begin with a prefix, in the model with this UUID (empty with identity `agent`)."""

    prefix: str
    model: str
    target: JujuTarget
    """The target as the ledger has it, with the controller's name: the store's current controller may change."""
    store: Path | None
    """The juju client's directory that has the controller; None if a credentials file has it."""
