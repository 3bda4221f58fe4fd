"""Formats numbers as text, for all formats of a report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tippingpoint.util.quantities import show_quantity

FIGURE = "at_most"
"""The limit of a threshold on a figure of Prometheus."""
LIMIT_NAMES = {"p999": "p99.9", "error_rate": "error rate", "lost_rate": "lost rate", FIGURE: "figure"}
RATES = ("error_rate", "lost_rate")
_PREFIXES = ("", "k", "M", "G", "T", "P")


def number(value: float | None) -> str:
    """Format a count or a load with separated thousands: 16,000."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:,.3g}"


def latency(microseconds: float | None) -> str:
    """Format microseconds with three significant digits and a unit: 412 µs, 3.07 ms, 91.4 s."""
    if microseconds is None:
        return "–"
    if microseconds < 999.5:
        return f"{microseconds:.0f} µs"
    value, unit = (microseconds / 1e3, "ms") if microseconds < 999_500 else (microseconds / 1e6, "s")
    return f"{value:,.0f} {unit}" if value >= 99.95 else f"{value:.3g} {unit}"


def milliseconds(microseconds: float | None) -> str:
    """Format microseconds as milliseconds without a unit, for the columns of a table: 0.41, 12.3, 91,040."""
    if microseconds is None:
        return "–"
    value = microseconds / 1000
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def seconds_of(microseconds: float | None) -> str:
    """Format microseconds as seconds with three decimals, as in Rally's table: 3.803."""
    return "–" if microseconds is None else f"{microseconds / 1e6:,.3f}"


def share(value: float | None) -> str:
    """Format a share in 0..1 as percent; 100 % or 0 % only if it is exactly that."""
    if value is None:
        return "–"
    percent = value * 100
    if percent in (0.0, 100.0):
        return f"{percent:.0f} %"
    for digits in range(1, 6):
        text = f"{percent:.{digits}f}"
        if float(text) not in (0.0, 100.0):
            return f"{text} %"
    return "< 0.00001 %" if percent < 50 else "> 99.99999 %"


def confidence(value: float) -> str:
    """Format a confidence in 0..1; digits beyond 99.9 % mean nothing."""
    return "> 99.9 %" if value > 0.999 else f"{value * 100:.3g} %"


def rate(value: float | None) -> str:
    """Format a rate per second: 0.645/s."""
    if value is None:
        return "–"
    return f"{value:,.0f}/s" if value >= 100 or float(value).is_integer() else f"{value:.3g}/s"


def seconds(value: float | None) -> str:
    """Format a duration in seconds: 0.4 s, 42 s, 3 min 20 s, 1 h 02 min."""
    if value is None:
        return "–"
    if value < 60:
        return f"{value:.3g} s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def of(share: int, all_shares: int, status: str) -> str:
    """Format a unit's share of the load: 3 of 4."""
    return "–" if status == "idle" else f"{share} of {all_shares}"


def offset(value: float | None, error: float | None) -> str:
    """Format the seconds a clock was ahead, with their error: +3.2 ms ± 0.4 ms, -1.8 s ± 2 ms."""
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
    return number(float(f"{value:.3g}"))


def two_digits(value: float) -> str:
    """Format an estimate with two digits: 4,200."""
    return number(float(f"{value:.2g}"))


def quantity(value: float | None, unit: str) -> str:
    """Format a resource figure with its unit (bytes, bits/s, cores ...) and three significant digits: 412 MB.

    Prefixes are decimal, as usual for networks and in the published results: 1 MB is 10^6 bytes.
    """
    if value is None:
        return "–"
    match unit:
        case "bytes" | "bytes/s":
            return _prefixed(value, "B") + unit.removeprefix("bytes")
        case "bits/s":
            return _prefixed(value, "bit") + "/s"
        case "seconds":
            return latency(value * 1e6) if value >= 0 else f"{value:.3g} s"
        case "ratio":
            return f"{number(float(f'{value * 100:.3g}'))} %"
        case "count":
            return number(float(f"{value:.4g}"))
        case "count/s":
            return f"{number(float(f'{value:.3g}'))}/s"
        case _:
            return f"{number(float(f'{value:.3g}'))} {unit}"


def _prefixed(value: float, unit: str) -> str:
    power = 0
    while abs(value) >= 999.5 and power < len(_PREFIXES) - 1:
        value, power = value / 1000, power + 1
    return f"{float(f'{value:.3g}'):,.4g} {_PREFIXES[power]}{unit}"


def measured(value: float | None, limit: str, unit: str = "") -> str:
    """Format a value of a threshold's limit, or of a comparison's measure, with its unit; `unit` is a figure's."""
    if limit == FIGURE:
        return "–" if value is None else show_quantity(value, unit)
    if limit in RATES:
        return share(value)
    return rate(value) if limit == "throughput" else latency(value)


def limit_name(limit: str) -> str:
    """Format a threshold's limit: p99.9, error rate."""
    return LIMIT_NAMES.get(limit, limit)


def listed(values: Iterable[str]) -> str:
    """Join several words to a list: a, b and c."""
    words = list(values)
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def times(ratio: float | None) -> str:
    """Format a ratio, with two decimals near 1: 0.004x, 1.25x, 12x."""
    if ratio is None:
        return "–"
    if ratio < 0.0995:
        return f"{ratio:.1g}x" if ratio >= 0.001 else "< 0.001x"
    return f"{ratio:.2f}x" if ratio < 9.995 else f"{ratio:,.0f}x"


def change(value: float | None, measure: str) -> str:
    """Format a comparison's change: a ratio for percentiles, a difference in percentage points for rates."""
    if value is None:
        return "–"
    return f"{value * 100:+.3g} points" if measure in RATES else times(value)


def interval(low: float | None, high: float | None, measure: str) -> str:
    """Format the interval of a change; an end is open if a sample is too small for a bound."""
    if low is None and high is None:
        return "–"
    ends = (change(bound, measure) if bound is not None else "no bound" for bound in (low, high))
    return " to ".join(ends)


def published(figure: dict[str, Any]) -> str:
    """Format a published number as in its source: about 30 to 40 ms."""
    value = f"{figure['value']:,.6g}" + (f" to {figure['to']:,.6g}" if figure["to"] is not None else "")
    return " ".join(word for word in (figure["qualifier"], value, figure["unit"]) if word)


def load(at: dict[str, int]) -> str:
    """Format the load of a measurement: 50 members, 5,000 containers."""
    return ", ".join(f"{value:,} {what.replace('_', ' ')}" for what, value in at.items()) or "–"
