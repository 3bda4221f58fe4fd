"""A VM host (once called a pod), on which machines are composed while there is room.

What is refused reads as in MAAS 3.3.11: cores and memory by src/maasserver/forms/pods.py and check_over_commit_ratios
of models/bmc.py, disks by get_usable_pool of src/provisioningserver/drivers/pod/virsh.py, whose error no layer
translates, so that it is a 500; a host that cannot be reached by clusterrpc/pods.py and drivers/pod/__init__.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.maas.machine import Machine, named
from lab.maas.parts import API
from lab.maas.refusal import Refused, invalid

_SILENT = {
    "virsh": "Failed to login to virsh console.",
    "lxd": "Failed to connect to the LXD REST API.",
}
"""What the driver of each kind of host says of one that does not answer."""
_DISK = re.compile(r"(?:\w+:)?(\d+(?:\.\d+)?)(?:\([^)]*\))?")


@dataclass(eq=False)
class VmHost:
    """A host with its room. `state` is normal, full or unreachable, as a fault has it."""

    number: int
    name: str
    kind: str
    address: str
    zone: str
    pool: str
    secret: dict[str, str]
    cores: int = 64
    memory_mib: int = 262_144
    storage_gb: float = 4000.0
    tags: set[str] = field(default_factory=set[str])
    state: str = "normal"

    @property
    def total(self) -> tuple[float, ...]:
        """Its cores, memory (MiB) and disks (GB)."""
        return (self.cores, self.memory_mib, self.storage_gb)

    def check_room(self, composed: Sequence[Machine], cores: int, memory_mib: int, storage_gb: float) -> None:
        """Raise Refused if one more machine does not fit, or the host does not answer."""
        if self.state == "unreachable":
            raise Refused(
                503, f"Unable to compose machine because: Failed talking to pod: {_SILENT[self.kind]}"
            )
        for name, most, wanted in (("cores", self.cores, cores), ("memory", self.memory_mib, memory_mib)):
            if wanted > most:
                raise invalid(name, f"Ensure this value is less than or equal to {most}.")
        used_cores, used_mib, used_gb = self.used(composed)
        left = (self.cores - used_cores, self.memory_mib - used_mib, self.storage_gb - used_gb)
        free_cores, free_mib, free_gb = (0, 0, 0) if self.state == "full" else left
        said = "".join(
            f"{what} overcommit ratio is 1.0 and there are {free:g} available resources; {wanted} requested."
            for what, free, wanted in (("CPU", free_cores, cores), ("Memory", free_mib, memory_mib))
            if wanted > free
        )
        if said:
            raise Refused(503, f"Unable to compose KVM instance in '{self.name}'. {said}")
        if storage_gb > free_gb:
            raise Refused(500, "Not enough storage space on any storage pools: default")

    def described(self, composed: Sequence[Machine]) -> dict[str, Any]:
        """Return it as the API does, without secrets."""
        total = self.total
        used = total if self.state == "full" else self.used(composed)
        return {
            "id": self.number,
            "name": self.name,
            "tags": sorted(self.tags),
            "type": self.kind,
            "architectures": ["amd64/generic"],
            "capabilities": ["composable", "dynamic_local_storage", "over_commit", "storage_pools"],
            "total": _room(total),
            "used": _room(used),
            "available": _room(tuple(all - part for all, part in zip(total, used, strict=True))),
            "zone": named("zones", self.zone, self.zone, 1),
            "cpu_over_commit_ratio": 1.0,
            "memory_over_commit_ratio": 1.0,
            "storage_pools": [],
            "pool": named("resourcepool", self.pool, 0, 0),
            "host": {"system_id": None, "__incomplete__": True},
            "default_macvlan_mode": None,
            "version": "simulated",
            "resource_uri": f"{API}/vm-hosts/{self.number}/",
        }

    def used(self, composed: Sequence[Machine]) -> tuple[float, ...]:
        """Return what its machines have of its cores, memory (MiB) and disks (GB)."""
        return (
            sum(machine.cores for machine in composed),
            sum(machine.memory_mib for machine in composed),
            sum(sum(machine.disks_gb) for machine in composed),
        )


def _room(amounts: Sequence[float]) -> dict[str, float]:
    cores, memory_mib, storage_gb = amounts
    return {"cores": cores, "memory": memory_mib, "local_storage": int(storage_gb * 1000**3)}


def disks_in(text: str) -> list[float]:
    """Return the sizes in GB of a storage constraint, such as root:10(ssd),data:60."""
    parts = re.findall(r"[^,(]+(?:\([^)]*\))?", text)
    found = [_DISK.fullmatch(part.strip()) for part in parts]
    sizes = [float(match[1]) for match in found if match]
    if len(sizes) != len(parts):
        raise invalid("storage", f"Malformed storage constraint, {text!r}.")
    return sizes
