#!/usr/bin/env python3
"""The load-claimer charm: claims a growing number of leases on a control plane until it tips."""

from __future__ import annotations

# Before ops, because it decides whether ops traces.
import tippingpoint_charm.tracing  # isort: skip  # noqa: F401  # pyright: ignore[reportUnusedImport]
import ops
from tippingpoint_charm.actions import answers
from tippingpoint_charm.generator import GeneratorCharm
from tippingpoint_charm.parameters import Parameters
from tippingpoint_charm.results import Results, verbatim
from tippingpoint_charm.settings import Settings, targets_of

from tippingpoint.conduct.director import ask_storm
from tippingpoint.util.process import leave_no_core


class ClaimSettings(Settings):
    """The options, with the targets that have leases, or are loaded with their users' own traffic."""

    targets = targets_of("claim", "store", "operate", default="juju")


class LoadClaimerCharm(GeneratorCharm):
    """A generator whose plans hold leases, or load a target with its users' own traffic."""

    settings = ClaimSettings
    workloads = ("claim", "store", "operate")
    port = 9477

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        framework.observe(self.on.storm_action, self._on_storm)

    @answers
    def _on_storm(self, event: ops.ActionEvent) -> Results:
        Parameters.read(event.params)
        run = self.exchange.change_run("storm", ask_storm)
        return {"run": run.id, "follow": verbatim(f"juju run {self.app.name}/leader status")}


if __name__ == "__main__":
    leave_no_core()  # hooks hold secrets
    ops.main(LoadClaimerCharm)
