"""The runs that an agent keeps: the results of all units, and this unit's own journals. All users may read them.

runs/ID.0/                 this unit's part of a run: a run's directory, with its digest
gathered/ID/               the run of all units: a run's directory, with its report
gathered/ID/kept.json      the latest state of the run, and which parts here belong to it
gathered/ID/digests/       the result of each unit, by its name with a - for the /
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel, ValidationError

from tippingpoint.conduct.run_state import SharedRun, UnitWord
from tippingpoint.errors import UserError
from tippingpoint.play.cleaning import clean_run
from tippingpoint.rundir.files import replace_file
from tippingpoint.rundir.ledger import entries
from tippingpoint.workloads.load import OnProgress, untold

MOST_RUNS = 50
"""How many runs are kept; the oldest are removed first, unless something of them is left on the target."""
_KEPT = "kept.json"
_REMOVED = "removed"
"""The file in a part's directory whose presence means that what the part made has been removed from the target."""
_TIMES = 5


class StoredRun(BaseModel):
    """A run as this unit knows it."""

    run: SharedRun
    parts: list[str] = []
    """Names of its directories here: this unit's in order, and those for things that lost units left behind."""
    words: dict[str, UnitWord] = {}
    """The last word of each unit, as far as it is known here."""
    verdict: str = ""
    """The outcome of the latest report."""


class RunStore:
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

    def load(self, run: str) -> StoredRun | None:
        """Return what is kept of a run; None for nothing."""
        try:
            return StoredRun.model_validate_json((self.gathered / run / _KEPT).read_bytes())
        except (OSError, ValidationError):
            return None

    def save(self, kept: StoredRun) -> None:
        """Save a run; raises UserError without disk space."""
        _write(self.gathered / kept.run.id / _KEPT, kept.model_dump_json())

    def all(self) -> list[StoredRun]:
        """Return all runs that are kept, the newest first."""
        found = [kept for path in self.gathered.iterdir() if (kept := self.load(path.name)) is not None]
        return sorted(found, key=lambda kept: kept.run.made, reverse=True)

    def prune(self, but: Iterable[str]) -> None:
        """Remove the oldest runs, but not these."""
        spared = set(but)
        for kept in self.all()[MOST_RUNS:]:
            if kept.run.id in spared or any(map(self.is_left, kept.parts)):
                continue
            for name in kept.parts:
                shutil.rmtree(self.parts / name, ignore_errors=True)
            shutil.rmtree(self.gathered / kept.run.id, ignore_errors=True)

    # -- digests -----------------------------------------------------------------------------------

    def keep_digest(self, run: str, unit: str, digest: str) -> None:
        """Save a unit's result; raises UserError without disk space."""
        _write(self.gathered / run / "digests" / unit.replace("/", "-"), digest)

    def digests(self, run: str) -> dict[str, str]:
        """Return the known result of each unit."""
        found: dict[str, str] = {}
        with contextlib.suppress(OSError):
            for path in (self.gathered / run / "digests").iterdir():
                application, _, number = path.name.rpartition("-")
                if number.isdigit():
                    found[f"{application}/{number}"] = path.read_text("ascii", "replace")
        return found

    # -- what is left on targets ---------------------------------------------------------------------

    def is_left(self, part: str) -> bool:
        """Return whether something that a part made may still be on its target."""
        directory = self.parts / part
        try:
            return bool(entries(directory)) and not (directory / _REMOVED).exists()
        except UserError:
            return True  # a person has to look at a ledger that cannot be read

    def left(self) -> list[str]:
        """Return the parts that may have left something behind."""
        with contextlib.suppress(OSError):
            return sorted(path.name for path in self.parts.iterdir() if self.is_left(path.name))
        return []

    def set_removed(self, part: str) -> None:
        """Note that a part has left nothing behind."""
        if (self.parts / part).is_dir():
            with contextlib.suppress(OSError):  # then the target is checked again
                (self.parts / part / _REMOVED).touch()

    async def remove(self, part: str, progress: OnProgress = untold) -> int:
        """Remove from its target what a part made; returns how many things were removed. Raises what clean_run
        raises."""
        directory = self.parts / part
        removed = 0
        if entries(directory):
            # A worker may outlive its agent by a moment and make one more thing, so this is repeated.
            for _ in range(_TIMES):
                found = await clean_run(directory, progress)
                removed += found
                if not found:
                    break
        self.set_removed(part)
        return removed


def _write(path: Path, text: str) -> None:
    """Replace a file atomically."""
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        replace_file(path, text)
    except OSError as problem:
        raise UserError(
            "--state", str(path), f"a directory with free disk space ({problem.strerror})"
        ) from None


def furthest(known: SharedRun, told: SharedRun | None) -> SharedRun:
    """Return the later one of two states of a run; the second if neither is later."""
    if told is None or told.id != known.id or _far(told) < _far(known):
        return known
    return told


def _far(run: SharedRun) -> tuple[bool, int]:
    return run.over, run.turns[-1].number if run.turns else 0
