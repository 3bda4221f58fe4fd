"""Writes numbers as people read them: the same value looks the same in sentences, tables, logs and on a terminal.

No number has an exponent, thousands are separated (1,260), and a value that is not zero is not shown as zero. What a
program reads, such as JSON, keeps the numbers themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from math import floor, isfinite, isnan, log10

_LEAST = 1e-6
"""Smaller values are only described as such."""
_MOST = 1e15
"""Nobody reads digits beyond this."""
_LEAST_PERCENT = 0.001
_LEAST_TIMES = 0.001
_PREFIXES = ("", "k", "M", "G", "T", "P")


def show_number(value: float, digits: int = 3) -> str:
    """Return a number with at least this many significant digits: 0.00123, 12.3, 1,234; a whole one in full."""
    beyond = _beyond(value, _LEAST)
    if beyond is not None:
        return beyond
    decimals = max(0, digits - 1 - floor(log10(abs(value)))) if value else 0
    text = f"{value:,.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return text if text != "-0" else "0"


def show_value(value: object) -> str:
    """Return a value from an event as text: measured numbers as show_number does, anything else unchanged."""
    return show_number(value) if isinstance(value, float) else str(value)


def show_rounded(value: float, digits: int) -> str:
    """Return an estimate with this many significant digits, even before the decimal point: 4,200."""
    return show_number(float(f"{value:.{digits}g}"), digits)


def show_share(share: float) -> str:
    """Return a share in 0..1 as a percentage: 0.52 %. It is 0 % or 100 % only if it is exactly that."""
    percent = share * 100
    beyond = _beyond(percent, _LEAST_PERCENT)
    if beyond is not None:
        return f"{beyond} %"
    for digits in range(3, 7):
        text = show_number(percent, digits)
        if text != "100" or percent == 100:
            return f"{text} %"
    return "more than 99.999 %" if percent < 100 else "100 %"


def show_points(difference: float) -> str:
    """Return a difference of two shares in percentage points: +0.12 points."""
    sign = "" if difference == 0 or isnan(difference) else "-" if difference < 0 else "+"
    text = show_number(abs(difference) * 100)
    return f"{text} points" if text.startswith("less than") else f"{sign}{text} points"


def show_rate(per_second: float) -> str:
    """Return a rate: 0.645/s, 1,260/s."""
    return f"{show_number(per_second)}/s"


def show_times(ratio: float) -> str:
    """Return a ratio with two decimals near 1, else two or three significant digits: 0.079x, 1.25x, 2x, 14.3x."""
    if 0 < ratio < _LEAST_TIMES:
        return f"less than {show_number(_LEAST_TIMES)}x"
    if 0.0995 <= ratio < 9.995:
        return f"{show_number(round(ratio, 2))}x"
    return f"{show_number(ratio, 2 if ratio < 1 else 3)}x"


def show_us(microseconds: float) -> str:
    """Return a latency with three significant digits and a unit: 412 µs, 3.07 ms, 91.4 s, 1,234 s."""
    size = abs(microseconds)
    if 0 < size <= 0.5:  # which rounds to 0
        return "less than 1 µs" if microseconds > 0 else "more than -1 µs"
    if size < 999.5:
        return f"{show_number(round(microseconds))} µs"
    return (
        f"{show_number(microseconds / 1e3)} ms" if size < 999_500 else f"{show_number(microseconds / 1e6)} s"
    )


def show_quantity(value: float, unit: str) -> str:
    """Return a figure with its unit and three significant digits: 12.3 ms, 312 MB, 96 %, 0.9, 150.

    `unit` is seconds, bytes, bytes/s, bits/s, ratio, count, count/s, any other word, or empty. 1 MB is 10^6 bytes.
    """
    match unit:
        case "bytes" | "bytes/s":
            return _prefixed(value, "B") + unit.removeprefix("bytes")
        case "bits/s":
            return _prefixed(value, "bit") + "/s"
        case "seconds":
            return show_us(value * 1e6)
        case "ratio":
            return show_share(value)
        case "count/s":
            return show_rate(value)
        case "" | "count":
            return show_number(value)
        case _:
            return f"{show_number(value)} {unit}"


def _prefixed(value: float, unit: str) -> str:
    power = 0
    while abs(value) >= 999.5 and isfinite(value) and power < len(_PREFIXES) - 1:
        value, power = value / 1000, power + 1
    return f"{show_number(value)} {_PREFIXES[power]}{unit}"


def known(show: Callable[[float], str], value: float | None, unknown: str = "–") -> str:
    """Return the value in the form that `show` gives it; a dash, or another word, for one that was not measured."""
    return unknown if value is None else show(value)


def _beyond(value: float, least: float) -> str | None:
    """Return the words for a value so small or large that nobody reads its digits; None for any other."""
    if isnan(value):
        return "unknown"
    if not isfinite(value):
        return "∞" if value > 0 else "-∞"
    if 0 < abs(value) < least:
        near = f"{least:.6f}".rstrip("0")
        return f"less than {near}" if value > 0 else f"more than -{near}"
    if abs(value) >= _MOST:
        return "over 999 trillion" if value > 0 else "below -999 trillion"
    return None
