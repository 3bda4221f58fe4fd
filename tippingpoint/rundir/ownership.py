"""Checks what belongs to a run: all names follow from the run's id, and its ledger may name nothing else."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Self

from tippingpoint.errors import UserError
from tippingpoint.rundir.ledger import Entry, entries
from tippingpoint.rundir.manifest import Manifest


def name_prefix(run_id: str) -> str:
    """Return the prefix of all names that a run uses, on targets whose names are for people."""
    return "tp" + hashlib.sha256(run_id.encode()).hexdigest()[:8]


class LastingEntry(Entry, frozen=True):
    """Things that outlast a run that is cut, so that another run can resume it (`tippingpoint resume`)."""

    run: str
    """The run whose names and marks the things carry: not the ledger's own run if that resumed another one."""
    prefix: str
    """The prefix of the names of all of them."""

    def own(self, directory: Path, manifest: Manifest) -> Self:
        """Return the entry; raises UserError unless its run is this one, or one that this one resumed."""
        if self.run not in (manifest.id, manifest.things_of):
            raise UserError(
                "ledger",
                self.run,
                f"{manifest.id}; `tippingpoint clean` of another run removes that run's objects",
            )
        if self.prefix != name_prefix(self.run):
            raise UserError(
                "ledger", self.prefix, f"what run {self.run} made, named {name_prefix(self.run)}..."
            )
        return self

    def find_file(self, path: Path, name: str, directory: Path, manifest: Manifest) -> Path:
        """Return the present path of a file that was at `path` in its run's directory; raises UserError if it is no
        such file."""
        home = directory if self.run == manifest.id else path.parent
        found = home.absolute() / name
        if path.name != name or found.is_symlink() or ".." in path.parts:
            raise UserError("ledger", str(path), f"{found}, which must not be a link")
        if home is not directory and Manifest.load(home).id != self.run:
            raise UserError("ledger", str(path), f"{name} in the directory of run {self.run}")
        return found


def own_entries(directory: Path, manifest: Manifest) -> list[Entry]:
    """Return a run's ledger; raises UserError for an entry that this run cannot have made and that must not be
    removed.

    The run's files are looked up in the directory, wherever it was when they were written.
    """
    found: list[Entry] = []
    for entry in entries(directory):
        if entry.kind != manifest.target.kind:
            raise UserError(
                "ledger", f"target {entry.kind}", f"{manifest.target.kind}, as in the run's manifest"
            )
        entry = entry.own(directory, manifest)
        if entry not in found:
            found.append(entry)
    return found
