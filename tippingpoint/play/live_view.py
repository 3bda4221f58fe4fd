"""What a terminal shows of a run in progress: a few lines as wide as the terminal, without a widget library.

They show the last known state, so another thread can redraw them repeatedly with a running clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10

from rich.text import Text

from tippingpoint.plan.lasting import Lasting
from tippingpoint.util.durations import show_span
from tippingpoint.util.numbers import show_us

WIDEST = 160
"""The most columns that are used of a wider terminal."""
_MOST_ROWS = 6
"""The most operations that are listed."""
_TURNING = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_LEVELS = "▁▂▃▄▅▆▇█"
_LEAST_SPARKS = 8
_MOST_SPARKS = 60
_ECHO = 3
"""Columns left free for the ^C that a terminal shows, which would otherwise begin a new line at the right edge."""


@dataclass(frozen=True)
class OperationRow:
    """The latest figures of an operation, in microseconds."""

    name: str
    p50: float
    p99: float
    limit: float | None
    """The limit of its p99 in the plan; None without one."""
    before: Sequence[float]
    """Its p99 second by second, the latest last."""


@dataclass(frozen=True)
class Known:
    """What is known about a run at a moment."""

    title: str
    """The plan's name."""
    doing: str = ""
    """The current activity: stage 3 of 7, hold."""
    parts: tuple[float, float] | None = None
    """How much of the current activity is done, of how much; None if that is unknown."""
    elapsed: float = 0.0
    """Seconds since the run began."""
    left: Lasting | None = None
    """The time until the load is over."""
    searched: str = ""
    """What a search knows so far."""
    load: str = ""
    """The current load: 1,000 of 1,000 leases."""
    rate: str = ""
    rates: Sequence[float] = ()
    """The rate second by second, the latest last."""
    counted: Sequence[tuple[str, int]] = ()
    """What is counted, such as errors, by name."""
    operations: Sequence[OperationRow] = ()
    stopping: bool = False


def lines_of(known: Known, width: int, since: float, *, plain: bool = False) -> list[Text]:
    """Return the lines about a run, `since` seconds after `known` was taken; `plain` uses ASCII letters only."""
    width = min(width - _ECHO, WIDEST)
    lines = [_head(known, width, since, plain=plain)]
    if known.parts is not None:
        lines.append(_bar(*known.parts, width, plain=plain))
    if known.searched:
        lines.append(Text(f"so far: {known.searched}"))
    if known.load:
        lines.append(_load(known, width, plain=plain))
    lines += _operations(known.operations, width, plain=plain)
    for line in lines:
        line.truncate(width, overflow="crop" if plain else "ellipsis")
    return lines


def spark(values: Sequence[float], wide: int, *, log: bool = False) -> str:
    """Draw the last values as bars of eight heights, the largest as the highest; with `log` on a logarithmic scale."""
    shown = list(values)[-wide:]
    if not shown:
        return ""
    heights = [log10(max(value, 1.0)) for value in shown] if log else shown
    least, most = (min(heights), max(heights)) if log else (0.0, max(heights))
    if most <= least:
        return _LEVELS[0] * len(heights)
    top = len(_LEVELS) - 1
    return "".join(_LEVELS[round((height - least) / (most - least) * top)] for height in heights)


def _head(known: Known, width: int, since: float, *, plain: bool) -> Text:
    elapsed = known.elapsed + since
    times = show_span(elapsed)
    if known.left is not None and not known.stopping:
        left = max(0.0, known.left.seconds - since)
        times += f", {Lasting(left, known.left.bound).words} left"
    turning = ("|/-\\" if plain else _TURNING)[int(elapsed * 4) % (4 if plain else len(_TURNING))]
    left_side = Text(f"{turning} ", style="cyan")
    left_side.append(known.title, style="bold")
    left_side.append(f"  {known.doing}", style="yellow" if known.stopping else "")
    room = width - len(times) - 2
    left_side.truncate(max(10, room), overflow="crop" if plain else "ellipsis", pad=True)
    return left_side.append("  ").append(times)


def _bar(done: float, goal: float, width: int, *, plain: bool) -> Text:
    filled = round(width * min(1.0, done / goal)) if goal > 0 else 0
    bar = Text(("#" if plain else "━") * filled, style="cyan")
    return bar.append(("-" if plain else "━") * (width - filled), style="bright_black")


def _load(known: Known, width: int, *, plain: bool) -> Text:
    line = Text(known.load)
    if known.rate:
        line.append(f"   {known.rate}")
    for name, count in known.counted:
        line.append("   ")
        line.append(f"{name} {count:,}", style="bold red" if count and name in ("errors", "lost") else "")
    room = min(_MOST_SPARKS, width - len(line) - 3)
    if not plain and known.rate and room >= _LEAST_SPARKS:
        line.append("   ").append(spark(known.rates, room), style="cyan")
    return line


def _operations(rows: Sequence[OperationRow], width: int, *, plain: bool) -> list[Text]:
    if not rows:
        return []
    shown = rows[:_MOST_ROWS]
    wide = max(9, *(len(row.name) for row in shown))
    has_limits = any(row.limit is not None for row in shown)
    columns = ["p50", "p99", *(["threshold"] if has_limits else [])]
    head = " " * wide + "".join(f" {column:>9}" for column in columns)
    room = min(_MOST_SPARKS, width - len(head) - 2)
    graph = "" if plain or room < _LEAST_SPARKS + 4 else "  p99 so far"
    lines = [Text(head + graph, style="bright_black")]
    for row in shown:
        line = Text(f"{row.name:{wide}} {show_us(row.p50):>9} ")
        beyond = row.limit is not None and row.p99 > row.limit
        line.append(f"{show_us(row.p99):>9}", style="yellow" if beyond else "")
        if has_limits:
            line.append(f" {'' if row.limit is None else show_us(row.limit):>9}")
        if graph:
            line.append("  ").append(spark(row.before, room, log=True), style="yellow" if beyond else "cyan")
        lines.append(line)
    if len(rows) > len(shown):
        lines.append(Text(f"and {len(rows) - len(shown)} more operations", style="bright_black"))
    return lines
