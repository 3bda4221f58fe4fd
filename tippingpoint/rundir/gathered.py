"""What a run says of the units that made it together, when it was gathered from several."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from tippingpoint.rundir.journal import is_seconds

UNIT = "unit"
"""The event that tells of a unit in a run that was gathered from several: the fields of Unit."""
GATHERED = "gathered"
"""The event that says so: `interval` is how many seconds apart from each other its intervals begin."""

UnitStatus = Literal["complete", "cut", "missing", "idle"]


class Unit(BaseModel):
    """One of the units that made a run together, each of which stands as one worker in it (see units/merge.py)."""

    name: str
    share: int
    """Its place among those that share the load, from 1."""
    of: int
    status: UnitStatus
    """`cut`: its share is missing from some moment on; `missing`: nothing is known of it; `idle`: it had none."""
    why: str
    """Why it is cut, missing or idle, in one line."""
    workers: int
    cores: int
    clock_offset: float | None
    """Seconds that its clock was ahead of the run's, which its times are freed of; None when nobody measured it."""
    clock_error: float | None


def units_of(events: Iterable[Mapping[str, Any]]) -> list[Unit]:
    """The units that a run's own events tell of; those that cannot be read are left out."""
    units: list[Unit] = []
    for event in events:
        if event["event"] == UNIT:
            with contextlib.suppress(ValidationError):
                units.append(Unit.model_validate(event))
    return units


def gathered_interval(events: Iterable[Mapping[str, Any]]) -> float:
    """How many seconds apart its intervals begin; 0 when it was not gathered."""
    found: list[Any] = [event.get("interval") for event in events if event["event"] == GATHERED]
    return max((float(width) for width in found if is_seconds(width)), default=0.0)
