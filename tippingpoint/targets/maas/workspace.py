"""The workspace of a run in a MAAS. Light to import, because every worker imports it."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from tippingpoint.targets.maas.plan import MaasTarget


class MaasWorkspace(BaseModel):
    """Machines and resource pools whose names begin with a prefix."""

    run: str
    """The run whose mark they carry, in their description."""
    prefix: str
    target: MaasTarget
    """The target as the ledger has it."""
    domain: Literal["kvm", "qemu"] = "kvm"
    """How the server runs machines that the run makes with libvirt: by KVM, or emulated."""
