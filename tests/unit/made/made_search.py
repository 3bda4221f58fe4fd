"""The events of a search made up by hand."""

from __future__ import annotations

from math import log
from typing import Any

FIND = (
    "name: found\nfind: {start: 1000, limit: 64000, hold: 30s}\n"
    "thresholds: [{operation: extend, p99: 100ms}]\n"
)


def probe_made(number: int, size: float, held: bool | None, times: float | None = None) -> dict[str, Any]:
    """One probe of 40 seconds; `times` is what p99 is of its limit."""
    margin = 0.0 if held is None else log(times or (0.5 if held else 3.0))
    return {
        "t": 40.0 * number,
        "event": "probe",
        "stage": number,
        "size": size,
        "held": held,
        "fresh": number == 1,
        "margins": [] if held is None else [["extend p99", margin, 0.1]],
        "broken": ["a worker used 0.99 of its core"] if held is None else [] if held else ["extend p99"],
        "began": 40.0 * (number - 1),
        "seconds": 40.0 if held is None or number % 3 else 15.0,
        "strained": "",
    }


def search_made(limit: float, tried: list[float]) -> list[dict[str, Any]]:
    """Probes of a target whose p99 grows with the third power of the load, and is at its limit at `limit`."""
    return [
        probe_made(number, size, size < limit, (size / limit) ** 3)
        for number, size in enumerate(tried, start=1)
    ]
