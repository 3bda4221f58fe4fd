"""What a run makes in a target is written down before it is made, so that it can be removed after any end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ValidationError

from tippingpoint.claim.etcd import clean
from tippingpoint.errors import UserError
from tippingpoint.manifest import Manifest
from tippingpoint.plan import EtcdTarget

FILE = "ledger.jsonl"
RUN_LEASE_IDS = 2**40
"""Each run has a block of so many v3 lease ids, which begins at a multiple of it."""


class EtcdEntry(BaseModel):
    """Everything a run makes in an etcd: keys below a prefix, and leases with ids from a range."""

    prefix: str
    first_lease_id: int
    lease_ids: int
    target: EtcdTarget


def remember(directory: Path, entry: EtcdEntry) -> None:
    """Add an entry to a run's ledger and see it on the disk before anything is made.

    Files that the target names are remembered by their absolute paths, so that it can be cleaned from anywhere.
    """
    entry = entry.model_copy(update={"target": _anchored(entry.target)})
    with open(directory / FILE, "a", encoding="utf-8") as file:
        file.write(entry.model_dump_json() + "\n")
        file.flush()
        os.fsync(file.fileno())


def entries(directory: Path) -> list[EtcdEntry]:
    """The ledger of a run; empty when it never made anything. UserError when it cannot be read."""
    path = directory / FILE
    try:
        *lines, rest = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise UserError("ledger", str(path), f"a readable file ({problem.strerror})") from None
    found: list[EtcdEntry] = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(EtcdEntry.model_validate_json(line))
        except ValidationError:
            raise UserError("ledger", f"{path}:{number}", "a ledger entry") from None
    # A crash in the middle of the write: nothing was made yet under that entry.
    with contextlib.suppress(ValidationError):
        found.append(EtcdEntry.model_validate_json(rest))
    return found


def _anchored(target: EtcdTarget) -> EtcdTarget:
    files = {"ca": target.ca, "cert": target.cert, "key": target.key, "credentials": target.credentials}
    return target.model_copy(
        update={name: path.absolute() for name, path in files.items() if path is not None}
    )


async def clean_run(directory: Path) -> int:
    """Remove from the target what the run's ledger names and is still there; returns how many things that was.

    Raises TargetError when the target cannot be reached.
    """
    manifest = Manifest.load(directory)
    made = entries(directory)
    if not made and manifest.source == "run":
        raise UserError("ledger", str(directory / FILE), "the run's ledger, or nobody knows what it made")
    return await clean_entries(made, manifest.id)


async def clean_entries(made: Iterable[EtcdEntry], run_id: str) -> int:
    """Remove what these entries of that run name; UserError for an entry that names more than a run can make."""
    removed = 0
    for entry in made:
        own = entry.prefix == key_prefix(run_id)
        ids = range(entry.first_lease_id, entry.first_lease_id + entry.lease_ids)
        if not own or ids.start % RUN_LEASE_IDS or not 0 < len(ids) <= RUN_LEASE_IDS or ids.start <= 0:
            raise UserError("ledger", entry.prefix, f"what this run made, below {key_prefix(run_id)}")
        removed += await clean(entry.target, entry.prefix, ids)
    return removed


def key_prefix(run_id: str) -> str:
    """Where all keys of a run are."""
    return f"/tippingpoint/{run_id}/"
