"""A run's manifest and events, beside its workers' journals, and where they are written when the disk is full."""

from __future__ import annotations

import contextlib
import functools
import shutil
import tempfile
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

from tippingpoint.errors import UserError
from tippingpoint.play.watcher import RunnerEvents, SearchSoFar
from tippingpoint.rundir.clock import EVENT, ClockWatch
from tippingpoint.rundir.files import new_file, open_file
from tippingpoint.rundir.held import HeldDirectory
from tippingpoint.rundir.journal import RESCUE_PREFIX, Events
from tippingpoint.rundir.machine import FILE, USED, Used
from tippingpoint.rundir.manifest import Manifest, RunStatus, new_run_id
from tippingpoint.rundir.standstills import asleep
from tippingpoint.util import timing

if TYPE_CHECKING:
    from tippingpoint.rundir.results import GrowingRun


class Record:
    """The run's directory and what the runner writes in it."""

    manifest: Manifest
    """Set by `open`."""

    def __init__(self, plan_name: str, out: Path, run_id: str | None, watcher: RunnerEvents) -> None:
        self.started_wall = timing.wall()
        """The run's start, seconds since the epoch."""
        self.started = timing.monotonic()
        self._asleep = asleep()
        self.after_boot = self.started + self._asleep
        """Seconds from the machine's boot to the run's start."""
        self._clock = ClockWatch()
        self.run_id = run_id or new_run_id(plan_name, self.started_wall)
        self.directory = out / self.run_id
        """The run's directory by its name, for people. What is read and written is in `inside`."""
        self.rescue = Path(tempfile.gettempdir()) / f"{RESCUE_PREFIX}{self.run_id}-{token_hex(8)}"
        """The directory for what does not fit when the disk of the run's directory is full. Nobody can make it first,
        as nobody knows its name."""
        self._watcher = watcher
        self._held: HeldDirectory | None = None
        self._machine: Events | None = None

    def make_directory(self) -> None:
        """Make the run's directory; raises UserError if that fails."""
        try:
            self._held = HeldDirectory.make(self.directory)
        except OSError as problem:
            raise UserError(
                "--out", str(self.directory.parent), f"a writable directory ({problem.strerror})"
            ) from None

    @property
    def inside(self) -> Path:
        """The run's directory, by the descriptor that is held on it until the run ends."""
        return self.directory if self._held is None else self._held.inside

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What a process that uses `inside` needs to inherit."""
        return () if self._held is None else (self._held.descriptor,)

    @functools.cached_property
    def so_far(self) -> GrowingRun:
        """The run, as written so far."""
        # It imports numpy, which a run needs only if it is judged while it runs.
        from tippingpoint.rundir.results import GrowingRun

        return GrowingRun(self.inside)

    @property
    def is_there(self) -> bool:
        """Whether the run's directory is still where it was made."""
        return self._held is not None and self._held.is_there

    def open(self, manifest: Manifest) -> None:
        """Write the manifest and open the event log; raises UserError if there is no space for them."""
        self.manifest = manifest
        try:
            manifest.save(self.inside)
            self._events = Events(self.inside / "events.jsonl")
        except OSError as problem:
            raise UserError(
                "--out", str(self.directory), f"a directory with free disk space ({problem.strerror})"
            ) from None

    def now(self) -> float:
        """Seconds since the run's start."""
        return timing.monotonic() - self.started

    def look_at_clock(self) -> None:
        """Write an event if the wall clock was set since the last check; a check costs a few microseconds."""
        t = self.now()
        fields = self._clock.look(t, timing.wall() - self.started_wall, asleep() - self._asleep)
        if fields is not None:
            self.event(EVENT, **fields)

    def event(self, event: str, **fields: object) -> None:
        """Write an event, and pass it to the watcher."""
        t = self.now()
        self._events.write(t, event, **fields)
        self._watcher.event(t, event, fields)

    def used(self, used: Used) -> None:
        """Record who used this machine's processors, in a log of its own."""
        if self._machine is None:
            try:
                self._machine = Events(self.inside / FILE)
            except UserError:  # it is not part of the measurement
                return
        fields = asdict(used)
        self._machine.write(fields.pop("t"), USED, **fields)

    def waiting(self, why: str, waited: float, longest: float) -> None:
        """Report to the watcher what the run waits for, how many seconds it has waited, and how many it will at
        most."""
        self._watcher.waiting(why, waited, longest)

    def doing(self, what: str) -> None:
        """Report to the watcher what the run does besides its load."""
        self._watcher.doing(what)

    def searched(self, known: SearchSoFar) -> None:
        """Report to the watcher what a search knows so far."""
        self._watcher.searched(known)

    def note(self, text: str) -> None:
        """Add a note about the data to the report."""
        self.event("note", text=text)

    def save_manifest(self) -> bool:
        """Write the manifest as it is now; returns False if there is no disk space for it."""
        try:
            self.manifest.save(self.inside)
        except OSError:
            return False
        return True

    def discard(self) -> None:
        """Remove the run's directory, because the run has no results."""
        if self.is_there:
            shutil.rmtree(self.directory, ignore_errors=True)
        self._let_go()

    def end(self, status: RunStatus, reason: str) -> None:
        """Write into the manifest how the run ended; raises UserError if the run's directory is gone."""
        self.manifest.status = status
        self.manifest.reason = reason
        self.look_at_clock()
        self.manifest.ended = self.started_wall + self.now()
        self.manifest.pid = None
        if not self.is_there:
            self.save_manifest()  # where the directory is now, if it was moved
            self._let_go()
            raise UserError(
                "--out",
                str(self.directory),
                "the run's directory to exist until the run ends (it is gone)",
            )

    def close(self, passwords: Collection[Path]) -> Path:
        """Close the files; if the disk is full, the whole run except these files with passwords moves to `rescue`."""
        try:
            self._events.close(self.rescue)
            if self._machine is not None:
                self._machine.close(self.rescue)
            if not self.save_manifest() or self.rescue.exists():
                self._move_to_rescue(passwords)
        except OSError as problem:
            # There is no space in either place: only what has reached the disk is left.
            with contextlib.suppress(OSError):
                self.rescue.rmdir()  # fails if the ends of journals are in it
            self.manifest.reason = f"no disk space left, here or in {self.rescue}: {problem.strerror}"
            self.save_manifest()
        self._let_go()
        return self.directory

    def _move_to_rescue(self, passwords: Collection[Path]) -> None:
        """Collect the run's files in `rescue`, which already has the ends of those that did not fit."""
        rescue = HeldDirectory.open_own(self.rescue, make=True)
        gathered = rescue.inside / ".gathered"
        gathered.mkdir(mode=0o700)
        try:
            self._gather(gathered, rescue.inside, {path.resolve() for path in passwords})
        except OSError:
            shutil.rmtree(gathered, ignore_errors=True)
            rescue.close()
            raise
        for path in gathered.iterdir():
            path.replace(rescue.inside / path.name)
        gathered.rmdir()
        rescue.close()
        self.discard()
        self.directory = self.rescue

    def _gather(self, into: Path, tails: Path, passwords: Collection[Path]) -> None:
        for path in self.inside.iterdir():
            if path.resolve() in passwords:
                continue
            with open(new_file(into / path.name), "wb") as whole:
                for part in (path, tails / path.name):
                    if part.exists():
                        with open_file(part) as source:
                            shutil.copyfileobj(source, whole)
        self.manifest.reason = (
            self.manifest.reason
            or f"no disk space left in {self.directory.parent}: the whole run is in {self.rescue}"
        )
        self.manifest.save(into)

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()
