"""The runs that a collector stores: what their units reported, even after the units are gone.

A run has a directory with `run.json` (the SharedRun). For each unit, for example load-claimer/0, it has
`load-claimer-0.word.json` and `load-claimer-0.digest`. `course.jsonl` has the progress over time (course.py),
`verdict.json` the verdict, and `resources.json` figures of the target (gather_resources.py). Files are replaced
atomically; only `course.jsonl` grows. Everything here is fast, because it happens in hooks.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tippingpoint.collect import course
from tippingpoint.compare.trend.acknowledged import FILE as ACKNOWLEDGED
from tippingpoint.conduct.director import summary
from tippingpoint.conduct.run_state import SharedRun, UnitWord, read_shared, read_word, silent_after
from tippingpoint.errors import UserError
from tippingpoint.rundir.files import replace_file
from tippingpoint.rundir.resources import FILE as RESOURCES

KEPT = 200
"""How many runs are kept; those with the oldest ids are removed first, and ids sort by time."""
_RUN = "run.json"
_VERDICT = "verdict.json"
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,120}")
"""As in SharedRun.id."""
_UNIT = re.compile(r"[a-z][a-z0-9-]{0,100}/[0-9]{1,9}")
"""As in run_state.Unit."""


@dataclass(frozen=True)
class Verdict:
    """A run's verdict: met, missed, withheld, failed or no thresholds, in a sentence, and the reasons if it is
    withheld."""

    outcome: str
    sentence: str
    reasons: tuple[str, ...] = ()


RESULTS_WITHIN = 120.0
"""Seconds after the last news of a run in which results may still arrive."""


@dataclass(frozen=True)
class StoredRun:
    """One run as it is on disk."""

    directory: Path
    shared: SharedRun
    heard: float
    """When the last news of it arrived, in seconds since the epoch on this machine's clock."""

    @property
    def id(self) -> str:
        """The run's id, which is its directory's name."""
        return self.shared.id

    @property
    def words(self) -> dict[str, UnitWord]:
        """The units' last words, by the units' names in the run."""
        found = {unit: read_word(_text(self.directory / _word_of(unit))) for unit in self.shared.units}
        return {unit: word for unit, word in found.items() if word is not None}

    @property
    def digests(self) -> dict[str, str]:
        """The digests of the units' parts, by the units' names in the run."""
        found = {unit: _text(self.directory / _digest_of(unit)) for unit in self.shared.units}
        return {unit: text for unit, text in found.items() if text}

    @property
    def reported(self) -> int:
        """How many units have sent a digest."""
        return sum(self._has_digest(unit) for unit in self.shared.units)

    @property
    def reportable(self) -> bool:
        """Whether there is something to report: a result, or why there is none."""
        return self.shared.over or self.reported > 0

    @property
    def course(self) -> str:
        """Its progress over time, as text: see course.points_of."""
        return course.read_text(self.directory)

    @property
    def complete(self) -> bool:
        """Whether it is over, and each unit that is not missing has sent its digest."""
        return self.shared.over and all(
            unit in self.shared.missing or self._has_digest(unit) for unit in self.shared.units
        )

    @property
    def verdict(self) -> Verdict | None:
        """Its verdict; None if it has not been judged, or is being judged."""
        return _read_verdict(_text(self.directory / _VERDICT))

    @property
    def verdict_file(self) -> Path:
        """The file that the verdict is written to."""
        return self.directory / _VERDICT

    @property
    def resources(self) -> str | None:
        """The target's resources, in the form that rundir.resources reads; None if no Prometheus was queried."""
        return _text(self.resources_file)

    @property
    def resources_file(self) -> Path:
        """The file that the resources are written to."""
        return self.directory / RESOURCES

    def as_text(self) -> dict[str, Any]:
        """Return everything that a report is made of, for the process that makes it: see reports.py."""
        return {
            "run": self.shared.model_dump_json(),
            "words": {unit: word.model_dump_json() for unit, word in self.words.items()},
            "digests": self.digests,
            "resources": self.resources,
        }

    def judged_since(self, moment: float) -> bool:
        """Return whether a process began to judge it after that moment (on this machine's clock)."""
        try:
            return self.verdict_file.stat().st_mtime > moment
        except FileNotFoundError:
            return False

    def silent(self, now: float) -> bool:
        """Return whether it is not over, but has been silent for so long that its units count as missing."""
        return not self.shared.over and now - self.heard > silent_after(len(self.shared.units))

    def state(self, now: float) -> str:
        """Return where it is, in a few words."""
        if self.shared.over:
            lacking = [unit for unit in self.shared.units if not self._has_digest(unit)]
            awaited = [unit for unit in lacking if unit not in self.shared.missing]
            if awaited and now - self.heard < RESULTS_WITHIN:
                return f"ending: waiting for the results of {_of(awaited, self.shared.units)}"
            told = f"stopped: {self.shared.stopped}" if self.shared.stopped else "over"
            return f"{told}; {_of(lacking, self.shared.units)} sent no result" if lacking else told
        if self.silent(now):
            return "no news from its units"
        return summary(self.shared, self.words)

    def _has_digest(self, unit: str) -> bool:
        return (self.directory / _digest_of(unit)).exists()


