"""What a run makes on a Juju controller."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from tippingpoint.errors import UserError
from tippingpoint.rundir.ledger import Entry
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.targets.juju.plan import JujuTarget


def model_name(prefix: str) -> str:
    """The name of the model that a run makes for itself."""
    return f"tippingpoint-{prefix}"


class JujuEntry(Entry, frozen=True):
    """Everything a run makes on a Juju controller: hollow machines, applications and units in one model."""

    kind: Literal["juju"] = "juju"
    prefix: str
    """What the names of applications and machines begin with."""
    model: str
    """Name or UUID of the model they are in; empty when the run makes nothing."""
    made_model: bool
    """Whether the model is the run's own, and goes with it."""
    target: JujuTarget
    """As the plan has it, with the controller's name, whatever becomes the store's current one meanwhile."""
    store: Path | None
    """The juju client's directory that names the controller; None where a credentials file does."""

    @property
    def described(self) -> str:
        return f"model {self.model}" if self.made_model else f"{self.prefix}-... from model {self.model}"

    @property
    def made_by_workers(self) -> bool:
        return not self.model

    @property
    def always_there(self) -> str:
        return "its model" if self.made_model else ""

    def own(self, directory: Path, manifest: Manifest) -> Self:
        prefix = name_prefix(manifest.id)
        if self.prefix != prefix or (self.made_model and self.model != model_name(prefix)):
            raise UserError(
                "ledger", f"{self.prefix} in {self.model}", f"what this run made, named {prefix}..."
            )
        return self


ENTRY = JujuEntry
