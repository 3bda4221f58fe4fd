"""What a run makes in a target is written down before it is made, so that it can be removed after any end."""

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
from tippingpoint.plan.kinds import DEFAULT, TargetSection, module_of
from tippingpoint.rundir.files import read_file
from tippingpoint.rundir.manifest import Manifest

FILE = "ledger.jsonl"
LARGEST_FILE = 1 << 20
"""Bytes; a run has one entry of a few hundred."""


class Entry(BaseModel, ABC, frozen=True):
    """What a run makes in a target. Each target has an entry of its own: `ENTRY` in the module `ledger` of its package.

    It is all that `clean` has to go by, on another day and from another directory.
    """

    kind: str
    target: TargetSection
    """The target as the plan has it, with the names that it is found by whatever becomes the default meanwhile."""

    @property
    @abstractmethod
    def described(self) -> str:
        """What is removed when this is cleaned up, in words: "the keys below /a/"."""

    @abstractmethod
    def own(self, directory: Path, manifest: Manifest) -> Self:
        """The entry with its files where they are now, in the directory of the run with this manifest.

        UserError for anything that this run cannot have made: whoever wrote the ledger, nothing else is removed.
        """

    @property
    def made_by_workers(self) -> bool:
        """Whether nothing is made before the workers are let in: a run that is refused then has nothing to clean up."""
        return False

    @property
    def always_there(self) -> str:
        """What a run makes first and removes last, in words: "its model". Where cleaning finds nothing, somebody has
        removed it meanwhile. Empty where cleaning may find nothing."""
        return ""

    @property
    def passwords(self) -> list[Path]:
        """Files of the run's directory that are nobody's to read once what the run made is gone."""
        return []


def remember(directory: Path, entry: Entry) -> None:
    """Add an entry to a run's ledger and see it on the disk before anything is made.

    Files that it names are remembered by their absolute paths, so that the target can be cleaned from anywhere.
    UserError when there is no room for the entry.
    """
    target = entry.target.model_copy(update=_anchored(entry.target))
    entry = entry.model_copy(update={**_anchored(entry), "target": target})
    try:
        with open(directory / FILE, "a", encoding="utf-8") as file:
            file.write(entry.model_dump_json() + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise UserError(
            "--out", str(directory), f"a directory with free disk space ({problem.strerror})"
        ) from None


def entries(directory: Path) -> list[Entry]:
    """The ledger of a run; empty when it never made anything. UserError when it cannot be read."""
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
    # A crash in the middle of the write: nothing was made yet under that entry.
    with contextlib.suppress(ValueError):
        found.append(_read(rest))
    return found


def _read(line: bytes) -> Entry:
    """The entry in a line; ValueError where there is none of a target that we know."""
    document: Any = from_json(line)
    if not isinstance(document, dict):
        raise ValueError("no mapping")
    # Ledgers of before there were other targets name no kind.
    kind = cast("dict[str, Any]", document).get("kind", DEFAULT)
    return _entry_of(str(kind)).model_validate_json(line)


@cache
def _entry_of(kind: str) -> type[Entry]:
    try:
        return cast("type[Entry]", module_of(kind, "ledger").ENTRY)
    except LookupError:
        raise ValueError(kind) from None


def _anchored(part: BaseModel) -> dict[str, Path]:
    """The files that a part of an entry names, by their absolute paths."""
    return {name: value.absolute() for name, value in part if isinstance(value, Path)}
