"""The runs that a collector was told of, on disk: what units said, as they said it, also when they are gone.

A run has a directory with `run.json` (the SharedRun), and of each unit, for example load-claimer/0, the files
`load-claimer-0.word.json` and `load-claimer-0.digest`; `course.jsonl` is how words went on (course.py). `verdict.json`
is what the run came to, written by whoever judged it, `resources.json` figures of its target (gather_resources.py).
Files are replaced whole, so that a reader never sees a half of one; lines are added to `course.jsonl` alone. Nothing
here takes long, as all of it happens in hooks.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tippingpoint.collect import course
from tippingpoint.errors import UserError
from tippingpoint.rundir.resources import FILE as RESOURCES
from tippingpoint.units.shared_run import SharedRun, UnitWord, read_shared, read_word, silent_after, summary

KEPT = 200
"""Runs; those of the oldest ids go first, and ids sort by time."""
_RUN = "run.json"
_VERDICT = "verdict.json"
_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,120}")
"""As in SharedRun.id."""
_UNIT = re.compile(r"[a-z][a-z0-9-]{0,100}/[0-9]{1,9}")
"""As in shared_run.Unit."""


@dataclass(frozen=True)
class Verdict:
    """What a run came to: met, missed, withheld or failed, in a sentence, and all reasons where it is withheld."""

    outcome: str
    sentence: str
    reasons: tuple[str, ...] = ()


RESULTS_WITHIN = 120.0
"""Seconds after the last that was heard of a run in which results may still come."""


@dataclass(frozen=True)
class StoredRun:
    """One run as it is on disk."""

    directory: Path
    shared: SharedRun
    heard: float
    """When anything of it arrived last, in seconds since the epoch on this machine's clock."""

    @property
    def id(self) -> str:
        """The run's id, which is its directory's name."""
        return self.shared.id

    @property
    def words(self) -> dict[str, UnitWord]:
        """What units said last, by the names that the run has for them."""
        found = {unit: read_word(_text(self.directory / _word_of(unit))) for unit in self.shared.units}
        return {unit: word for unit, word in found.items() if word is not None}

    @property
    def digests(self) -> dict[str, str]:
        """What units' parts came to, likewise."""
        found = {unit: _text(self.directory / _digest_of(unit)) for unit in self.shared.units}
        return {unit: text for unit, text in found.items() if text}

    @property
    def reported(self) -> int:
        """Of how many units there is a digest."""
        return sum(self._has_digest(unit) for unit in self.shared.units)

    @property
    def reportable(self) -> bool:
        """Whether there is something to report: a result, or why there is none."""
        return self.shared.over or self.reported > 0

    @property
    def course(self) -> dict[str, Any]:
        """How it goes on, over time: see course.build_course."""
        return course.build_course(self.shared, course.read_points(self.directory))

    @property
    def complete(self) -> bool:
        """Whether it is over, and each unit that is not missing has sent its digest."""
        return self.shared.over and all(
            unit in self.shared.missing or self._has_digest(unit) for unit in self.shared.units
        )

    @property
    def verdict(self) -> Verdict | None:
        """What it came to; None while nobody has judged it, or it is being judged."""
        return _read_verdict(_text(self.directory / _VERDICT))

    @property
    def verdict_file(self) -> Path:
        """Where the verdict is written."""
        return self.directory / _VERDICT

    @property
    def resources(self) -> str | None:
        """The target's resources, as rundir.resources reads them; None where nobody has asked a Prometheus."""
        return _text(self.resources_file)

    @property
    def resources_file(self) -> Path:
        """Where that is written."""
        return self.directory / RESOURCES

    def as_text(self) -> dict[str, Any]:
        """All of it that a report is made of, for the process that makes one: see reports.py."""
        return {
            "run": self.shared.model_dump_json(),
            "words": {unit: word.model_dump_json() for unit, word in self.words.items()},
            "digests": self.digests,
            "resources": self.resources,
        }

    def judged_since(self, moment: float) -> bool:
        """Whether somebody began to judge it after that moment (on this machine's clock)."""
        try:
            return self.verdict_file.stat().st_mtime > moment
        except FileNotFoundError:
            return False

    def silent(self, now: float) -> bool:
        """Whether it is not over, and nothing came for as long as makes a unit missing."""
        return not self.shared.over and now - self.heard > silent_after(len(self.shared.units))

    def state(self, now: float) -> str:
        """Where it is, in a few words."""
        if self.shared.over:
            lacking = [unit for unit in self.shared.units if not self._has_digest(unit)]
            awaited = [unit for unit in lacking if unit not in self.shared.missing]
            if awaited and now - self.heard < RESULTS_WITHIN:
                return f"ends: the results of {_of(awaited, self.shared.units)} are awaited"
            told = f"stopped: {self.shared.stopped}" if self.shared.stopped else "over"
            return f"{told}; {_of(lacking, self.shared.units)} sent no result" if lacking else told
        if self.silent(now):
            return "nothing more is heard of it"
        return summary(self.shared, self.words)

    def _has_digest(self, unit: str) -> bool:
        return (self.directory / _digest_of(unit)).exists()


