"""Formats numbers as text, for all formats of a report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tippingpoint.analysis.thresholds import FIGURE, RATES
from tippingpoint.util.numbers import (
    known,
    show_number,
    show_points,
    show_quantity,
    show_rate,
    show_rounded,
    show_share,
    show_times,
    show_us,
)
from tippingpoint.util.text import show_amount

LIMIT_NAMES = {
    "p999": "p99.9",
    "error_rate": "error rate",
    "lost_rate": "lost rate",
    "cpu": "CPU",
    FIGURE: "figure",
}
_MOST_SECONDS = 1e10
"""Beyond this, a number of hours is meaningless."""


def number(value: float | None) -> str:
    """Format a count, a load or a derived figure: 16,000."""
    return known(show_number, value)


def amount(value: float | None, unit: str, digits: int | None = None) -> str:
    """Format a load with its unit, and an estimate with this number of `digits`: 1 lease, 16,000 leases."""
    if value is None:
        return f"– {unit}"
    return show_amount(value if digits is None else float(f"{value:.{digits}g}"), unit)


def latency(microseconds: float | None) -> str:
    """Format microseconds with three significant digits and a unit: 412 µs, 3.07 ms, 91.4 s."""
    return known(show_us, microseconds)


def milliseconds(microseconds: float | None) -> str:
    """Format microseconds as milliseconds without a unit, for the columns of a table: 0.412, 12.3, 91,040."""
    return number(None if microseconds is None else microseconds / 1000)


def seconds_of(microseconds: float | None) -> str:
    """Format microseconds as seconds with three decimals, as in Rally's table: 3.803."""
    return "–" if microseconds is None else f"{microseconds / 1e6:,.3f}"


def share(value: float | None) -> str:
    """Format a share in 0..1 as percent; 100 % and 0 % are shown only if exact."""
    return known(show_share, value)


def confidence(value: float) -> str:
    """Format a confidence in 0..1; digits beyond 99.9 % mean nothing."""
    return "> 99.9 %" if value > 0.999 else show_share(value)


def rate(value: float | None) -> str:
    """Format a rate per second: 0.645/s."""
    return known(show_rate, value)


def seconds(value: float | None) -> str:
    """Format a duration in seconds: 0.4 s, 42 s, 3 min 20 s, 1 h 02 min."""
    if value is None:
        return "–"
    if not 60 <= value < _MOST_SECONDS:
        return f"{show_number(value)} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02} min"


def of(share: int, all_shares: int, status: str) -> str:
    """Format a unit's share of the load: 3 of 4."""
    return "–" if status == "idle" else f"{share} of {all_shares}"


def offset(value: float | None, error: float | None) -> str:
    """Format the seconds by which a clock was ahead, with their error: +3.2 ms ± 0.4 ms, -1.8 s ± 2 ms."""
    if value is None:
        return "not measured"
    shown = f"{'-' if value < 0 else '+'}{latency(abs(value) * 1e6)}"
    return shown if error is None else f"{shown} ± {latency(error * 1e6)}"


def clock(value: float) -> str:
    """Format a moment of the run, as on the charts' axis: 1:05, 1:02:30."""
    minutes, rest = divmod(int(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def three_digits(value: float) -> str:
    """Format a derived figure with three digits: 0.123, 1,230."""
    return show_rounded(value, 3)


def two_digits(value: float) -> str:
    """Format an estimate with two digits: 4,200."""
    return show_rounded(value, 2)


def quantity(value: float | None, unit: str) -> str:
    """Format a resource figure with its unit (bytes, bits/s, cores ...) and three significant digits: 412 MB."""
    return "–" if value is None else show_quantity(value, unit)


def measured(value: float | None, limit: str, unit: str = "") -> str:
    """Format a value of a threshold's limit or a comparison's measure with its unit; `unit` is that of a figure."""
    if limit == FIGURE:
        return "–" if value is None else show_quantity(value, unit)
    if limit in RATES:
        return share(value)
    return rate(value) if limit == "throughput" else latency(value)


def limit_name(limit: str) -> str:
    """Format a threshold's limit: p99.9, error rate."""
    return LIMIT_NAMES.get(limit, limit)


def listed(values: Iterable[str]) -> str:
    """Join several words into a list: a, b and c."""
    words = list(values)
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def times(ratio: float | None) -> str:
    """Format a ratio, with two decimals near 1: 0.0042x, 1.25x, 12.3x."""
    return known(show_times, ratio)


def change(value: float | None, measure: str) -> str:
    """Format a comparison's change: a ratio for percentiles, a difference in percentage points for rates."""
    return known(show_points if measure in RATES else show_times, value)


def interval(low: float | None, high: float | None, measure: str) -> str:
    """Format the interval of a change; a side is open if a sample is too small for a bound."""
    if low is None and high is None:
        return "–"
    first, last = (change(bound, measure) if bound is not None else "no bound" for bound in (low, high))
    return f"about {first}" if first == last else f"{first} to {last}"


def published(figure: dict[str, Any]) -> str:
    """Format a published number as in its source: about 30 to 40 ms."""
    value = show_number(figure["value"], 6) + (
        f" to {show_number(figure['to'], 6)}" if figure["to"] is not None else ""
    )
    return " ".join(word for word in (figure["qualifier"], value, figure["unit"]) if word)


def load(at: dict[str, int]) -> str:
    """Format the load of a measurement: 50 members, 5,000 containers."""
    return ", ".join(f"{value:,} {what.replace('_', ' ')}" for what, value in at.items()) or "–"
