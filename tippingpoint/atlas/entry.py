"""Entries of an atlas: the measurements of one release under one load, who can repeat them, and how.

An entry is a directory `entries/NAME` with `entry.yaml`, which people write, and the digest files of its runs.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.digest.digest_file import SUFFIX, load_digest_file
from tippingpoint.errors import UserError
from tippingpoint.plan.packages import kinds
from tippingpoint.plan.read import read_yaml
from tippingpoint.rundir.files import read_file
from tippingpoint.util.text import nearest

ENTRIES = "entries"
"""The folder of an atlas that contains its entries."""
FILE = "entry.yaml"
_LARGEST = 64 << 10
"""The maximum size of an entry's file, in bytes."""
MOST_BYTES = 120 << 10
"""The maximum size of all files of an entry, in bytes: four digest files of a search."""
Line = Annotated[str, Field(min_length=3, max_length=400, pattern=r"^[^\n]*[^\n?]$")]
"""A line; a draft's open question mark is not allowed."""
Command = Annotated[str, Field(min_length=3, max_length=1000)]
NAME = r"^[a-z0-9][a-z0-9.+-]{0,80}$"
"""The pattern of an entry's name."""
Name = Annotated[str, Field(pattern=NAME)]
Verdict = Literal["confirmed", "refuted", "not told"]
Kind = Literal["tips", "p50", "p99", "rate", "failures", "lost", "back", "made", "resource", "cpu"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(_Section):
    """One figure of an entry's runs: from the lowest run to the highest. figures.py says what each kind is."""

    figure: Kind
    of: str = Field(default="", max_length=60)
    """The operation; for `resource`, the query pack's figure; for `back`, the kind of fault."""
    at: float | None = None
    """The load of the stage; null for figures of the whole run."""
    storm: bool = False
    """Whether the stage is a restart storm."""
    low: float | None
    """Null if only an upper bound is known."""
    high: float | None
    """Null if only a lower bound is known, as for a run that did not tip."""


class Claim(_Section):
    """Somebody's claim, and what the runs say about it: this release's figure divided by the other's."""

    source: Line
    """Where the claim is made: a page, or a release's notes."""
    claim: Line
    """What it says, in our words."""
    figure: Line | None = None
    """The figure that bears on the claim, by its words; null if no run here does."""
    against: Name | None = None
    """The entry of the release with which it is compared."""
    expected: tuple[float, float] | None = None
    """The ratio that the claim implies, from lowest to highest."""
    low: float | None = None
    """The lowest ratio that the runs allow."""
    high: float | None = None
    """The highest ratio that the runs allow."""
    says: Verdict
    why: Line
    """The basis of the verdict."""


class Bug(_Section):
    """A bug that was found along the way."""

    what: Line
    command: Command
    """A command that shows it."""
    shows: Line
    """What it prints or does."""


class EntryFile(_Section):
    """The part of an entry that people write."""

    format: Literal[1] = 1
    target: str
    """The kind of target, as in plans."""
    product: Line | None = None
    """The product, if the kind has several: Incus, whose kind is lxd."""
    release: Annotated[str, Field(min_length=1, max_length=60)]
    load: Line
    """The kind of load in a few words: entries with the same words share a table."""
    date: datetime.date
    machine: Line
    """The machine of the target and the generator, and what else ran there."""
    command: Command
    """The command that repeats the measurement from an empty clone."""
    limits: Annotated[list[Line], Field(min_length=1, max_length=10)]
    """What these runs cannot show."""
    figures: Annotated[list[Figure], Field(min_length=1, max_length=30)]
    claims: Annotated[list[Claim], Field(max_length=20)] = []
    bugs: Annotated[list[Bug], Field(max_length=20)] = []


@dataclass(frozen=True)
class Entry:
    """An entry of an atlas, with its runs."""

    directory: Path
    said: EntryFile

    @property
    def name(self) -> str:
        """Its directory's name."""
        return self.directory.name

    @property
    def digests(self) -> list[Path]:
        """The digest files of its runs, in order."""
        return sorted(self.directory.glob(f"*{SUFFIX}"))

    @cached_property
    def runs(self) -> list[Analysis]:
        """Its runs, analysed; raises UserError if one cannot be read."""
        return [analyse(load_digest_file(path)) for path in self.digests]


def entry_directories(atlas: Path) -> list[Path]:
    """Return the directories of an atlas' entries by name; raises UserError if it has no folder of entries."""
    try:
        return sorted(path for path in (atlas / ENTRIES).iterdir() if path.is_dir())
    except OSError:
        raise UserError("DIR", str(atlas), f"an atlas: a directory that has {ENTRIES}/") from None


def read_entry(directory: Path) -> Entry:
    """Return an entry; raises UserError with the field, its value and what would be accepted."""
    file = directory / FILE
    try:
        fields = read_yaml(read_file(file, _LARGEST).decode())
    except OSError as problem:
        raise UserError(str(file), problem.strerror or "unreadable", "a readable file") from None
    except ValueError as problem:
        raise UserError(str(file), str(problem), "YAML") from None
    try:
        said = EntryFile.model_validate(fields)
    except ValidationError as problem:
        raise _explained(file, problem) from None
    if said.target not in kinds():
        raise UserError(f"{file}: target", said.target, f"one of {', '.join(kinds())}")
    return Entry(directory, said)


def _explained(file: Path, problem: ValidationError) -> UserError:
    error = problem.errors(include_url=False)[0]
    path = ".".join(map(str, error["loc"]))
    field = f"{file}: {path}" if path else str(file)
    if error["type"] == "missing":
        return UserError(field, "missing", "a value; it is required")
    if error["type"] == "extra_forbidden":
        known = [*EntryFile.model_fields, *Figure.model_fields, *Claim.model_fields, *Bug.model_fields]
        hint = nearest(str(error["loc"][-1]), known)
        return UserError(field, str(error["input"]), f"no such field{hint}")
    return UserError(field, str(error["input"]), str(error["msg"]).removeprefix("Input should be ").lower())
