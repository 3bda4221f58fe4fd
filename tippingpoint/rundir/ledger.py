"""The ledger: what a run makes on a target, written down before it is made, so that it can always be removed."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from functools import cache
from pathlib import Path
from typing import Any, Self, cast

from pydantic import BaseModel
from pydantic_core import from_json

from tippingpoint.errors import UserError
from tippingpoint.plan.kinds import TargetSection
from tippingpoint.plan.packages import module_of
from tippingpoint.rundir.files import read_file
from tippingpoint.rundir.held import by_name
from tippingpoint.rundir.manifest import Manifest

FILE = "ledger.jsonl"
LARGEST_FILE = 1 << 20
"""Bytes; a run has one entry of a few hundred bytes."""
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class Entry(BaseModel, ABC, frozen=True):
    """What a run makes on a target. Each target has an entry class of its own: `ENTRY` in its package's module
    `ledger`.

    It is all that `clean` knows, perhaps on another day and in another directory.
    """

    kind: str
    """The kind of target."""
    target: TargetSection
    """The target as in the plan, with explicit names, so that it is found after defaults have changed."""

    @property
    @abstractmethod
    def described(self) -> str:
        """What cleaning this entry removes, in words: "the keys below /a/"."""

    @abstractmethod
    def own(self, directory: Path, manifest: Manifest) -> Self:
        """Return the entry with its files at their present paths, in the directory of the run with this manifest.

        Raises UserError for anything that this run cannot have made. Anybody may have written the ledger, so nothing
        else may be removed.
        """

    @property
    def made_by_workers(self) -> bool:
        """Whether nothing is made before the workers have logged in: then a refused run has nothing to remove."""
        return False

    @property
    def always_there(self) -> str:
        """What a run makes first and removes last, in words: "its model".

        If cleaning finds nothing, somebody else removed it. Empty if cleaning may find nothing anyway.
        """
        return ""

    @property
    def passwords(self) -> list[Path]:
        """Files in the run's directory with passwords, to be deleted once the things of the run are removed."""
        return []


def remember(directory: Path, entry: Entry) -> None:
    """Add an entry to a run's ledger, and sync it to disk before anything is made.

    Files that it names are stored with absolute paths, so that the target can be cleaned from any directory. Raises
    UserError when there is no disk space for the entry.
    """
    target = entry.target.model_copy(update=_anchored(entry.target))
    entry = entry.model_copy(update={**_anchored(entry), "target": target})
    try:
        with open(os.open(directory / FILE, _APPEND, 0o644), "a", encoding="utf-8") as file:
            file.write(entry.model_dump_json() + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise UserError(
            "--out", str(by_name(directory)), f"a directory with free disk space ({problem.strerror})"
        ) from None


def entries(directory: Path) -> list[Entry]:
    """Return a run's ledger; empty if it never made anything. Raises UserError when it cannot be read."""
    path = directory / FILE
    try:
        *lines, rest = read_file(path, LARGEST_FILE).split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as problem:
        raise UserError("ledger", str(path), f"a readable file ({problem.strerror})") from None
    found: list[Entry] = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(_read(line))
        except ValueError:
            raise UserError("ledger", f"{path}:{number}", "a ledger entry") from None
    # A partial last line is a crash in the middle of the write: nothing was made under that entry yet.
    with contextlib.suppress(ValueError):
        found.append(_read(rest))
    return found


def _read(line: bytes) -> Entry:
    """Return the entry in a line; raises ValueError for anything else, or for an unknown target."""
    document: Any = from_json(line)
    if not isinstance(document, dict):
        raise ValueError("no mapping")
    kind = cast("dict[str, Any]", document).get("kind")
    return _entry_of(str(kind)).model_validate_json(line)


@cache
def _entry_of(kind: str) -> type[Entry]:
    try:
        return cast("type[Entry]", module_of(kind, "ledger").ENTRY)
    except LookupError:
        raise ValueError(kind) from None


def _anchored(part: BaseModel) -> dict[str, Path]:
    """Return the files that a part of an entry names, with absolute paths."""
    return {name: by_name(value).absolute() for name, value in part if isinstance(value, Path)}
