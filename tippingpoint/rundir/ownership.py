"""What is a run's: all its names follow from its id, and its ledger is held against them, whoever wrote that."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Self

from tippingpoint.errors import UserError
from tippingpoint.rundir.ledger import Entry, entries
from tippingpoint.rundir.manifest import Manifest


def name_prefix(run_id: str) -> str:
    """What the names of all that a run makes begin with, in targets whose names are for people."""
    return "tp" + hashlib.sha256(run_id.encode()).hexdigest()[:8]


class LastingEntry(Entry, frozen=True):
    """Things that stay there when their run is cut, and that another run can go on with (`tippingpoint resume`)."""

    run: str
    """The run whose names and marks they carry: another one than the ledger's where a run takes that one up."""
    prefix: str
    """What the names of all of it begin with."""

    def own(self, directory: Path, manifest: Manifest) -> Self:
        """The entry, when its run is this one, or one that it goes on with."""
        # Before manifests named it, an agent went on with part RUN.0 as RUN.0.2.
        ours = self.run in (manifest.id, manifest.things_of)
        if not ours and not re.fullmatch(re.escape(self.run) + "[.][0-9]{1,9}", manifest.id):
            raise UserError(
                "ledger",
                self.run,
                f"{manifest.id}; what another run made goes by `tippingpoint clean` of that run",
            )
        if self.prefix != name_prefix(self.run):
            raise UserError(
                "ledger", self.prefix, f"what run {self.run} made, named {name_prefix(self.run)}..."
            )
        return self

    def find_file(self, path: Path, name: str, directory: Path, manifest: Manifest) -> Path:
        """Where a file of this name is now that was at `path` in its run's directory; UserError when that is none."""
        home = directory if self.run == manifest.id else path.parent
        found = home.absolute() / name
        if path.name != name or found.is_symlink() or ".." in path.parts:
            raise UserError("ledger", str(path), f"{found}, and no link")
        if home is not directory and Manifest.load(home).id != self.run:
            raise UserError("ledger", str(path), f"{name} in the directory of run {self.run}")
        return found


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
        entry = entry.own(directory, manifest)
        if entry not in found:
            found.append(entry)
    return found
