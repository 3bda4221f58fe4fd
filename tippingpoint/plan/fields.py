"""The types that the parts of a plan share."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from tippingpoint.util.durations import ACCEPTED, format_duration, parse_duration

StageKind = Literal["ramp", "find", "storm", "destroy", "recover"]
"""The purpose of a stage: a listed load, a load of a search, a restart storm, a removal, or a
lower load after the last one."""


def _duration(value: object) -> object:
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # a number too large for a double is above any limit
            return math.inf if value > 0 else -math.inf
    raise ValueError(ACCEPTED)


def as_amount(load: float) -> int | float:
    """A load as people write it: 40, not 40.0, but 2.5."""
    return int(load) if load == int(load) else load


def in_units(unit: str) -> dict[str, Any]:
    """The part of a field's JSON schema that names its unit, as the reference of plans shows it."""
    return {"unit": unit}


Seconds = Annotated[
    float,
    BeforeValidator(_duration),
    Field(ge=0, le=7 * 86400, allow_inf_nan=False),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "examples": ["250ms", "30s", "1m30s"]},
                {"type": "number", "minimum": 0},
            ],
            "unit": "seconds",
        }
    ),
]


MAX_LOAD = 10_000_000
_Positive = Annotated[
    float,
    Field(gt=0, strict=True, allow_inf_nan=False),
    PlainSerializer(as_amount, return_type=int | float),
]
Amount = Annotated[_Positive, Field(le=MAX_LOAD)]
"""A load of any unit."""
PerSecond = Annotated[_Positive, Field(le=1_000_000)]
"""A rate."""


def _setting(value: object) -> object:
    """A setting as text. YAML may have read it as a number or a boolean."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Settings = dict[
    Annotated[str, Field(min_length=1, max_length=200)],
    Annotated[str, BeforeValidator(_setting), Field(max_length=10_000)],
]
"""Named settings for a target, such as the parameters of what it makes."""


class Section(BaseModel, extra="forbid", frozen=True):
    """A part of a plan. It refuses unknown fields and never changes; each subclass says `frozen` again for pyright."""
