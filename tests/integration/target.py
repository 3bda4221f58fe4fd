"""The controller under test, which is the one that the charms run on: who we are there, and what is there."""

from __future__ import annotations

import json
from collections.abc import Mapping

import jubilant

from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.targets.juju.ledger import model_name

_UNITS = 20
"""More than these tests ever add."""


class Target:
    """The controller of a model."""

    def __init__(self, juju: jubilant.Juju) -> None:
        assert juju.model is not None
        self._juju = juju
        named = juju.model.rpartition(":")[0]
        self._controller = (
            named or json.loads(juju.cli("whoami", "--format", "json", include_model=False))["controller"]
        )

    def login(self) -> Mapping[str, str]:
        """What the charms' secret has: our own user, as it is in the client's store."""
        shown = json.loads(
            self._juju.cli(
                "show-controller",
                self._controller,
                "--show-password",
                "--format",
                "json",
                include_model=False,
            )
        )
        account = shown[self._controller]["account"]
        return {"user": account["user"], "password": account["password"]}

    def left_of(self, run: str) -> set[str]:
        """The models that units' parts of a run made and that are there, also those that are being removed."""
        listed = self._juju.cli(
            "models", "--all", "-c", self._controller, "--format", "json", include_model=False
        )
        made = {model_name(name_prefix(f"{run}.{number}")) for number in range(_UNITS)}
        return made & {model["short-name"] for model in json.loads(listed)["models"]}
