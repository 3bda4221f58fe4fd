"""What the parts of a plan are made of."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, WithJsonSchema

from tippingpoint.util.durations import ACCEPTED, format_duration, parse_duration

StageKind = Literal["ramp", "find", "confirm", "storm", "destroy"]
"""What a stage is for: listed loads that are brought up, a search's, a restart storm, or a removal."""


def _duration(value: object) -> object:
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:  # more than a double can be is more than any limit
            return math.inf if value > 0 else -math.inf
    raise ValueError(ACCEPTED)


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
            ]
        }
    ),
]


class Section(BaseModel, extra="forbid", frozen=True):
    """A part of a plan: it has no fields but its own, and never changes (each says so, for who checks types)."""
