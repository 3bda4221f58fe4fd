"""What the workers of a run find ready on a Juju controller."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from tippingpoint.targets.juju.plan import JujuTarget


class JujuWorkspace(BaseModel):
    """Names that begin with a prefix, in the model with this UUID (empty with identity agent)."""

    prefix: str
    model: str
    target: JujuTarget
    """As the ledger has it: with the controller's name, whatever becomes the store's current one meanwhile."""
    store: Path | None
    """The juju client's directory that names the controller; None where a credentials file does."""
