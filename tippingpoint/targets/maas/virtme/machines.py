"""Machines that a run makes with libvirt, and registers in MAAS with their MAC addresses and virsh power."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from tippingpoint.errors import TargetError
from tippingpoint.targets.maas.client import MaasClient
from tippingpoint.targets.maas.errors import MaasError
from tippingpoint.targets.maas.made import Virtme
from tippingpoint.targets.maas.maker import Maker
from tippingpoint.targets.maas.names import mac_of, machine_name, mark_of
from tippingpoint.targets.maas.registered import register
from tippingpoint.targets.maas.virtme.definitions import (
    Card,
    Link,
    disk_name,
    machine_xml,
    pool_path,
    uuid_of,
    volume_xml,
)
from tippingpoint.targets.maas.virtme.keys import take_back_key
from tippingpoint.targets.maas.virtme.link import PLACE, Libvirt
from tippingpoint.targets.maas.workspace import MaasWorkspace
from tippingpoint.workloads.spawn.target import Item


class VirtmeMachines(Maker):
    """Makes machines on the plan's server. `power` are the power parameters that are secrets.

    All names have the run's prefix: machines have their names in MAAS, disks the names of their machines, and the
    storage pool the prefix itself.
    """

    def __init__(
        self, made: Virtme, workspace: MaasWorkspace, client: MaasClient, power: Mapping[str, str]
    ) -> None:
        self._made = made
        self._workspace = workspace
        self._client = client
        self._power = power
        self._libvirt = Libvirt(made.libvirt)
        self._links: dict[str, Link] = {}
        self._asking = asyncio.Lock()
        self._pool = workspace.prefix
        self._mark = mark_of(workspace.run)
        self._uuid = uuid_of(self._mark, self._pool)

    async def open(self) -> None:
        """Check that libvirt answers; TargetError if it does not, UserError if this machine has no libvirt binding."""
        await self._libvirt.reach()

    async def make(self, item: Item) -> Any:
        """Make a machine, which is off, and register it in MAAS. Parts of it that an earlier call made are reused."""
        wanted = self._workspace.target.machine(item.number)
        name = machine_name(self._workspace.prefix, item)
        links = await self._linked(wanted.networks)
        cards = [
            Card(mac_of(self._workspace.run, item, number), links[network], network)
            for number, network in enumerate(wanted.networks)
        ]
        disks = [disk_name(name, number) for number in range(len(wanted.disks))]
        paths = [f"{pool_path(self._pool)}/{disk}" for disk in disks]
        await self._libvirt.ask(
            "make",
            pool=self._pool,
            uuid=self._uuid,
            volumes=[volume_xml(disk, size) for disk, size in zip(disks, wanted.disks, strict=True)],
            domain=name,
            mark=self._mark,
            xml=machine_xml(
                name, self._mark, self._workspace.domain, wanted.cpu, wanted.memory, cards, paths
            ),
        )
        parameters = {"power_address": self._made.power_address, "power_id": name, **self._power}
        return await register(self._client, self._workspace, item, "virsh", parameters)

    async def unmake(self, item: Item) -> None:
        """Stop a machine that MAAS has deleted, and remove it with its disks."""
        await self._unmake(machine_name(self._workspace.prefix, item))

    async def clear(self) -> int:
        """Remove the run's machines, their disks, the storage pool, and MAAS's access to libvirt; returns their number.

        TargetError if libvirt does not permit that, or somebody else's file is in the pool.
        """
        try:
            names = await self._libvirt.ask("domains", prefix=f"{self._workspace.prefix}-", mark=self._mark)
            for name in names:
                await self._unmake(name)
            pools = await self._libvirt.ask(
                "remove_pool", name=self._pool, uuid=self._uuid, volumes=f"{self._workspace.prefix}-"
            )
        except MaasError as problem:
            raise TargetError(PLACE, str(problem), "a libvirt that permits the removal") from None
        return len(names) + pools + take_back_key(self._made, self._mark)

    async def close(self) -> None:
        """End the access to libvirt."""
        await self._libvirt.close()

    async def _unmake(self, name: str) -> bool:
        return await self._libvirt.ask(
            "unmake", pool=self._pool, uuid=self._uuid, domain=name, mark=self._mark, volumes=f"{name}-"
        )

    async def _linked(self, names: list[str]) -> dict[str, Link]:
        """Return the kind of each network on the server; MaasError if one does not exist there."""
        async with self._asking:
            unknown = [name for name in names if name not in self._links]
            if unknown:
                found: dict[str, Any] = await self._libvirt.ask("networks", names=unknown)
                self._links |= {name: link for name, link in found.items() if link}
        for name in names:
            if name not in self._links:
                raise MaasError(f"{name}: no network of libvirt's, and no bridge of the server", "setting")
        return self._links
