"""The interfaces and disks of a simulated machine, as a region lists them.

Their fields are those of src/maasserver/api/interfaces.py, vlans.py and blockdevices.py of MAAS 3.3.11. What it takes a
client to read a list of machines depends on how long each is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

API = "/MAAS/api/2.0"
_MOST = 16
"""Interfaces or disks that a machine has ids for."""


def interfaces(number: int, system_id: str, macs: Sequence[str], rack: str) -> list[dict[str, Any]]:
    """Return a machine's interfaces, one for each MAC address. `number` is the machine's, `rack` serves their VLAN."""
    found: list[dict[str, Any]] = []
    for index, mac in enumerate(macs):
        key = number * _MOST + index
        found.append(
            {
                "id": key,
                "name": f"eth{index}",
                "type": "physical",
                "mac_address": mac,
                "enabled": True,
                "link_connected": True,
                "vlan": _vlan(rack),
                "links": [],
                "discovered": [],
                "parents": [],
                "children": [],
                "params": "",
                "tags": [],
                "effective_mtu": 1500,
                "vendor": None,
                "product": None,
                "firmware_version": None,
                "interface_speed": 0,
                "link_speed": 0,
                "numa_node": 0,
                "sriov_max_vf": 0,
                "system_id": system_id,
                "resource_uri": f"{API}/nodes/{system_id}/interfaces/{key}/",
            }
        )
    return found


def disks(number: int, system_id: str, sizes_gb: Sequence[float]) -> list[dict[str, Any]]:
    """Return a machine's disks."""
    found: list[dict[str, Any]] = []
    for index, size_gb in enumerate(sizes_gb):
        key, name, size = number * _MOST + index, f"sd{chr(ord('a') + index)}", int(size_gb * 1000**3)
        found.append(
            {
                "id": key,
                "name": name,
                "uuid": None,
                "type": "physical",
                "path": f"/dev/disk/by-dname/{name}",
                "model": "Simulated",
                "serial": f"{key:08d}",
                "id_path": f"/dev/disk/by-id/simulated-{key:08d}",
                "size": size,
                "block_size": 512,
                "available_size": size,
                "used_size": 0,
                "used_for": "Unused",
                "filesystem": None,
                "partition_table_type": None,
                "partitions": [],
                "firmware_version": None,
                "storage_pool": None,
                "numa_node": 0,
                "tags": ["ssd"],
                "system_id": system_id,
                "resource_uri": f"{API}/nodes/{system_id}/blockdevices/{key}/",
            }
        )
    return found


def _vlan(rack: str) -> dict[str, Any]:
    """Return the VLAN of all interfaces, whose DHCP a rack controller serves."""
    return {
        "id": 5001,
        "name": "untagged",
        "vid": 0,
        "fabric": "fabric-0",
        "fabric_id": 0,
        "mtu": 1500,
        "primary_rack": rack,
        "secondary_rack": None,
        "dhcp_on": True,
        "external_dhcp": None,
        "relay_vlan": None,
        "space": "undefined",
        "resource_uri": f"{API}/vlans/5001/",
    }
