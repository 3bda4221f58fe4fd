"""Machines that exist in MAAS's database only: it knows their MAC addresses, and their power controllers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from tippingpoint.targets.maas.client import MaasClient
from tippingpoint.targets.maas.errors import MaasError, MaasExists
from tippingpoint.targets.maas.made import Registered, filled
from tippingpoint.targets.maas.maker import Maker
from tippingpoint.targets.maas.names import mac_of, machine_name, mark_of, pool_name
from tippingpoint.targets.maas.workspace import MaasWorkspace
from tippingpoint.workloads.spawn.target import Item

_ARCHITECTURE = "amd64/generic"


class RegisteredMachines(Maker):
    """Registers machines with the plan's power type and parameters. `power` are the parameters that are secrets."""

    def __init__(
        self, made: Registered, workspace: MaasWorkspace, client: MaasClient, power: Mapping[str, str]
    ) -> None:
        self._made = made
        self._workspace = workspace
        self._client = client
        self._power = power

    async def make(self, item: Item) -> Any:
        workspace = self._workspace
        known = {
            "name": machine_name(workspace.prefix, item),
            "mac": mac_of(workspace.run, item, 0),
            "number": str(item.number),
        }
        parameters = {name: filled(value, known) for name, value in self._made.power_parameters.items()}
        return await register(
            self._client, workspace, item, self._made.power_type, {**parameters, **self._power}
        )


async def register(
    client: MaasClient,
    workspace: MaasWorkspace,
    item: Item,
    power_type: str,
    power_parameters: Mapping[str, str],
) -> Any:
    """Register a machine of the run in MAAS, where it stays New; returns MAAS's answer about the machine.

    The machine has one interface for each of its networks. Raises MaasExists if MAAS knows it already, and MaasError if
    one of its MAC addresses is another machine's.
    """
    name = machine_name(workspace.prefix, item)
    networks = workspace.target.machine(item.number).networks
    fields = [
        ("hostname", name),
        ("description", mark_of(workspace.run)),
        ("pool", pool_name(workspace.prefix, item.group)),
        ("architecture", _ARCHITECTURE),
        ("power_type", power_type),
        ("commission", "false"),
        *(("mac_addresses", mac_of(workspace.run, item, nic)) for nic in range(len(networks))),
    ]
    if power_parameters:
        fields.append(("power_parameters", orjson.dumps({**power_parameters}).decode()))
    try:
        return await client.send("POST", "machines/", fields)
    except MaasExists as problem:
        if problem.name and problem.name != name:
            raise MaasError(str(problem), "setting", problem.code) from None
        raise
