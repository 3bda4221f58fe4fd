"""The manifest: what a run was, kept beside its journals and replaced whole at each change."""

from __future__ import annotations

import os
import platform
import secrets
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tippingpoint import __version__
from tippingpoint.errors import UserError
from tippingpoint.rundir.files import read_file, replace_file

FILE = "manifest.json"
LARGEST_FILE = 16 << 20
"""Bytes; a manifest has a plan in it, and names of workers."""
RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$")]
"""What names in targets and of files are made of: one part of a path, and never `.` or `..`."""
Workload = Literal["claim", "spawn", "grow"]
RunStatus = Literal["running", "complete", "interrupted", "cut", "failed"]


class Host(BaseModel):
    """Where the load came from."""

    cores: int
    system: str
    python: str
    tippingpoint: str

    @classmethod
    def here(cls) -> Host:
        """This machine, with the cores this process may use."""
        return cls(
            cores=len(os.sched_getaffinity(0)),
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            python=platform.python_version(),
            tippingpoint=__version__,
        )


class TargetEntry(BaseModel):
    """What was tested: kind, version as the target itself says, names of its members."""

    kind: str
    version: str = ""
    members: list[str] = []
    controller: str = ""
    """A Juju controller's name in the client's store, which finds it when the plan does not say one."""


class WorkerEntry(BaseModel):
    """One worker: `cut` when it ended before it was told to."""

    name: str
    status: Literal["running", "complete", "cut"] = "running"


class Manifest(BaseModel):
    """What a run was; the journals beside it say how it went."""

    model_config = ConfigDict(extra="ignore")

    format: Literal[1] = 1
    id: RunId
    title: str
    source: Literal["run", "import", "baseline"] = "run"
    origin: str = ""
    """Where an imported run's or baseline's figures come from, for people."""
    workload: Workload = "claim"
    """As it was called when the run was made: see kinds.workload_of."""
    load_unit: str = "leases"
    """What a stage's size counts."""
    timeline: Literal["seconds", "order"] = "seconds"
    """`order` when the source gives no common clock: times are positions, rates are unknown."""
    target: TargetEntry
    plan: dict[str, Any] | None = None
    unit: str = ""
    """The unit whose part of a run of many units this is."""
    share: tuple[int, int] | None = None
    """Which part of the plan that was in the end: the unit's position, of so many."""
    first_stage: int = 1
    """The listed stage that it began with: a later one where it went on with a run that was cut."""
    things_of: RunId | Literal[""] = ""
    """The run whose things it has, under their names, where it went on with another one."""
    status: RunStatus = "running"
    reason: str = ""
    started: float
    ended: float | None = None
    pid: int | None = None
    pid_started: int | None = None
    """When that process began: a pid is used again, a pid with its beginning is not."""
    host: Host | None = None
    workers: list[WorkerEntry] = []
    counted: bool = False
    """Whether its journals say how much was written, so that what is missing of them is found (damage.py)."""

    def save(self, directory: Path) -> None:
        """Replace the manifest in a run's directory; a reader sees the old one or the new one, whole."""
        replace_file(directory / FILE, self.model_dump_json(indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Manifest:
        """The manifest of a run's directory; UserError when there is none.

        A run that says it is running but whose process is gone was cut.
        """
        try:
            manifest = cls.model_validate_json(read_file(directory / FILE, LARGEST_FILE))
        except FileNotFoundError:
            raise UserError("run", str(directory), f"a run's directory (with {FILE})") from None
        except NotADirectoryError:
            raise UserError("run", str(directory), "a run's directory, not a file") from None
        except (OSError, ValidationError) as problem:
            line = str(problem).splitlines()[0]
            raise UserError("run", str(directory), f"a readable {FILE} ({line})") from None
        alive = process_started(manifest.pid) if manifest.pid is not None else None
        if manifest.status == "running" and (alive is None or alive != manifest.pid_started):
            manifest.status = "cut"
            manifest.reason = "the run's process is gone without having ended it"
            for worker in manifest.workers:
                if worker.status == "running":
                    worker.status = "cut"
        return manifest


def process_started(pid: int) -> int | None:
    """When a process began, in clock ticks since boot (proc(5)); None when it is gone, or only a zombie of it."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else int(fields[18])


def new_run_id(name: str, started: float) -> str:
    """An id that sorts by time and is never used twice: 20261121-040102-etcd-leases-1f3a."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(started))}-{name}-{secrets.token_hex(2)}"
