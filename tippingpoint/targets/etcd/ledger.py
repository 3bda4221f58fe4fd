"""The ledger entry of a run in etcd. All names follow from the run's id."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, Self

from tippingpoint.errors import UserError
from tippingpoint.rundir.ledger import Entry
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.targets.etcd.plan import EtcdTarget

RUN_LEASE_IDS = 2**40
"""v3 lease ids in a run's block. There are 2**22 blocks, aligned to their size; the run's id chooses one."""
WORKER_LEASE_IDS = 2**31
"""v3 lease ids that each worker has for itself."""
_BLOCKS = 2**22


def key_prefix(run_id: str) -> str:
    """Return the prefix of all keys of a run."""
    return f"/tippingpoint/{run_id}/"


def first_lease_id(run_id: str) -> int:
    """Return the first v3 lease id of a run's block."""
    block = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:8], "big") % _BLOCKS
    return (1 + block) * RUN_LEASE_IDS


class EtcdEntry(Entry, frozen=True):
    """Everything that a run creates in etcd: keys below a prefix, and leases with ids from a range."""

    kind: Literal["etcd"] = "etcd"
    prefix: str
    """Where all keys of the run are."""
    first_lease_id: int
    """The first of the run's lease ids."""
    lease_ids: int
    """How many lease ids the run has."""
    target: EtcdTarget

    @property
    def described(self) -> str:
        return f"the keys below {self.prefix}"

    @property
    def made_by_workers(self) -> bool:
        return True

    def own(self, directory: Path, manifest: Manifest) -> Self:
        run_id = manifest.id
        if self.prefix != key_prefix(run_id):
            raise UserError("ledger", self.prefix, f"this run's keys, below {key_prefix(run_id)}")
        if self.first_lease_id != first_lease_id(run_id) or not 0 < self.lease_ids <= RUN_LEASE_IDS:
            ids = f"{self.lease_ids} lease ids from {self.first_lease_id}"
            raise UserError("ledger", ids, f"this run's, from {first_lease_id(run_id)}")
        return self


ENTRY = EtcdEntry
