"""Profiles of a run's target: their files in the run's directory, and the events about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tippingpoint.rundir.files import read_file
from tippingpoint.rundir.pprof import LARGEST_FILE, Kind, Profile, read_profile
from tippingpoint.util.protobuf import Malformed

TAKEN, NOT_TAKEN = "profile", "no-profile"
_Moment = Annotated[float, Field(allow_inf_nan=False)]
_FILES: Mapping[Kind, str] = {"CPU": "cpu", "lock wait": "lock"}


class TakenProfile(BaseModel):
    """The event `profile`: a profile that was taken in a stage."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    stage: Annotated[int, Field(ge=1)]
    """The stage's number in this run's journals."""
    kind: Kind
    member: Annotated[int, Field(ge=1, le=99)]
    """Which of the addresses in `target.pprof` was asked, from 1."""
    begin: _Moment
    """When it was requested, in seconds since the run's start."""
    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """How long the member was sampled."""

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"profile-{self.stage}-{_FILES[self.kind]}-{self.member}.pb.gz"

    def read(self, directory: Path) -> Profile | None:
        """Return the profile; None if its file is gone or damaged."""
        try:
            return read_profile(read_file(directory / self.file, LARGEST_FILE), self.kind)
        except (OSError, Malformed):
            return None


class NoProfile(BaseModel):
    """The event `no-profile`: why a profile could not be taken in a stage."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    stage: Annotated[int, Field(ge=1)]
    kind: Kind
    problem: Annotated[str, Field(max_length=1000)]
    """Who was asked, and what was wrong, in one line."""


M = TypeVar("M", bound=BaseModel)


def taken_profiles(events: Iterable[Mapping[str, Any]]) -> list[TakenProfile]:
    """Return the profiles named in a run's events; damaged events are left out."""
    return _read(events, TAKEN, TakenProfile)


def profiles_not_taken(events: Iterable[Mapping[str, Any]]) -> list[NoProfile]:
    """Return why profiles of a run could not be taken; damaged events are left out."""
    return _read(events, NOT_TAKEN, NoProfile)


def _read(events: Iterable[Mapping[str, Any]], name: str, model: type[M]) -> list[M]:
    found: list[M] = []
    for event in events:
        if event.get("event") != name:
            continue
        try:
            found.append(model.model_validate(event))
        except ValidationError:
            continue
    return found
