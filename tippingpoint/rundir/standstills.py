"""When a worker's event loop stood still: what waited meanwhile waited for the worker, not for the target."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

PULSE = 0.1
"""Seconds between two beats: how exactly the begin of a standstill is known, and how short one may be and not be seen.

An idle worker that wakes up for them takes 0.2 % of a core, and 1 % with beats of 20 ms, which is twice what a client
of two servers a second takes.
"""
LEAST = 0.01
"""Seconds that a beat may be late without anything being a standstill."""
TOLD = 0.1
"""Seconds from which on a standstill is an event of its own."""
_KEPT = 1000
"""How many standstills are remembered: an operation is not under way through more of them."""
_AT_ONCE = 0.01
"""Seconds within which two clocks are read together."""
_SHARE = 0.5
"""The least share of a standstill that something took for it to be its cause."""

Cause = Literal["stopped", "busy", "processor", "steal", "suspend", "unknown"]
CAUSES: tuple[Cause, ...] = get_args(Cause)
STALL = "stall"
"""The event that a worker stood still: for how many `seconds` from its time on, and its `cause` (Cause)."""


@dataclass(frozen=True)
class Stall:
    """A worker that stood still for a while: `begin` seconds after the run's start, for so many `seconds`."""

    worker: str
    begin: float
    seconds: float
    cause: Cause

    @property
    def end(self) -> float:
        """When it went on; a machine that was suspended has no time in between."""
        return self.begin + (0.0 if self.cause == "suspend" else self.seconds)


class Pulse:
    """Knows from beats that come late when the event loop did not run. Moments are on the monotonic clock."""

    __slots__ = ("_due", "_ended", "_stalls")

    def __init__(self) -> None:
        self._stalls: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._ended = float("-inf")
        self._due = float("inf")

    def expect(self, due: float) -> None:
        """The next beat is due then."""
        self._due = due

    def beat(self, due: float, now: float) -> float:
        """A beat that was due then; returns for how many seconds the loop is known to have stood still before it."""
        late = now - due
        if late < LEAST:
            return 0.0
        # It stood still some time before it was found out, at most for one pulse, and no longer than is proven.
        begin = max(due - min(PULSE, late), self._ended)
        self._stalls.append((begin, now))
        self._ended = now
        return late

    def stopped(self, since: float, until: float) -> float:
        """For how many seconds of that time the loop stood still; `until` is now, or has passed."""
        found = 0.0
        if until - self._due > LEAST:  # it has just woken up, and the beat itself has not come yet
            late = until - self._due
            begin = max(self._due - min(PULSE, late), self._ended, since)
            found += max(0.0, until - begin)
        if since < self._ended:
            for begin, end in reversed(self._stalls):
                if end <= since:
                    break
                found += max(0.0, min(end, until) - max(begin, since))
        return found


@dataclass(frozen=True)
class _Usage:
    """What the process and its machine had done up to a moment, in seconds."""

    ran: float
    waited: float | None
    """How long it was ready to run and no processor was free; None where the kernel does not say so."""
    asleep: float
    """How far the clock that counts a machine's sleep is ahead of the one that does not."""


class CauseFinder:
    """Says why a process stood still. It looks at each beat, and costs 5 us."""

    def __init__(self) -> None:
        self._fd: int | None = None
        with contextlib.suppress(OSError):
            self._fd = os.open("/proc/self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        self._stolen = _stolen()
        self._before = self._usage()

    def look(self) -> None:
        """Take what was so far as what is normal."""
        self._before = self._usage()

    def settle(self) -> None:
        """Take what was stolen so far as told; to be called each second."""
        self._stolen = _stolen()

    def slept(self) -> float:
        """Seconds that the machine was suspended since the last look: the monotonic clock does not have them."""
        return max(0.0, _asleep() - self._before.asleep)

    def cause(self, seconds: float) -> Cause:
        """What took most of the so many seconds since the last look."""
        now, least = self._usage(), _SHARE * seconds
        if _stolen() - self._stolen >= least:
            return "steal"
        if now.ran - self._before.ran >= least:
            return "busy"
        if now.waited is None or self._before.waited is None:
            return "unknown"
        return "processor" if now.waited - self._before.waited >= least else "stopped"

    def close(self) -> None:
        """Look no more."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _usage(self) -> _Usage:
        return _Usage(time.process_time(), self._waited(), _asleep())

    def _waited(self) -> float | None:
        if self._fd is None:
            return None
        try:
            return int(os.pread(self._fd, 128, 0).split()[1]) / 1e9
        except (OSError, ValueError, IndexError):
            return None


def _asleep() -> float:
    while True:
        before = time.monotonic()
        with_sleep = time.clock_gettime(time.CLOCK_BOOTTIME)
        after = time.monotonic()
        if after - before < _AT_ONCE:  # else it was stopped between the two clocks
            return with_sleep - after


def _stolen() -> float:
    """Seconds that the machine's hypervisor kept its processors to itself, all of them together (proc_stat(5))."""
    try:
        fields = Path("/proc/stat").read_text().partition("\n")[0].split()
        return int(fields[8]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0
