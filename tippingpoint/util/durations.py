"""Durations as people write them: 30s, 1m30s, 250ms, 2h."""

from __future__ import annotations

import re
from decimal import Decimal

_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ns": 1e-9}
_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|s|m|h)")
_GO_PARTS = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
ACCEPTED = "a duration such as 250ms, 30s, 1m30s or a number of seconds"


def parse_duration(text: str) -> float:
    """Return the seconds in a duration such as `1m30.5s`; raises ValueError that names what would be accepted."""
    text = text.strip()
    try:
        return float(text)
    except ValueError:
        pass
    total = _sum(text, _PARTS)
    if total is None:
        raise ValueError(ACCEPTED)
    return total


def parse_go_duration(text: str) -> float | None:
    """Return the seconds in a text printed by Go's time.Duration (`1m31.99s`, `123ms`, `47µs`); None for others."""
    return _sum(text, _GO_PARTS)


def _sum(text: str, parts: re.Pattern[str]) -> float | None:
    """Return the seconds in a text made only of such parts (a number and a unit each); None for other text."""
    total, end = 0.0, 0
    while (part := parts.match(text, end)) is not None:
        total += float(part[1]) * _SECONDS[part[2]]
        end = part.end()
    return total if text and end == len(text) else None


def format_duration(seconds: float) -> str:
    """Return a duration as whole minutes, milliseconds or seconds; the text parses back to exactly the same number."""
    exact = Decimal(repr(seconds))
    if exact >= 60 and exact % 60 == 0:
        return f"{exact / 60:.0f}m"
    milliseconds = f"{(exact * 1000).normalize():f}ms"
    if 0 < exact < 1 and parse_duration(milliseconds) == seconds:
        return milliseconds
    return f"{exact.normalize():f}s"


def show_moment(seconds: float) -> str:
    """Return a moment of a run for people: 12.3 s, and 2:05 or 1:02:05 from two minutes on."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def show_span(seconds: float) -> str:
    """Return a span of time for people, in whole seconds: 42 s, 3 min 20 s, 1 h 02 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02} min"
