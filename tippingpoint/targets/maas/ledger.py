"""The ledger entry of a run in a MAAS. All names follow from the run's id."""

from __future__ import annotations

from typing import Literal

from tippingpoint.rundir.ownership import LastingEntry
from tippingpoint.targets.maas.made import Virtme
from tippingpoint.targets.maas.plan import MaasTarget


class MaasEntry(LastingEntry, frozen=True):
    """Everything that a run creates in a MAAS: resource pools PREFIX-..., machines in them, and the tag PREFIX-tag.

    Where the run makes the machines with libvirt, also these there, their disks in the storage pool PREFIX, and a line
    of authorized_keys.
    """

    kind: Literal["maas"] = "maas"
    target: MaasTarget

    @property
    def described(self) -> str:
        of_libvirt = (
            ", and libvirt's storage pool of their disks" if isinstance(self.target.made, Virtme) else ""
        )
        return f"the machines {self.prefix}-..., their resource pools and their tag{of_libvirt}"


ENTRY = MaasEntry
