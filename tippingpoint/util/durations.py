"""Durations as people write them: 30s, 1m30s, 250ms, 2h."""

from __future__ import annotations

import re
from decimal import Decimal

_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|s|m|h)")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
ACCEPTED = "a duration such as 250ms, 30s, 1m30s or a number of seconds"


def parse_duration(text: str) -> float:
    """The seconds in a duration such as `1m30.5s`; ValueError says what would be accepted."""
    text = text.strip()
    try:
        return float(text)
    except ValueError:
        pass
    total, end = 0.0, 0
    for part in _PARTS.finditer(text):
        if part.start() != end:
            break
        total += float(part[1]) * _SECONDS[part[2]]
        end = part.end()
    if not text or end != len(text):
        raise ValueError(ACCEPTED)
    return total


def format_duration(seconds: float) -> str:
    """Whole minutes, milliseconds or seconds: what parses back to exactly the same number."""
    exact = Decimal(repr(seconds))
    if exact >= 60 and exact % 60 == 0:
        return f"{exact / 60:.0f}m"
    milliseconds = f"{(exact * 1000).normalize():f}ms"
    if 0 < exact < 1 and parse_duration(milliseconds) == seconds:
        return milliseconds
    return f"{exact.normalize():f}s"


def show_us(microseconds: float) -> str:
    """A latency for people: three significant digits in us, ms or s."""
    if microseconds < 1000:
        return f"{microseconds:.0f} us"
    if microseconds < 999_500:
        return f"{microseconds / 1000:.3g} ms"
    return f"{microseconds / 1e6:.3g} s" if microseconds < 999.5e6 else f"{microseconds / 1e6:.0f} s"


def show_moment(seconds: float) -> str:
    """A moment of a run for people: 12.3 s; from two minutes on 2:05, 1:02:05."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
