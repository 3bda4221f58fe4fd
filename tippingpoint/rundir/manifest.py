"""The manifest: describes a run, beside its journals; it is replaced as a whole at each change."""

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
"""Bytes; a manifest contains a plan and the names of workers."""
RunId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$")]
"""An id that is safe in names on targets and of files: one component of a path, never `.` or `..`."""
Moment = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
"""Seconds since the epoch, until the year 5138."""
Number = Annotated[int, Field(ge=0, le=1 << 48)]
Workload = Literal["claim", "spawn", "grow", "cts", "store", "operate"]
RunStatus = Literal["running", "complete", "interrupted", "aborted", "cut", "failed"]


class Host(BaseModel):
    """The machine that the load came from."""

    cores: Number
    """How many cores the run could use."""
    system: str
    """The kernel, its release and the architecture."""
    python: str
    """The version of Python."""
    tippingpoint: str
    """The version of Tipping Point."""

    @classmethod
    def here(cls) -> Host:
        """Return this machine, with the cores that this process may use."""
        return cls(
            cores=len(os.sched_getaffinity(0)),
            system=f"{platform.system()} {platform.release()} {platform.machine()}",
            python=platform.python_version(),
            tippingpoint=__version__,
        )


class Places(BaseModel):
    """Which processors of the machine the target and the load ran on, if a lab named them."""

    target: list[Number]
    """The target's."""
    workers: list[Number]
    """Those of the workers, and of the process that directs them."""


class TargetEntry(BaseModel):
    """What was tested: its kind, its version as it reports it, and the names of its members."""

    kind: str
    """The kind of target, as in plans."""
    version: str = ""
    """Its version as it reports it."""
    members: list[str] = []
    """The names of its members."""
    controller: str = ""
    """A Juju controller's name in the client's store, by which it is found if the plan names none."""


class WorkerEntry(BaseModel):
    """One worker; `cut` if it ended early."""

    name: str
    """Its name, as in its journal's files."""
    status: Literal["running", "complete", "cut"] = "running"
    """`cut`: it ended before it was told to."""


class Manifest(BaseModel):
    """Describes a run; the journals beside it have what was measured."""

    model_config = ConfigDict(extra="ignore")

    format: Literal[1] = 1
    """The version of this format."""
    id: RunId
    """The run's id, which is also its directory's name."""
    title: str
    """The name in reports: the plan's, or that of an import."""
    source: Literal["run", "import", "baseline"] = "run"
    """Where the run comes from."""
    origin: str = ""
    """The source of an imported run's or baseline's figures, for people."""
    workload: Workload = "claim"
    """What was done to the target."""
    load_unit: str = "leases"
    """What a stage's size counts."""
    timeline: Literal["seconds", "order"] = "seconds"
    """`order` if the source has no common clock: times are positions, and rates are unknown."""
    target: TargetEntry
    """The target, as it was found."""
    plan: dict[str, Any] | None = None
    """The plan with all overrides; null for imports."""
    unit: str = ""
    """The unit, if this is one unit's part of a run of many units."""
    share: tuple[Number, Number] | None = None
    """The unit's share of the plan at the end: its index, of how many."""
    first_stage: Number = 1
    """The listed stage that it began with: a later one than the first if it resumed a run that was cut."""
    things_of: RunId | Literal[""] = ""
    """The run whose things it took over, under their names, if it resumed another one."""
    status: RunStatus = "running"
    """`cut`: the run's process was killed, or could not go on. `aborted`: a threshold with `abort` was missed."""
    reason: str = ""
    """Why the run is not complete, in one line."""
    started: Moment
    """When the run began: seconds since the epoch."""
    ended: Moment | None = None
    """When the run ended: its begin plus how long it took, whatever was done to the machine's clock meanwhile. Null
    while it goes on."""
    boot: str = ""
    """The boot of the machine on which it began (boot_id of the kernel); empty if it is unknown."""
    began_after_boot: Moment | None = None
    """Seconds from that boot to the run's begin, including those during which the machine was suspended."""
    pid: Number | None = None
    """The run's process; null once it has ended."""
    pid_started: Number | None = None
    """When that process began: a pid is reused, but never with the same start."""
    host: Host | None = None
    """The machine that the load came from."""
    places: Places | None = None
    """Where target and workers ran; null without a lab, which shares the machine."""
    workers: list[WorkerEntry] = []
    """The processes that generated the load."""

    def save(self, directory: Path) -> None:
        """Replace the manifest in a run's directory atomically."""
        replace_file(directory / FILE, self.model_dump_json(indent=2) + "\n")

    @classmethod
    def load(cls, directory: Path) -> Manifest:
        """Return the manifest in a run's directory; raises UserError if there is none.

        A run whose status is running but whose process is gone gets the status cut.
        """
        manifest = cls._read(directory)
        if manifest.status == "running" and not manifest._is_alive():
            manifest = cls._read(directory)  # it may have ended in an orderly way between the two checks
            if manifest.status == "running":
                manifest.status = "cut"
                manifest.reason = "the run's process ended unexpectedly"
                for worker in manifest.workers:
                    if worker.status == "running":
                        worker.status = "cut"
        return manifest

    @classmethod
    def _read(cls, directory: Path) -> Manifest:
        try:
            return cls.model_validate_json(read_file(directory / FILE, LARGEST_FILE))
        except FileNotFoundError:
            raise UserError("run", str(directory), f"a run's directory (with {FILE})") from None
        except NotADirectoryError:
            raise UserError("run", str(directory), "a run's directory, not a file") from None
        except (OSError, ValidationError) as problem:
            line = str(problem).splitlines()[0]
            raise UserError("run", str(directory), f"a readable {FILE} ({line})") from None

    def _is_alive(self) -> bool:
        alive = process_started(self.pid) if self.pid is not None else None
        return alive is not None and alive == self.pid_started


def process_started(pid: int) -> int | None:
    """Return when a process began, in clock ticks since boot (proc(5)); None if it is gone or a zombie."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else int(fields[18])


def new_run_id(name: str, started: float) -> str:
    """Return an id that sorts by time and is never used twice: 20261121-040102-etcd-leases-1f3a."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(started))}-{name}-{secrets.token_hex(2)}"
