"""The share of a core that a process uses, measured over times that are long enough to be meaningful."""

from __future__ import annotations

SHORTEST = 0.1
"""Seconds. Over a shorter time, a thread of the process may hold the CPU between two readings, and the share would come
out as several cores."""


class CpuShare:
    """Turns readings of a process' CPU time into its share of a core."""

    def __init__(self, t: float, cpu: float) -> None:
        """`t` is the moment of the first reading and `cpu` the CPU time used until then, both in seconds."""
        self._t = t
        self._cpu = cpu
        self._share = 0.0

    def at(self, t: float, cpu: float) -> float:
        """Return the share since the last reading that counted; the last share if that was less than SHORTEST ago."""
        if t - self._t >= SHORTEST:
            self._share = (cpu - self._cpu) / (t - self._t)
            self._t, self._cpu = t, cpu
        return self._share
