"""The agent's state on disk: however an agent ends, the next one finds its orders and its progress.

The file is written before anything is done, and is replaced atomically.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from tippingpoint.agent.prometheus import PrometheusAccess
from tippingpoint.conduct.run_state import SharedRun
from tippingpoint.conduct.search_messages import ClearHold, ProbeReport
from tippingpoint.errors import UserError
from tippingpoint.rundir.files import replace_file

FILE = "agent.json"
Phase = Literal["making", "ready", "up", "over", "failed"]
ENDED: tuple[Phase, ...] = ("over", "failed")


class PartState(BaseModel):
    """This unit's part of a run, and its progress."""

    run: str
    directories: list[str]
    """Names of the directories with its journals, in order; more than one if it was resumed."""
    phase: Phase = "making"
    turn: int = 0
    problem: str = ""
    offset: float | None = None
    offset_error: float | None = None
    again: int = 0
    """In a search that units share, the number of the turn that is no longer this unit's, because its part began
    anew."""
    report: ProbeReport | None = None
    """In a search that units share, what this one measured in the latest turn that it has held."""
    clear: ClearHold | None = None
    """In a search that units share, what this one's share of a turn showed before its hold was over."""


class State(BaseModel):
    """The charm's latest orders, and the part that follows from them."""

    version: Literal[1] = 1
    unit: str = ""
    run: SharedRun | None = None
    target: dict[str, Any] = {}
    """How the target is reached: fields of the plan's target, with secrets by the path of their file only."""
    prometheus: PrometheusAccess | None = None
    """The Prometheus that has the figures of the run's thresholds."""
    reference: str = ""
    part: PartState | None = None
    """The latest part."""

    def save(self, directory: Path) -> None:
        """Replace the file and sync it to disk; raises UserError without disk space."""
        try:
            replace_file(directory / FILE, self.model_dump_json(), mode=0o600, sync=True)
        except OSError as problem:
            raise UserError("--state", str(directory), f"a writable directory ({problem.strerror})") from None

    @classmethod
    def load(cls, directory: Path) -> State:
        """Return what the last agent left; an empty state if there is none, or if it cannot be read."""
        try:
            return cls.model_validate_json((directory / FILE).read_bytes())
        except (OSError, ValidationError):
            return cls()


def lock(directory: Path) -> contextlib.ExitStack:
    """Lock a state directory until this is closed or the process ends; raises UserError if another agent uses it."""
    held = contextlib.ExitStack()
    try:
        fd = os.open(directory / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        held.callback(os.close, fd)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        held.close()
        raise UserError("--state", str(directory), "a directory that no other agent uses now") from None
    except OSError as problem:
        held.close()
        raise UserError("--state", str(directory), f"a writable directory ({problem.strerror})") from None
    return held
