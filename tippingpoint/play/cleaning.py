"""Removes what a run made in its target, according to the run's ledger: at the run's end or any time later."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tippingpoint.errors import UserError
from tippingpoint.rundir.ledger import FILE, Entry
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import own_entries
from tippingpoint.targets.registry import target_of
from tippingpoint.workloads.load import OnProgress, untold


async def clean_run(directory: Path, progress: OnProgress = untold) -> int:
    """Remove what the run's ledger names and the target still has; returns how many things were removed.

    Raises TargetError when the target cannot be reached, and UserError for a ledger that names things of another run.
    """
    manifest = Manifest.load(directory)
    made = own_entries(directory, manifest)
    if not made and manifest.source == "run":
        raise UserError("ledger", str(directory / FILE), "the run's ledger (nothing is removed without it)")
    return await clean_entries(made, manifest.id, progress)


async def clean_entries(made: Iterable[Entry], run_id: str, progress: OnProgress = untold) -> int:
    """Remove what these entries of the run name; the caller has checked that they belong to it (own_entries)."""
    return sum([await target_of(entry.kind).clean(entry, run_id, progress) for entry in made])
