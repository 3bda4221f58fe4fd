"""One simulated machine, and its JSON as a region lists it: the 77 keys of MAAS 3.3.

They are DISPLAYED_MACHINE_FIELDS of src/maasserver/api/machines.py and resource_uri, without two that a region leaves
out while they have no value: next_sync, and constraints_by_type, which only the answer to `allocate` has. There is no
error_description before MAAS 3.7: why a machine failed is in status_message.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import orjson

from lab.maas import parts
from lab.maas.parts import API

NEW, COMMISSIONING, FAILED_COMMISSIONING, READY, DEPLOYED, BROKEN = 0, 1, 2, 4, 6, 8
DEPLOYING, ALLOCATED, FAILED_DEPLOYMENT, RELEASING, FAILED_RELEASING = 9, 10, 11, 12, 13
STATUSES = {
    NEW: "New",
    COMMISSIONING: "Commissioning",
    FAILED_COMMISSIONING: "Failed commissioning",
    READY: "Ready",
    DEPLOYED: "Deployed",
    BROKEN: "Broken",
    DEPLOYING: "Deploying",
    ALLOCATED: "Allocated",
    FAILED_DEPLOYMENT: "Failed deployment",
    RELEASING: "Releasing",
    FAILED_RELEASING: "Releasing failed",
}
"""The statuses that the lab's machines have, with MAAS's numbers and names."""
SHORT_NAMES = {
    "new": NEW,
    "commissioning": COMMISSIONING,
    "failed_commissioning": FAILED_COMMISSIONING,
    "missing": 3,
    "ready": READY,
    "reserved": 5,
    "deployed": DEPLOYED,
    "retired": 7,
    "broken": BROKEN,
    "deploying": DEPLOYING,
    "allocated": ALLOCATED,
    "failed_deployment": FAILED_DEPLOYMENT,
    "releasing": RELEASING,
    "failed_releasing": FAILED_RELEASING,
    "disk_erasing": 14,
    "failed_disk_erasing": 15,
    "rescue_mode": 16,
    "entering_rescue_mode": 17,
    "failed_entering_rescue_mode": 18,
    "exiting_rescue_mode": 19,
    "failed_exiting_rescue_mode": 20,
    "testing": 21,
    "failed_testing": 22,
}
"""The statuses by the names that a list is filtered with (NODE_STATUS_SHORT_LABEL_CHOICES of maasserver/enum.py)."""
FAILURES = {
    COMMISSIONING: FAILED_COMMISSIONING,
    DEPLOYING: FAILED_DEPLOYMENT,
    RELEASING: FAILED_RELEASING,
}
"""What a machine's status becomes when it fails or takes too long."""
_RACK = "rack-1"

_NONE = [
    "min_hwe_kernel",
    "hwe_kernel",
    "swap_size",
    "address_ttl",
    "boot_disk",
    "parent",
    "current_commissioning_result_id",
    "current_testing_result_id",
    "current_installation_result_id",
    "virtualmachine_id",
    "last_sync",
    "sync_interval",
]
_LISTS = ["cache_sets", "bcaches", "volume_groups", "raids", "special_filesystems"]
_TESTS = [
    "commissioning",
    "testing",
    "cpu_test",
    "memory_test",
    "network_test",
    "storage_test",
    "other_test",
    "interface_test",
]
UNTESTED: dict[str, Any] = {
    **{f"{name}_status": -1 for name in _TESTS},
    **{f"{name}_status_name": "Unknown" for name in _TESTS},
}
"""The fields of the results of tests, which there are none of."""
_ALWAYS: dict[str, Any] = {
    **dict.fromkeys(_NONE),
    **{name: [] for name in _LISTS},
    **UNTESTED,
    "bios_boot_method": None,
    "cpu_speed": 0,
    "disable_ipv4": False,
    "node_type": 0,
    "node_type_name": "Machine",
    "default_gateways": {
        "ipv4": {"gateway_ip": None, "link_id": None},
        "ipv6": {"gateway_ip": None, "link_id": None},
    },
    "hardware_info": dict.fromkeys(
        (
            *(f"system_{name}" for name in ("vendor", "product", "family", "version", "sku", "serial")),
            "cpu_model",
            *(f"mainboard_{name}" for name in ("vendor", "product", "serial", "version")),
            *(f"mainboard_firmware_{name}" for name in ("vendor", "date", "version")),
            *(f"chassis_{name}" for name in ("vendor", "type", "serial", "version")),
        ),
        "Unknown",
    ),
    "enable_hw_sync": False,
    "ephemeral_deploy": False,
}


