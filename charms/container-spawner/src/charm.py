#!/usr/bin/env python3
"""The container-spawner charm: creates containers, servers or units of a Juju model until a control plane tips."""

from __future__ import annotations

# Before ops, because it decides whether ops traces.
import tippingpoint_charm.tracing  # isort: skip  # noqa: F401  # pyright: ignore[reportUnusedImport]
import ops
from tippingpoint_charm.access import find_access
from tippingpoint_charm.actions import PATIENCE, answers, goes_on, read_plan
from tippingpoint_charm.agent import Refused
from tippingpoint_charm.generator import GeneratorCharm
from tippingpoint_charm.parameters import EvictMember, Parameters, Start
from tippingpoint_charm.preparing import Preparation
from tippingpoint_charm.results import Results
from tippingpoint_charm.settings import Settings, read_settings, targets_of

from tippingpoint.util.process import leave_no_core


class SpawnSettings(Settings):
    """The options, with the targets that can create things."""

    targets = targets_of("spawn", "grow", default="lxd")


class ContainerSpawnerCharm(GeneratorCharm):
    """A generator whose plans create things."""

    settings = SpawnSettings
    workloads = ("spawn", "grow")
    port = 9478

    def __init__(self, framework: ops.Framework) -> None:
        super().__init__(framework)
        framework.observe(self.on.repair_action, self._on_repair)
        framework.observe(self.on.prepare_action, self._on_prepare)
        framework.observe(self.on.probe_action, self._on_probe)
        framework.observe(self.on.evict_member_action, self._on_evict_member)

    @answers
    def _on_repair(self, event: ops.ActionEvent) -> Results:
        Parameters.read(event.params)
        return {"result": goes_on(self.agent.have_done("repair", within=PATIENCE))}

    @answers
    def _on_prepare(self, event: ops.ActionEvent) -> Results:
        plan = read_plan(Start.read(event.params), self.workloads)
        self.catch_up()
        if running := self.agent.ask("ping").get("running"):
            raise Refused(f"run {running} is in progress: prepare the machine when it is over")
        return {"result": Preparation(self.machine, plan.target.needs).prepare(self.service, event.log)}

    @answers
    def _on_probe(self, event: ops.ActionEvent) -> Results:
        Parameters.read(event.params)
        access = find_access(self, read_settings(self, self.settings).target)
        if access.missing:
            raise Refused(access.missing)
        text = self.agent.have_done("probe", within=PATIENCE, target=self.exchange.write_access(access))
        return {"result": goes_on(text)}

    @answers
    def _on_evict_member(self, event: ops.ActionEvent) -> Results:
        asked = EvictMember.read(event.params)
        return {"result": goes_on(self.agent.have_done("evict-member", within=PATIENCE, member=asked.member))}


if __name__ == "__main__":
    leave_no_core()  # hooks hold secrets
    ops.main(ContainerSpawnerCharm)
