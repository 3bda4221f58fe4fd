"""Limits of figures as people write them, with their unit: 10ms, 300MB, 0.9."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from tippingpoint.util.durations import parse_duration

ACCEPTED = "a number above 0, a duration such as 10ms, or a size such as 300MB"
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kMGT]?)(i?)B")
_PREFIXES = "kMGT"


class Quantity(NamedTuple):
    """A value and its unit: seconds, bytes, or none where the text had none."""

    value: float
    unit: str


def parse_quantity(text: str) -> Quantity:
    """Return the value of a text such as `10ms`, `300MB`, `1GiB` or `0.9`; 1 MB is 10^6 bytes, 1 MiB is 2^20.

    Raises ValueError that names what would be accepted.
    """
    found = _read(text.strip())
    if found is None or not 0 < found.value < math.inf:
        raise ValueError(ACCEPTED)
    return found


def _read(text: str) -> Quantity | None:
    size = _SIZE.fullmatch(text)
    if size is not None:
        power = _PREFIXES.index(size[2]) + 1 if size[2] else 0
        return Quantity(float(size[1]) * (1024.0 if size[3] else 1000.0) ** power, "bytes")
    try:
        return Quantity(float(text), "")
    except ValueError:
        pass
    try:
        return Quantity(parse_duration(text), "seconds")
    except ValueError:
        return None
