"""The machine's clocks during a run: a run's times are those of the monotonic clock, and people read the wall clock.

The wall clock may be set during a run, by NTP or by hand. A run has an event for each change, so that a report can
mention it. Prometheus' samples are joined to a run by the time that has passed since it began, which does not change
when a clock is set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tippingpoint.rundir.journal import is_seconds
from tippingpoint.rundir.standstills import asleep
from tippingpoint.util import timing

EVENT = "clock"
"""The event of a change of the wall clock: how far it is `ahead` of what the monotonic clock implies since the run's
start, and the seconds that the machine was `asleep` since then, which the monotonic clock leaves out."""
LEAST = 0.1
"""The smallest change, in seconds, that is worth an event. NTP slews a clock by 0.5 ms a second at most."""
STEP = 0.5
"""Seconds between two consecutive events from which the clock counts as set, and not slewed."""


@dataclass(frozen=True)
class ClockStep:
    """The wall clock was set at a moment of the run."""

    t: float
    seconds: float
    """By how much; negative for a clock that was set back."""


class ClockWatch:
    """Notices that the wall clock was set. All times are in seconds."""

    def __init__(self) -> None:
        self._last = 0.0

    def look(self, t: float, wall: float, slept: float) -> dict[str, float] | None:
        """Return the fields of the event that is due, if any.

        `t` is the time since the run's start, `wall` how far the wall clock has advanced since then, and `slept` how
        long the machine was suspended meanwhile.
        """
        ahead = wall - t
        if abs(ahead - self._last) < LEAST:
            return None
        self._last = ahead
        return {"ahead": round(ahead, 3), "asleep": round(slept, 3)}


def clock_steps(events: Iterable[Mapping[str, Any]]) -> list[ClockStep]:
    """Return when the wall clock was set; time during which the machine was suspended is no step."""
    steps: list[ClockStep] = []
    before = 0.0
    for t, ahead, slept in _changes(events):
        own = ahead - slept
        if abs(own - before) >= STEP:
            steps.append(ClockStep(t, own - before))
        before = own
    return steps


def ahead_at_end(events: Iterable[Mapping[str, Any]]) -> float:
    """Return how far the wall clock was ahead, at a run's end, of what the monotonic clock implies."""
    return next((ahead for _, ahead, _ in reversed(_changes(events))), 0.0)


def _changes(events: Iterable[Mapping[str, Any]]) -> list[tuple[float, float, float]]:
    return [
        (float(event["t"]), float(event["ahead"]), float(event["asleep"]))
        for event in events
        if event["event"] == EVENT
        and all(isinstance(event.get(name), int | float) for name in ("ahead", "asleep"))
        and is_seconds(abs(event["ahead"]))
    ]


def boot_id() -> str:
    """Return the name of this boot of the machine; empty if the kernel does not report it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def since_boot() -> float:
    """Return the seconds since the machine's boot, including those during which it was suspended."""
    return timing.monotonic() + asleep()
