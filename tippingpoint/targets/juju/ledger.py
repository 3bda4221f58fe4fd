"""The ledger entry of a run on a Juju controller."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from tippingpoint.errors import UserError
from tippingpoint.rundir.ledger import Entry
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.targets.juju.plan import JujuTarget


def model_name(prefix: str) -> str:
    """Return the name of the model that a run creates for itself."""
    return f"tippingpoint-{prefix}"


def operated_model(prefix: str, which: str) -> str:
    """Return the name of one of the models that a run of the operate workload makes."""
    return f"{model_name(prefix)}-{which}"


class JujuEntry(Entry, frozen=True):
    """Everything a run creates on a Juju controller: hollow machines, applications and units in one model."""

    kind: Literal["juju"] = "juju"
    prefix: str
    """Beginning of the names of all applications and machines."""
    model: str
    """Name or UUID of their model; empty if the run creates nothing."""
    made_model: bool
    """Whether the run created the model, so that it is removed with the run."""
    many: bool = False
    """Whether the run makes several models, whose names begin with that name and a dash."""
    target: JujuTarget
    """The plan's target, with the controller's name: the store's current controller may change."""
    store: Path | None
    """The juju client's directory that has the controller; None if a credentials file has it."""

    @property
    def described(self) -> str:
        if self.many:
            return f"models {self.model}-..."
        return f"model {self.model}" if self.made_model else f"{self.prefix}-... from model {self.model}"

    @property
    def made_by_workers(self) -> bool:
        return not self.model

    @property
    def always_there(self) -> str:
        return "its model" if self.made_model and not self.many else ""

    def own(self, directory: Path, manifest: Manifest) -> Self:
        prefix = name_prefix(manifest.id)
        if self.prefix != prefix or (self.made_model and self.model != model_name(prefix)):
            raise UserError(
                "ledger", f"{self.prefix} in {self.model}", f"what this run made, named {prefix}..."
            )
        return self


ENTRY = JujuEntry
