"""The machines of a run as MAAS's lists show them, and the meaning of their statuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from sys import intern
from typing import Any, cast

from tippingpoint.targets.maas.errors import MaasError, trouble_of
from tippingpoint.targets.maas.names import item_of, mark_of
from tippingpoint.workloads.spawn.target import Item


class Status(IntEnum):
    """The statuses of a machine (NODE_STATUS) that the suite acts on, as the API has had them since MAAS 2."""

    NEW = 0
    COMMISSIONING = 1
    FAILED_COMMISSIONING = 2
    MISSING = 3
    READY = 4
    DEPLOYED = 6
    BROKEN = 8
    DEPLOYING = 9
    ALLOCATED = 10
    FAILED_DEPLOYMENT = 11
    RELEASING = 12
    FAILED_RELEASING = 13
    DISK_ERASING = 14
    FAILED_DISK_ERASING = 15
    TESTING = 21
    FAILED_TESTING = 22


FAILED = frozenset(
    {
        Status.FAILED_COMMISSIONING,
        Status.MISSING,
        Status.BROKEN,
        Status.FAILED_DEPLOYMENT,
        Status.FAILED_RELEASING,
        Status.FAILED_DISK_ERASING,
        Status.FAILED_TESTING,
    }
)
"""Statuses that a machine does not leave by itself."""
COMMISSIONED = frozenset(
    {Status.READY, Status.ALLOCATED, Status.DEPLOYING, Status.DEPLOYED, Status.FAILED_DEPLOYMENT}
)
"""Statuses of a machine that was commissioned and can be deployed, perhaps after its release."""
OWNED = frozenset(
    {
        Status.ALLOCATED,
        Status.DEPLOYING,
        Status.DEPLOYED,
        Status.FAILED_DEPLOYMENT,
        Status.FAILED_RELEASING,
        Status.FAILED_DISK_ERASING,
    }
)
"""Statuses of a machine that has to be released before anybody can use it again."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of the run. Of a list's 77 fields, only these are kept."""

    id: str
    """Its `system_id`."""
    item: Item
    status: int
    """One of Status, or a status that is unknown to the suite, such as that of the rescue mode."""
    name: str
    """The name of its status, such as "Failed commissioning"."""
    said: str
    """What MAAS says about the status: its last event, or why the machine is broken."""
    power: str
    """What MAAS knows of its power: on, off, unknown, or error where its power controller failed."""

    @property
    def fault(self) -> MaasError | None:
        """Why it failed, in MAAS's words; None if it has not."""
        if self.status not in FAILED:
            return None
        message = f"{self.name}: {self.said}" if self.said else self.name
        return MaasError(message, trouble_of(self.said))


def machine_of(prefix: str, run: str, entry: object) -> Machine | None:
    """Return the machine of an entry of a list; None if it is not one of the run's, by its name and its mark.

    Raises MaasError for an entry that is not a machine.
    """
    if not isinstance(entry, dict):
        raise MaasError("an invalid list of machines")
    shown = cast("Mapping[str, Any]", entry)
    item = item_of(prefix, shown.get("hostname"))
    if item is None or shown.get("description") != mark_of(run):
        return None
    identity, status = shown.get("system_id"), shown.get("status")
    if not isinstance(identity, str) or not isinstance(status, int):
        raise MaasError("an invalid list of machines: one without `system_id` or `status`")
    name = str(shown.get("status_name") or f"status {status}")
    said = str(shown.get("error_description") or shown.get("status_message") or "")
    power = str(shown.get("power_state") or "unknown")
    return Machine(identity, item, status, intern(name), intern(said), intern(power))
