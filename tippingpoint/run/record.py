"""A run's manifest and events, beside its workers' journals, and where they are written when the disk is full."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Collection
from pathlib import Path

from tippingpoint.errors import UserError
from tippingpoint.run.watcher import RunnerEvents
from tippingpoint.rundir.journal import RESCUE_PREFIX, Events
from tippingpoint.rundir.manifest import Manifest, RunStatus, new_run_id


class Record:
    """The run's directory and what the runner writes in it."""

    manifest: Manifest
    """Set by `open`."""

    def __init__(self, plan_name: str, out: Path, run_id: str | None, watcher: RunnerEvents) -> None:
        self.started_wall = time.time()
        """The run's start, seconds since the epoch."""
        self.started = time.monotonic()
        self.run_id = run_id or new_run_id(plan_name, self.started_wall)
        self.directory = out / self.run_id
        self.rescue = Path(tempfile.gettempdir()) / f"{RESCUE_PREFIX}{self.run_id}"
        """The directory for what does not fit when the disk of the run's directory is full."""
        self._part = self.rescue.with_name(self.rescue.name + ".part")
        self._watcher = watcher

    def make_directory(self) -> None:
        """Make the run's directory; raises UserError if that fails."""
        try:
            self.directory.mkdir(parents=True)
        except OSError as problem:
            raise UserError(
                "--out", str(self.directory.parent), f"a writable directory ({problem.strerror})"
            ) from None

    def open(self, manifest: Manifest) -> None:
        """Write the manifest and open the event log; raises UserError if there is no space for them."""
        self.manifest = manifest
        try:
            manifest.save(self.directory)
            self._events = Events(self.directory / "events.jsonl")
        except OSError as problem:
            raise UserError(
                "--out", str(self.directory), f"a directory with free disk space ({problem.strerror})"
            ) from None

    def now(self) -> float:
        """Seconds since the run's start."""
        return time.monotonic() - self.started

    def event(self, event: str, **fields: object) -> None:
        """Write an event, and pass it to the watcher."""
        t = self.now()
        self._events.write(t, event, **fields)
        self._watcher.event(t, event, fields)

    def note(self, text: str) -> None:
        """Add a note about the data to the report."""
        self.event("note", text=text)

    def save_manifest(self) -> bool:
        """Write the manifest as it is now; returns False if there is no disk space for it."""
        try:
            self.manifest.save(self.directory)
        except OSError:
            (self.directory / "manifest.json.new").unlink(missing_ok=True)
            return False
        return True

    def discard(self) -> None:
        """Remove the run's directory, as the run has no results."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def end(self, status: RunStatus, reason: str) -> None:
        """Write into the manifest how the run ended; raises UserError if the run's directory is gone."""
        self.manifest.status = status
        self.manifest.reason = reason
        self.manifest.ended = time.time()
        self.manifest.pid = None
        if not self.directory.is_dir():
            raise UserError(
                "--out",
                str(self.directory),
                "the run's directory to exist until the run ends (it is gone)",
            )

    def close(self, passwords: Collection[Path]) -> Path:
        """Close the files; if the disk is full, the whole run except these files with passwords moves to `rescue`."""
        try:
            self._events.close(self.rescue)
            if not self.save_manifest() or self.rescue.exists():
                self._move_to_rescue(passwords)
        except OSError as problem:
            # There is no space in either place: what has reached the disk is all there is.
            shutil.rmtree(self._part, ignore_errors=True)
            with contextlib.suppress(OSError):
                self.rescue.rmdir()  # fails if the ends of journals are in it
            self.manifest.reason = f"no disk space left, here or in {self.rescue}: {problem.strerror}"
            self.save_manifest()
        return self.directory

    def _move_to_rescue(self, passwords: Collection[Path]) -> None:
        """Put the run's files together in `rescue`, which already has the ends of those that did not fit."""
        gathered = self._part
        gathered.mkdir()
        tails = self.rescue if self.rescue.exists() else gathered
        for path in self.directory.iterdir():
            if path.resolve() in passwords:
                continue
            with open(gathered / path.name, "wb") as whole:
                for part in (path, tails / path.name):
                    if part.exists() and part.parent != gathered:
                        with open(part, "rb") as source:
                            shutil.copyfileobj(source, whole)
        self.manifest.reason = (
            self.manifest.reason
            or f"no disk space left in {self.directory.parent}: the whole run is in {self.rescue}"
        )
        self.manifest.save(gathered)
        if tails is not gathered:
            shutil.rmtree(tails)
        gathered.rename(self.rescue)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory = self.rescue
