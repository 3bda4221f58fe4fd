"""What a run makes in an etcd, and the names of it, which follow from the run's id."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, Self

from tippingpoint.errors import UserError
from tippingpoint.rundir.ledger import Entry
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.targets.etcd.plan import EtcdTarget

RUN_LEASE_IDS = 2**40
"""Each run has a block of so many v3 lease ids, one of 2**22 by its id, which begins at a multiple of it."""
WORKER_LEASE_IDS = 2**31
"""How many of them a worker has for itself."""
_BLOCKS = 2**22


def key_prefix(run_id: str) -> str:
    """Where all keys of a run are."""
    return f"/tippingpoint/{run_id}/"


def first_lease_id(run_id: str) -> int:
    """Where a run's block of v3 lease ids begins."""
    block = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:8], "big") % _BLOCKS
    return (1 + block) * RUN_LEASE_IDS


class EtcdEntry(Entry, frozen=True):
    """Everything a run makes in an etcd: keys below a prefix, and leases with ids from a range."""

    kind: Literal["etcd"] = "etcd"
    prefix: str
    first_lease_id: int
    lease_ids: int
    target: EtcdTarget

    @property
    def described(self) -> str:
        return f"the keys below {self.prefix}"

    @property
    def made_by_workers(self) -> bool:
        return True

    def follows_from(self, run_id: str) -> bool:
        """Whether the lease ids are those of this run. Runs of old had a block at random."""
        return self.first_lease_id == first_lease_id(run_id)

    def own(self, directory: Path, manifest: Manifest) -> Self:
        run_id = manifest.id
        if self.prefix != key_prefix(run_id):
            raise UserError("ledger", self.prefix, f"what this run made, below {key_prefix(run_id)}")
        if self.follows_from(run_id):
            fits = 0 < self.lease_ids <= RUN_LEASE_IDS
        else:
            block, rest = divmod(self.first_lease_id, RUN_LEASE_IDS)
            whole = self.lease_ids % WORKER_LEASE_IDS == 0 and 0 < self.lease_ids < RUN_LEASE_IDS
            fits = 0 < block <= _BLOCKS and not rest and whole
        if not fits:
            ids = f"{self.lease_ids} lease ids from {self.first_lease_id}"
            raise UserError("ledger", ids, f"this run's, from {first_lease_id(run_id)}")
        return self


ENTRY = EtcdEntry
