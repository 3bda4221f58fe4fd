"""Machines that MAAS composes on its VM hosts, by virsh or LXD."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any, cast

from tippingpoint.errors import UserError
from tippingpoint.targets.maas.client import MaasClient, mapping
from tippingpoint.targets.maas.errors import MaasError, MaasExists, MaasGone
from tippingpoint.targets.maas.made import Composed
from tippingpoint.targets.maas.maker import Maker
from tippingpoint.targets.maas.names import item_of, machine_name, mark_of, pool_name
from tippingpoint.targets.maas.workspace import MaasWorkspace
from tippingpoint.workloads.spawn.target import Item

_GB = 10**9
"""Bytes in the unit that MAAS uses for the sizes of disks."""
_EXISTS = "already exists"


class ComposedMachines(Maker):
    """Composes machines on the VM hosts of the plan in turn. MAAS commissions each as soon as it is composed.

    A machine that one host refused is tried on the next.
    """

    def __init__(self, made: Composed, workspace: MaasWorkspace, client: MaasClient) -> None:
        self._made = made
        self._workspace = workspace
        self._client = client
        self._hosts: list[int] = []
        self._asking = asyncio.Lock()
        self._refused: Counter[Item] = Counter()
        """How often a machine was refused."""

    async def make(self, item: Item) -> Any:
        host = await self._host(item)
        wanted = self._workspace.target.machine(item.number)
        name = machine_name(self._workspace.prefix, item)
        disks = ",".join(f"disk{number}:{disk_gb(size)}" for number, size in enumerate(wanted.disks, start=1))
        fields = [
            ("hostname", name),
            ("cores", str(wanted.cpu)),
            ("memory", str(wanted.memory >> 20)),
            *((("storage", disks),) if disks else ()),
        ]
        try:
            composed = mapping(await self._client.send("POST", f"vm-hosts/{host}/", fields, op="compose"))
        except MaasError as problem:
            if _EXISTS in str(problem):
                await self._mark(item, await self._id_of(name))
                raise MaasExists(str(problem), problem.code, name) from None
            self._refused[item] += 1
            raise
        return await self._mark(item, str(composed.get("system_id")))

    async def clear(self) -> int:
        """Delete what was composed and not marked yet, by its name: its worker died in between."""
        removed = 0
        for host in await vm_hosts(self._client):
            for identity in await self._client.each(
                "machines/", self._unmarked, [("pod", str(host["name"]))]
            ):
                with suppress(MaasGone):
                    await self._client.send("DELETE", f"machines/{identity}/")
                    removed += 1
        return removed

    def _unmarked(self, machine: dict[str, Any]) -> str | None:
        """Return the id of a machine that has one of the run's names, and nobody else's description."""
        ours = item_of(self._workspace.prefix, machine.get("hostname")) is not None
        marks = ("", None, mark_of(self._workspace.run))
        return str(machine.get("system_id")) if ours and machine.get("description") in marks else None

    async def _host(self, item: Item) -> int:
        """Return the id of the VM host whose turn it is."""
        async with self._asking:
            if not self._hosts:
                try:
                    hosts = hosts_of(self._made, await vm_hosts(self._client))
                except UserError as problem:
                    raise MaasError(str(problem), "setting") from None
                self._hosts = [host["id"] for host in hosts]
        return self._hosts[(item.number + self._refused[item]) % len(self._hosts)]

    async def _mark(self, item: Item, identity: str) -> Any:
        """Put a machine into its group's pool, with the run's mark: MAAS accepts no mark when it composes one."""
        fields = [
            ("description", mark_of(self._workspace.run)),
            ("pool", pool_name(self._workspace.prefix, item.group)),
        ]
        return await self._client.send("PUT", f"machines/{identity}/", fields)

    async def _id_of(self, name: str) -> str:
        found = await self._client.get("machines/", [("hostname", name)])
        if not isinstance(found, list) or not found:
            raise MaasError("a machine that exists, and that no list shows", "busy")
        return str(mapping(cast("list[Any]", found)[0]).get("system_id"))


def disk_gb(size: int) -> int:
    """Return a disk's size as MAAS takes it, in whole GB; it is rounded up."""
    return -(-size // _GB)


async def vm_hosts(client: MaasClient) -> list[dict[str, Any]]:
    """Return the VM hosts of the region, by name."""
    hosts = await client.each("vm-hosts/", mapping)
    if not all(isinstance(host.get("id"), int) and isinstance(host.get("name"), str) for host in hosts):
        raise MaasError("an invalid list of VM hosts: one without `id` or `name`")
    return sorted(hosts, key=lambda host: str(host["name"]))


def hosts_of(made: Composed, known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the VM hosts that a plan means; UserError if there are none, or if one that it names does not exist."""
    by_name = {str(host["name"]): host for host in known}
    lacking = [name for name in made.hosts if name not in by_name]
    if lacking or not known:
        accepted = f"one of {', '.join(by_name)}" if known else "a MAAS with a VM host"
        raise UserError("target.made.hosts", lacking[0] if lacking else "none", accepted)
    return [by_name[name] for name in made.hosts] or known
