"""The runs that are kept: what each unit came to as it was told, and this unit's own journals. All may read them.

runs/ID.0/                 this unit's part of a run: a run's directory, with its digest
gathered/ID/               the run of all units: a run's directory, with its report
gathered/ID/kept.json      the run as it was told last, and which parts here are of it
gathered/ID/digests/       what each unit came to, by its name with a - for the /
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ValidationError

from tippingpoint.errors import UserError
from tippingpoint.run.cleaning import clean_run
from tippingpoint.rundir.ledger import entries
from tippingpoint.units.shared_run import SharedRun, UnitWord
from tippingpoint.workloads.load import OnProgress, untold

MOST_RUNS = 50
"""Runs that are kept; the oldest go first, unless something of them is left in the target."""
_KEPT = "kept.json"
_REMOVED = "removed"
"""A part's directory has a file of this name once what it made is known to be gone from the target."""
_TIMES = 5


class Kept(BaseModel):
    """A run as this unit knows it."""

    run: SharedRun
    parts: list[str] = []
    """Names of the directories of it that are here: this unit's in order, and those for what lost units left."""
    words: dict[str, UnitWord] = {}
    """The last word of each unit, as far as they were told here."""
    verdict: str = ""
    """Outcome of the report that was made last."""


class Keeping:
    """The runs below a state directory."""

    def __init__(self, state: Path) -> None:
        self.parts = state / "runs"
        self.gathered = state / "gathered"
        try:
            for directory in (self.parts, self.gathered):
                directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        except OSError as problem:
            raise UserError("--state", str(state), f"a writable directory ({problem.strerror})") from None

    # -- runs --------------------------------------------------------------------------------------

    def load(self, run: str) -> Kept | None:
        """What is kept of a run; None where nothing is."""
        try:
            return Kept.model_validate_json((self.gathered / run / _KEPT).read_bytes())
        except (OSError, ValidationError):
            return None

    def save(self, kept: Kept) -> None:
        """Keep it; UserError when there is no room."""
        _write(self.gathered / kept.run.id / _KEPT, kept.model_dump_json())

    def all(self) -> list[Kept]:
        """Every run that is kept, the newest first."""
        found = [kept for path in self.gathered.iterdir() if (kept := self.load(path.name)) is not None]
        return sorted(found, key=lambda kept: kept.run.made, reverse=True)

    def prune(self, but: Iterable[str]) -> None:
        """Let go of the oldest, but not of these."""
        spared = set(but)
        for kept in self.all()[MOST_RUNS:]:
            if kept.run.id in spared or any(map(self.is_left, kept.parts)):
                continue
            for name in kept.parts:
                shutil.rmtree(self.parts / name, ignore_errors=True)
            shutil.rmtree(self.gathered / kept.run.id, ignore_errors=True)

    # -- digests -----------------------------------------------------------------------------------

    def keep_digest(self, run: str, unit: str, digest: str) -> None:
        """Keep what a unit came to; UserError when there is no room."""
        _write(self.gathered / run / "digests" / unit.replace("/", "-"), digest)

    def digests(self, run: str) -> dict[str, str]:
        """What each unit came to, as far as it is known here."""
        found: dict[str, str] = {}
        with contextlib.suppress(OSError):
            for path in (self.gathered / run / "digests").iterdir():
                application, _, number = path.name.rpartition("-")
                if number.isdigit():
                    found[f"{application}/{number}"] = path.read_text("ascii", "replace")
        return found

    # -- what is left in targets ---------------------------------------------------------------------

    def is_left(self, part: str) -> bool:
        """Whether something that a part made may still be in its target."""
        directory = self.parts / part
        try:
            return bool(entries(directory)) and not (directory / _REMOVED).exists()
        except UserError:
            return True  # a ledger that nobody can read: somebody is to look

    def left(self) -> list[str]:
        """The parts of which something may be left."""
        with contextlib.suppress(OSError):
            return sorted(path.name for path in self.parts.iterdir() if self.is_left(path.name))
        return []

    def set_removed(self, part: str) -> None:
        """Nothing of a part is left."""
        if (self.parts / part).is_dir():
            with contextlib.suppress(OSError):  # then it is looked for once more
                (self.parts / part / _REMOVED).touch()

    async def remove(self, part: str, progress: OnProgress = untold) -> int:
        """Remove what a part made from its target; returns how many things that was. Errors as clean_run's."""
        directory = self.parts / part
        removed = 0
        if entries(directory):
            # A worker that outlived its agent by a moment may have made one more: until nothing is found.
            for _ in range(_TIMES):
                found = await clean_run(directory, progress)
                removed += found
                if not found:
                    break
        self.set_removed(part)
        return removed


def _write(path: Path, text: str) -> None:
    """Replace a file whole."""
    fresh = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8")
        os.replace(fresh, path)
    except OSError as problem:
        raise UserError(
            "--state", str(path), f"a directory with free disk space ({problem.strerror})"
        ) from None


def furthest(known: SharedRun, told: SharedRun | None) -> SharedRun:
    """Of two tellings of a run the one that is further; what was told last where both are as far."""
    if told is None or told.id != known.id or _far(told) < _far(known):
        return known
    return told


def _far(run: SharedRun) -> tuple[bool, int]:
    return run.over, run.turns[-1].number if run.turns else 0