class Runs:
    """All runs in one directory, which is made when the first run arrives."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        """The directory, which has a directory for each run."""

    def keep(self, shared: SharedRun) -> None:
        """Store a run in its leader's present state."""
        self._write(shared.id, _RUN, shared.model_dump_json())

    def keep_word(self, unit: str, word: UnitWord) -> None:
        """Store a unit's last word; raises UserError if it names no run, or if the unit's name is malformed."""
        name, directory = _word_of(unit), self.directory / word.run
        before = read_word(_text(directory / name)) if _ID.fullmatch(word.run) else None
        if self._write(word.run, name, word.model_dump_json()):
            course.note(directory, unit, word)
            if word.phase == "failed" and (before is None or before.phase != "failed"):
                (directory / _VERDICT).unlink(missing_ok=True)  # it lacked this reason

    def keep_digest(self, unit: str, run: str, digest: str) -> None:
        """Store the digest of a unit's part of a run; raises UserError as keep_word does."""
        self._write(run, _digest_of(unit), digest, lasting=True)

    def newest_first(self) -> list[StoredRun]:
        """Return all runs whose SharedRun has arrived and can be read."""
        return [run for run in map(self._read, self._names()) if run is not None]

    def find(self, run: str) -> StoredRun:
        """Return the run with that id, or the newest for an empty one; raises UserError if there is none."""
        names = [run] if run else self._names()
        found = next((stored for stored in map(self._read, names) if stored is not None), None)
        if found is None and not run:
            raise UserError("run", "the latest", "a run; none has arrived yet (start one on a generator)")
        if found is None:
            known = ", ".join(stored.id for stored in self.newest_first()[:5])
            raise UserError("run", run, f"a run of this collector: {known or 'none has arrived yet'}")
        return found

    def _names(self) -> list[str]:
        try:
            return sorted((name for name in os.listdir(self.directory) if name != ACKNOWLEDGED), reverse=True)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _read(self, name: str) -> StoredRun | None:
        if not _ID.fullmatch(name):
            return None
        directory = self.directory / name
        shared = read_shared(_text(directory / _RUN))
        if shared is None or shared.id != name:
            return None
        try:
            heard = max(_written(directory).values())
        except (FileNotFoundError, ValueError):  # removed meanwhile
            return None
        return StoredRun(directory, shared, heard)

    def _write(self, run: str, name: str, text: str, *, lasting: bool = False) -> bool:
        """Replace one file of a run; returns whether it changed and was kept.

        `lasting` files are synced to disk before this returns, because they are not sent again.
        """
        if not _ID.fullmatch(run):
            raise UserError("run", run, "a run's id")
        directory = self.directory / run
        path = directory / name
        if _text(path) == text:
            os.utime(path)
            return False
        if not directory.is_dir():
            directory.mkdir(parents=True)
            self._forget_oldest()
        if not directory.is_dir():  # older than all runs that are kept
            return False
        replace_file(path, text, sync=lasting)
        if lasting:
            (directory / _VERDICT).unlink(missing_ok=True)  # it lacked this digest
        return True

    def _forget_oldest(self) -> None:
        for name in self._names()[KEPT:]:
            shutil.rmtree(self.directory / name, ignore_errors=True)


def forget_oldest(directory: Path, kept: int = KEPT) -> None:
    """Keep only the newest files in a directory, by when they were written."""
    written = _written(directory)
    for path in sorted(written, key=lambda path: written[path], reverse=True)[kept:]:
        path.unlink(missing_ok=True)


def _written(directory: Path) -> dict[Path, float]:
    """Return when each file in a directory was written, except files that others remove or rename meanwhile."""
    written: dict[Path, float] = {}
    for path in directory.iterdir():
        with contextlib.suppress(FileNotFoundError):
            written[path] = path.stat().st_mtime
    return written


def _of(some: Sequence[str], units: Sequence[str]) -> str:
    return f"{len(some)} of {len(units)} units"


def _word_of(unit: str) -> str:
    return f"{_flat(unit)}.word.json"


def _digest_of(unit: str) -> str:
    return f"{_flat(unit)}.digest"


def _flat(unit: str) -> str:
    if not _UNIT.fullmatch(unit):
        raise UserError("unit", unit, "a unit's name")
    return unit.replace("/", "-")


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError):
        return None


def _read_verdict(text: str | None) -> Verdict | None:
    try:
        told: object = json.loads(text or "")
    except ValueError:
        return None
    match told:
        case {"outcome": str(outcome), "sentence": str(sentence)}:
            reasons = cast("dict[str, Any]", told).get("reasons")
            lines = cast("list[object]", reasons) if isinstance(reasons, list) else []
            return Verdict(outcome, sentence, tuple(map(str, lines)))
        case _:
            return None
