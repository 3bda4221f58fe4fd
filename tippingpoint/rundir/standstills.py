"""Standstills of a worker's event loop: operations in flight then waited for the worker, not for the target."""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from tippingpoint.util import timing

PULSE = 0.1
"""Seconds between two beats. The start of a standstill is known this exactly; a shorter one may go unnoticed.

Waking up for the beats costs an idle worker 0.2 % of a core. Beats every 20 ms would cost 1 %, twice what a client of
two servers a second needs.
"""
LEAST = 0.01
"""Seconds that a beat may be late before it counts as a standstill."""
TOLD = 0.1
"""The shortest standstill, in seconds, that becomes an event of its own."""
_KEPT = 1000
"""How many standstills are remembered: no operation is in flight during more of them."""
_AT_ONCE = 0.01
"""Seconds within which two clocks count as read together."""
_SHARE = 0.5
"""The least share of a standstill that something must have taken to be its cause."""

Cause = Literal["stopped", "busy", "processor", "steal", "suspend", "unknown"]
CAUSES: tuple[Cause, ...] = get_args(Cause)
STALL = "stall"
"""The event of a worker's standstill: its length in `seconds` from its time on, and its `cause` (Cause)."""


@dataclass(frozen=True)
class Stall:
    """A standstill of a worker: `begin` is in seconds after the run's start, `seconds` is its length."""

    worker: str
    begin: float
    seconds: float
    cause: Cause

    @property
    def end(self) -> float:
        """When the worker went on; a suspended machine does not count the time in between."""
        return self.begin + (0.0 if self.cause == "suspend" else self.seconds)


class Pulse:
    """Detects from late beats when the event loop did not run. Moments are on the monotonic clock."""

    __slots__ = ("_begins", "_due", "_ended", "_ends", "_sums")

    def __init__(self) -> None:
        # Sorted, so that a moment is found by bisection: a busy machine has hundreds of standstills, and every
        # operation looks for those in its own time.
        self._begins: list[float] = []
        self._ends: list[float] = []
        self._sums: list[float] = [0.0]
        """The seconds of all standstills before each, and of all."""
        self._ended = float("-inf")
        self._due = float("inf")

    def expect(self, due: float) -> None:
        """Note when the next beat is due."""
        self._due = due

    def beat(self, due: float, now: float) -> float:
        """Note a beat that was due at `due`; returns how many seconds the loop is known to have stood still before
        it."""
        late = now - due
        if late < LEAST:
            return 0.0
        # The standstill began at most one pulse before it was noticed, and is no longer than is proven.
        begin = max(due - min(PULSE, late), self._ended)
        self._begins.append(begin)
        self._ends.append(now)
        self._sums.append(self._sums[-1] + now - begin)
        if len(self._begins) > 2 * _KEPT:
            for kept in (self._begins, self._ends, self._sums):
                del kept[:_KEPT]
        self._ended = now
        return late

    def stopped(self, since: float, until: float) -> float:
        """Return how many seconds of that time the loop stood still; `until` is now or in the past."""
        found = 0.0
        if until - self._due > LEAST:  # the loop has just woken up, and the beat itself has not come yet
            late = until - self._due
            begin = max(self._due - min(PULSE, late), self._ended, since)
            found += max(0.0, until - begin)
        if since < self._ended:
            found += max(0.0, self._before(until) - self._before(since))
        return found

    def _before(self, moment: float) -> float:
        """Return how many seconds the loop had stood still by that moment."""
        index = bisect_left(self._begins, moment)
        return self._sums[index] - max(0.0, self._ends[index - 1] - moment) if index else self._sums[0]


@dataclass(frozen=True)
class _Usage:
    """Usage counters of the process and its machine at a moment, in seconds."""

    ran: float
    waited: float | None
    """How long it was ready to run while no processor was free; None if the kernel does not count that."""
    asleep: float
    """How far the clock that includes suspended time is ahead of the one that excludes it."""


class CauseFinder:
    """Finds out why a process stood still. It looks at each beat, which costs 5 us."""

    def __init__(self) -> None:
        self._fd: int | None = None
        with contextlib.suppress(OSError):
            self._fd = os.open("/proc/self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self._stolen = _stolen()
        self._before = self._usage()

    def look(self) -> None:
        """Take the present counters as the baseline of the next standstill."""
        self._before = self._usage()

    def settle(self) -> None:
        """Take the time stolen so far as reported; to be called each second."""
        self._stolen = _stolen()

    def slept(self) -> float:
        """Return the seconds that the machine was suspended since the last look; the monotonic clock leaves them
        out."""
        return max(0.0, asleep() - self._before.asleep)

    def cause(self, seconds: float) -> Cause:
        """Return what took most of these seconds, which have passed since the last look."""
        now, least = self._usage(), _SHARE * seconds
        if _stolen() - self._stolen >= least:
            return "steal"
        if now.ran - self._before.ran >= least:
            return "busy"
        if now.waited is None or self._before.waited is None:
            return "unknown"
        return "processor" if now.waited - self._before.waited >= least else "stopped"

    def close(self) -> None:
        """Stop looking."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _usage(self) -> _Usage:
        return _Usage(timing.cpu(), self._waited(), asleep())

    def _waited(self) -> float | None:
        if self._fd is None:
            return None
        try:
            return int(os.pread(self._fd, 128, 0).split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return None


def asleep() -> float:
    """Return how many seconds the machine has been suspended since its boot."""
    while True:
        before = timing.monotonic()
        with_sleep = timing.since_boot()
        after = timing.monotonic()
        if after - before < _AT_ONCE:  # else it was stopped between the two clocks
            return with_sleep - after


def _stolen() -> float:
    """Return the seconds in which the hypervisor withheld processors, summed over all of them (proc_stat(5))."""
    try:
        fields = Path("/proc/stat").read_text().partition("\n")[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
