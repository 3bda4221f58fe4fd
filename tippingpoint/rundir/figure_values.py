"""The event `figure` of a run: the value of a Prometheus figure in a stage, for a threshold on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

EVENT = "figure"
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class FigureValue(BaseModel):
    """The value of a figure in a stage."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    stage: Annotated[int, Field(ge=1)]
    """The stage's number in this run's journals."""
    name: str
    """The figure and the hosts that it is for, as in Threshold.subject."""
    value: _Finite | None
    """The largest value, in the figure's unit; null if nothing was measured."""
    host: str = ""
    """The host that had it."""
    error: _Finite | None = None
    """The standard error of the value's logarithm from sampling; null if it is unknown."""
    why: str = ""
    """Why the value is unknown, or does not cover all hosts; empty if it does."""


def figure_values(events: Iterable[Mapping[str, Any]]) -> dict[int, dict[str, FigureValue]]:
    """Return the values of a run's events by stage and name; damaged ones are left out."""
    found: dict[int, dict[str, FigureValue]] = {}
    for event in events:
        if event.get("event") != EVENT:
            continue
        try:
            value = FigureValue.model_validate(event)
        except ValidationError:
            continue
        found.setdefault(value.stage, {})[value.name] = value
    return found
