"""What the agent does now, kept on the disk: whatever ends it, the next one finds what it was told and how far it was.

It is written before anything is done by it, and replaced whole.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from tippingpoint.errors import UserError
from tippingpoint.units.shared_run import SharedRun

FILE = "agent.json"
Phase = Literal["making", "ready", "up", "over", "failed"]
ENDED: tuple[Phase, ...] = ("over", "failed")


class PartState(BaseModel):
    """This unit's part of a run, as far as it is."""

    run: str
    directories: list[str]
    """Names of the directories with its journals, in order: more than one where it was taken up again."""
    phase: Phase = "making"
    turn: int = 0
    problem: str = ""
    offset: float | None = None
    offset_error: float | None = None


class State(BaseModel):
    """What the charm told last, and what the agent made of it."""

    version: Literal[1] = 1
    unit: str = ""
    run: SharedRun | None = None
    target: dict[str, Any] = {}
    """How the target is reached: fields of the plan's target, with secrets by the path of their file only."""
    reference: str = ""
    part: PartState | None = None
    """The last part there was."""

    def save(self, directory: Path) -> None:
        """Replace the file and see it on the disk; UserError when there is no room for it."""
        fresh = directory / f"{FILE}.new"
        try:
            fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(fd, "w", encoding="utf-8") as file:
                file.write(self.model_dump_json())
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(directory / FILE)
        except OSError as problem:
            raise UserError("--state", str(directory), f"a writable directory ({problem.strerror})") from None

    @classmethod
    def load(cls, directory: Path) -> State:
        """What the last agent here left; nothing where there was none, or it cannot be understood any more."""
        try:
            return cls.model_validate_json((directory / FILE).read_bytes())
        except (OSError, ValidationError):
            return cls()


def lock(directory: Path) -> contextlib.ExitStack:
    """Keep other agents out of a state directory until this is closed, or we are gone; UserError where one is there."""
    held = contextlib.ExitStack()
    try:
        fd = os.open(directory / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        held.callback(os.close, fd)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        held.close()
        raise UserError("--state", str(directory), "a directory that no other agent uses now") from None
    except OSError as problem:
        held.close()
        raise UserError("--state", str(directory), f"a writable directory ({problem.strerror})") from None
    return held
