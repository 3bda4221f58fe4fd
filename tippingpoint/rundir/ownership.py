"""What is a run's: all its names follow from its id, and its ledger is held against them, whoever wrote that."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from tippingpoint.errors import UserError
from tippingpoint.rundir.ledger import (
    KEY_PAIR,
    PASSWORD,
    Entry,
    EtcdEntry,
    JujuEntry,
    LxdEntry,
    OpenstackEntry,
    entries,
)
from tippingpoint.rundir.manifest import Manifest

RUN_LEASE_IDS = 2**40
"""Each run has a block of so many etcd v3 lease ids, one of 2**22 by its id, which begins at a multiple of it."""
WORKER_LEASE_IDS = 2**31
"""How many of them a worker has for itself."""
_BLOCKS = 2**22


def key_prefix(run_id: str) -> str:
    """Where all keys of a run are in an etcd."""
    return f"/tippingpoint/{run_id}/"


def first_lease_id(run_id: str) -> int:
    """Where a run's block of v3 lease ids begins."""
    block = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:8], "big") % _BLOCKS
    return (1 + block) * RUN_LEASE_IDS


def name_prefix(run_id: str) -> str:
    """What the names of all that a run makes in a Juju controller, an LXD or an OpenStack begin with."""
    return "tp" + hashlib.sha256(run_id.encode()).hexdigest()[:8]


def model_name(prefix: str) -> str:
    """The name of the model that a run makes for itself."""
    return f"tippingpoint-{prefix}"


def own_entries(directory: Path, manifest: Manifest) -> list[Entry]:
    """The ledger of a run; UserError for what that run cannot have made, which nobody is to remove on its word.

    Files of the run are looked for in the directory, wherever it was when they were written.
    """
    found: list[Entry] = []
    for entry in entries(directory):
        if entry.kind != manifest.target.kind:
            raise UserError(
                "ledger", f"target {entry.kind}", f"{manifest.target.kind}, as in the run's manifest"
            )
        if isinstance(entry, EtcdEntry):
            _check_etcd(entry, manifest.id)
        elif isinstance(entry, JujuEntry):
            _check_juju(entry, manifest.id)
        else:
            entry = _checked(entry, directory, manifest)
        if entry not in found:
            found.append(entry)
    return found


def follows_from_its_run(entry: EtcdEntry, run_id: str) -> bool:
    """Whether the lease ids of an entry are those of its run. Runs of old had a block at random."""
    return entry.first_lease_id == first_lease_id(run_id)


def _check_etcd(entry: EtcdEntry, run_id: str) -> None:
    if entry.prefix != key_prefix(run_id):
        raise UserError("ledger", entry.prefix, f"what this run made, below {key_prefix(run_id)}")
    if follows_from_its_run(entry, run_id):
        fits = 0 < entry.lease_ids <= RUN_LEASE_IDS
    else:
        block, rest = divmod(entry.first_lease_id, RUN_LEASE_IDS)
        whole = entry.lease_ids % WORKER_LEASE_IDS == 0 and 0 < entry.lease_ids < RUN_LEASE_IDS
        fits = 0 < block <= _BLOCKS and not rest and whole
    if not fits:
        ids = f"{entry.lease_ids} lease ids from {entry.first_lease_id}"
        raise UserError("ledger", ids, f"this run's, from {first_lease_id(run_id)}")


def _check_juju(entry: JujuEntry, run_id: str) -> None:
    prefix = name_prefix(run_id)
    if entry.prefix != prefix or (entry.made_model and entry.model != model_name(prefix)):
        raise UserError(
            "ledger", f"{entry.prefix} in {entry.model}", f"what this run made, named {prefix}..."
        )


def _checked(
    entry: LxdEntry | OpenstackEntry, directory: Path, manifest: Manifest
) -> LxdEntry | OpenstackEntry:
    """The entry, with its file where it is now."""
    # Before manifests named it, an agent went on with part RUN.0 as RUN.0.2.
    ours = entry.run in (manifest.id, manifest.things_of)
    if not ours and not re.fullmatch(re.escape(entry.run) + "[.][0-9]{1,9}", manifest.id):
        raise UserError(
            "ledger",
            entry.run,
            f"{manifest.id}; what another run made goes by `tippingpoint clean` of that run",
        )
    if entry.prefix != name_prefix(entry.run):
        raise UserError(
            "ledger", entry.prefix, f"what run {entry.run} made, named {name_prefix(entry.run)}..."
        )
    if isinstance(entry, LxdEntry) and not re.fullmatch("([0-9a-f]{64})?", entry.image):
        raise UserError("ledger", entry.image, "the fingerprint (SHA-256) of an image, or none")
    if entry.identity is None:
        return entry
    name = KEY_PAIR if isinstance(entry, LxdEntry) else PASSWORD
    home = directory if entry.run == manifest.id else entry.identity.parent
    identity = home.absolute() / name
    if entry.identity.name != name or identity.is_symlink() or ".." in entry.identity.parts:
        raise UserError("ledger", str(entry.identity), f"{identity}, and no link")
    if home is not directory and Manifest.load(home).id != entry.run:
        raise UserError("ledger", str(entry.identity), f"{name} in the directory of run {entry.run}")
    return entry.model_copy(update={"identity": identity})