@dataclass(eq=False)
class Machine:
    """A machine of the region's database. After a change of it, `changed` must be called."""

    number: int
    system_id: str
    hostname: str
    architecture: str
    macs: list[str]
    power_type: str
    power_parameters: dict[str, Any]
    domain: str = "maas"
    zone: str = "default"
    pool: str = "default"
    description: str = ""
    status: int = NEW
    owner: str = ""
    agent_name: str = ""
    power_state: str = "off"
    cores: int = 0
    memory_mib: int = 0
    disks_gb: list[float] = field(default_factory=list[float])
    tags: set[str] = field(default_factory=set[str])
    owner_data: dict[str, str] = field(default_factory=dict[str, str])
    action: str | None = None
    message: str | None = None
    """The action, and the text, of its latest event of the level INFO or above (status_event in models/node.py)."""
    commissioned: bool = False
    """Whether commissioning ever ended well. A machine that was not is New once it is released."""
    host: int | None = None
    """The id of the VM host that it was composed on."""
    locked: bool = False
    lost: bool = False
    """Whether its latest boot is one that never comes."""
    series: str = ""
    timer: asyncio.TimerHandle | asyncio.Task[None] | None = None
    """What happens next by itself."""
    _json: bytes | None = None

    @property
    def status_name(self) -> str:
        """The status as people read it."""
        return STATUSES[self.status]

    @property
    def uri(self) -> str:
        """The path of its resource."""
        return f"{API}/machines/{self.system_id}/"

    def changed(self) -> None:
        """Forget the JSON that was made before a change."""
        self._json = None

    def json(self) -> bytes:
        """Return the machine as the region answers it. It is made once after each change."""
        if self._json is None:
            self._json = orjson.dumps(self.described())
        return self._json

    def described(self) -> dict[str, Any]:
        """Return all fields of the machine."""
        interfaces = self.interfaces()
        disks = parts.disks(self.number, self.system_id, self.disks_gb)
        return _ALWAYS | {
            "system_id": self.system_id,
            "hostname": self.hostname,
            "description": self.description,
            "hardware_uuid": f"00000000-0000-4000-8000-{self.number:012x}",
            "domain": {
                "id": 0,
                "name": self.domain,
                "ttl": None,
                "authoritative": True,
                "is_default": self.domain == "maas",
                "resource_record_count": 0,
                "resource_uri": f"{API}/domains/0/",
            },
            "fqdn": f"{self.hostname}.{self.domain}",
            "owner": self.owner,
            "owner_data": self.owner_data,
            "workload_annotations": self.owner_data,
            "locked": self.locked,
            "boot_interface": interfaces[0] if interfaces else None,
            "architecture": self.architecture,
            "cpu_count": self.cores,
            "numanode_set": [
                {"index": 0, "cores": list(range(self.cores)), "memory": self.memory_mib, "hugepages_set": []}
            ],
            "memory": self.memory_mib,
            "storage": sum(self.disks_gb) * 1000,
            "status": self.status,
            "status_name": self.status_name,
            "status_action": self.action,
            "status_message": self.message,
            "osystem": "ubuntu" if self.series else "",
            "distro_series": self.series,
            "netboot": self.status != DEPLOYED,
            "power_type": self.power_type,
            "power_state": "unknown" if self.power_type == "manual" else self.power_state,
            "tag_names": sorted(self.tags),
            "ip_addresses": [],
            "interface_set": interfaces,
            "zone": named("zones", self.zone, self.zone, 1),
            "pool": named("resourcepool", self.pool, 0, 0),
            "blockdevice_set": disks,
            "physicalblockdevice_set": disks,
            "virtualblockdevice_set": [],
            "pod": None
            if self.host is None
            else {"id": self.host, "name": "", "resource_uri": f"{API}/pods/{self.host}/"},
            "resource_uri": self.uri,
        }

    def interfaces(self) -> list[dict[str, Any]]:
        """Return its interfaces, one for each MAC address."""
        return parts.interfaces(self.number, self.system_id, self.macs, _RACK)


def named(resources: str, name: str, key: str | int, number: int) -> dict[str, Any]:
    """Return a zone or pool as it is within a machine or VM host."""
    return {"id": number, "name": name, "description": "", "resource_uri": f"{API}/{resources}/{key}/"}
