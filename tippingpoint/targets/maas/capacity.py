"""Checks before a stage whether the VM hosts of a MAAS have room for its machines, by MAAS's own report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tippingpoint.errors import TargetError, UserError
from tippingpoint.targets.maas.access import access
from tippingpoint.targets.maas.client import MaasClient, mapping
from tippingpoint.targets.maas.composed import disk_gb, hosts_of, vm_hosts
from tippingpoint.targets.maas.errors import MaasError
from tippingpoint.targets.maas.made import Composed
from tippingpoint.targets.maas.plan import MaasTarget, Machines
from tippingpoint.util.text import show_count


@dataclass
class Room:
    """What is free on a VM host."""

    cores: float
    memory_mib: float
    storage: float
    """Bytes."""

    def take(self, machine: Machines) -> str:
        """Take a machine's part; returns which resource is insufficient for it, or nothing."""
        storage = sum(disk_gb(size) for size in machine.disks) * 10**9
        wanted = {"cores": machine.cpu, "memory_mib": machine.memory >> 20, "storage": storage}
        for what, amount in wanted.items():
            if amount > getattr(self, what):
                return what.removesuffix("_mib")
        for what, amount in wanted.items():
            setattr(self, what, getattr(self, what) - amount)
        return ""


async def check_room(target: MaasTarget, made: Composed, asked: Sequence[Machines]) -> None:
    """Check that these machines fit the plan's VM hosts; UserError says how many do.

    TargetError if MAAS does not answer.
    """
    known = access(target)
    client = MaasClient(known)
    try:
        hosts = hosts_of(made, await vm_hosts(client))
    except MaasError as problem:
        where = urlsplit(known.url).netloc
        raise TargetError(where, str(problem), "a MAAS that reports its VM hosts") from None
    finally:
        await client.close()
    fits, short = fitting(map(room_of, hosts), asked)
    if fits < len(asked):
        raise UserError(
            "instances",
            show_count(len(asked), "more machine"),
            f"at most {fits:,} more, by {short} of VM hosts; --force skips this check",
        )


def fitting(hosts: Iterable[Room], machines: Sequence[Machines]) -> tuple[int, str]:
    """Return how many of these machines fit, in order, on hosts in turn; and which resource the next one lacks."""
    rooms, short = [*hosts], ""
    for number, machine in enumerate(machines):
        for offset in range(len(rooms)):
            short = rooms[(number + offset) % len(rooms)].take(machine)
            if not short:
                break
        else:
            return number, short
    return len(machines), ""


def room_of(host: Mapping[str, Any]) -> Room:
    """Return what is free on a host of MAAS's list. Each host may overcommit cores and memory, by ratios of its own."""
    total, used = mapping(host.get("total")), mapping(host.get("used"))

    def free(what: str, ratio: float = 1.0) -> float:
        return float(total.get(what) or 0) * ratio - float(used.get(what) or 0)

    return Room(
        free("cores", float(host.get("cpu_over_commit_ratio") or 1)),
        free("memory", float(host.get("memory_over_commit_ratio") or 1)),
        free("local_storage"),
    )