class Runs:
    """All runs below one directory, which is made when the first arrives."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def keep(self, shared: SharedRun) -> None:
        """Keep a run as its leader has it now."""
        self._write(shared.id, _RUN, shared.model_dump_json())

    def keep_word(self, unit: str, word: UnitWord) -> None:
        """Keep what a unit said last. UserError when it names no run, or the unit has no unit's name."""
        name, directory = _word_of(unit), self._directory / word.run
        before = read_word(_text(directory / name)) if _ID.fullmatch(word.run) else None
        if self._write(word.run, name, word.model_dump_json()):
            course.note(directory, unit, word)
            if word.phase == "failed" and (before is None or before.phase != "failed"):
                (directory / _VERDICT).unlink(missing_ok=True)  # it was without the reason

    def keep_digest(self, unit: str, run: str, digest: str) -> None:
        """Keep what a unit's part of a run came to; UserError likewise."""
        self._write(run, _digest_of(unit), digest, lasting=True)

    def newest_first(self) -> list[StoredRun]:
        """All runs whose SharedRun has arrived and can be read."""
        return [run for run in map(self._read, self._names()) if run is not None]

    def find(self, run: str) -> StoredRun:
        """The run of that id, the newest for an empty one; UserError when there is none."""
        names = [run] if run else self._names()
        found = next((stored for stored in map(self._read, names) if stored is not None), None)
        if found is None and not run:
            raise UserError("run", "the latest", "a run, but none has arrived yet (start one on a generator)")
        if found is None:
            known = ", ".join(stored.id for stored in self.newest_first()[:5])
            raise UserError("run", run, f"a run that is here: {known or 'none is yet'}")
        return found

    def _names(self) -> list[str]:
        try:
            return sorted(os.listdir(self._directory), reverse=True)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _read(self, name: str) -> StoredRun | None:
        if not _ID.fullmatch(name):
            return None
        directory = self._directory / name
        shared = read_shared(_text(directory / _RUN))
        if shared is None or shared.id != name:
            return None
        try:
            heard = max(entry.stat().st_mtime for entry in os.scandir(directory))
        except (FileNotFoundError, ValueError):  # removed meanwhile
            return None
        return StoredRun(directory, shared, heard)

    def _write(self, run: str, name: str, text: str, *, lasting: bool = False) -> bool:
        """Replace one file of a run; whether it is another than before, and kept. `lasting` ones are on the disk when
        this returns, as nobody sends them again."""
        if not _ID.fullmatch(run):
            raise UserError("run", run, "a run's id")
        directory = self._directory / run
        path = directory / name
        if _text(path) == text:
            os.utime(path)
            return False
        if not directory.is_dir():
            directory.mkdir(parents=True)
            self._forget_oldest()
        if not directory.is_dir():  # older than all that are kept
            return False
        fresh = directory / f".{name}.new"
        with fresh.open("w", encoding="utf-8") as file:
            file.write(text)
            if lasting:
                file.flush()
                os.fsync(file.fileno())
        fresh.replace(path)
        if lasting:
            (directory / _VERDICT).unlink(missing_ok=True)  # it was of less than this
        return True

    def _forget_oldest(self) -> None:
        for name in self._names()[KEPT:]:
            shutil.rmtree(self._directory / name, ignore_errors=True)


def forget_oldest(directory: Path, kept: int = KEPT) -> None:
    """Leave only the newest files in a directory, by when they were written."""
    files = sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[kept:]:
        path.unlink(missing_ok=True)


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
