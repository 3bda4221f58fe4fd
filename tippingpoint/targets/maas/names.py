"""The names of what a run makes in a MAAS. All of them follow from the run, so that they are found after any end."""

from __future__ import annotations

import hashlib
import re

from tippingpoint.workloads.spawn.target import Item


def pool_name(prefix: str, group: int) -> str:
    """Return the name of the resource pool that has a group's machines."""
    return f"{prefix}-{group:03d}"


def group_of(prefix: str, name: object) -> int | None:
    """Return the group whose pool has this name; None if it is not one of the run's."""
    found = re.fullmatch(rf"{re.escape(prefix)}-([0-9]{{3,}})", name) if isinstance(name, str) else None
    return int(found[1]) if found and pool_name(prefix, int(found[1])) == name else None


def tag_name(prefix: str) -> str:
    """Return the name of the tag that a run puts on its machines."""
    return f"{prefix}-tag"


def machine_name(prefix: str, item: Item) -> str:
    """Return the hostname of a machine."""
    return f"{pool_name(prefix, item.group)}-{item.number:04d}"


def item_of(prefix: str, name: object) -> Item | None:
    """Return the machine (group and number) with this hostname; None if it is not one of the run's."""
    if not isinstance(name, str) or not name.startswith(prefix):
        return None
    found = re.fullmatch(r"-([0-9]{3,})-([0-9]{4,})", name[len(prefix) :])
    item = Item(int(found[1]), int(found[2])) if found else None
    return item if item is not None and machine_name(prefix, item) == name else None


def mark_of(run: str) -> str:
    """Return the description that the run's machines and pools carry."""
    return f"tippingpoint {run}"


def mac_of(run: str, item: Item, interface: int) -> str:
    """Return the MAC address of one of a machine's interfaces, locally administered (IEEE 802, bit 2 of the first
    byte).

    It is the same whenever the machine is made again. Of 10,000 addresses two are the same once in a million runs.
    """
    made = hashlib.sha256(f"{run} {item.group} {item.number} {interface}".encode()).digest()
    return ":".join(f"{byte:02x}" for byte in ((made[0] & 0xFC) | 0x02, *made[1:6]))
