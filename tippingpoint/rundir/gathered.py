"""The units of a run that was gathered from several units, as its events describe them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from tippingpoint.rundir.journal import is_seconds

UNIT = "unit"
"""The event that describes a unit in such a run: the fields of Unit."""
GATHERED = "gathered"
"""The event that marks such a run: `interval` is how many seconds apart its intervals begin."""

UnitStatus = Literal["complete", "cut", "missing", "idle"]


class Unit(BaseModel):
    """One of the units that made a run together; it appears in the run as one worker (see digest/merge.py)."""

    name: str
    """The unit's name, such as `load-claimer/0`."""
    share: int
    """Its position among the units that share the load, from 1."""
    of: int
    """How many units share the load."""
    status: UnitStatus
    """`cut`: its share is missing from some moment on; `missing`: nothing is known of it; `idle`: it had no share."""
    why: str
    """Why the unit is cut, missing or idle, in one line."""
    workers: int
    """How many workers it had."""
    cores: int
    """How many cores it had."""
    clock_offset: float | None
    """Seconds that its clock was ahead of the run's, already subtracted from its times; None if it was not
    measured."""
    clock_error: float | None
    """Seconds by which that measurement may be wrong."""


def units_of(events: Iterable[Mapping[str, Any]]) -> list[Unit]:
    """Return the units in a run's own events; events that cannot be read are left out."""
    units: list[Unit] = []
    for event in events:
        if event["event"] == UNIT:
            with contextlib.suppress(ValidationError):
                units.append(Unit.model_validate(event))
    return units


def gathered_interval(events: Iterable[Mapping[str, Any]]) -> float:
    """Return how many seconds apart the run's intervals begin; 0 for a run that was not gathered."""
    found: list[Any] = [event.get("interval") for event in events if event["event"] == GATHERED]
    return max((float(width) for width in found if is_seconds(width)), default=0.0)
