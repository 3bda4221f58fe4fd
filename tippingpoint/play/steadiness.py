"""Decides when a load is steady: the backlog of the previous load is answered, and is not blamed on this one."""

from __future__ import annotations

from math import inf

_NO_CALMER = 5.0
"""Seconds without any progress after which a load counts as steady: it will not get any better."""
_PROGRESS = 0.99
"""The oldest operation has to get younger by a hundredth for that to be progress."""


class Steadiness:
    """Follows the age of the oldest operation of a load that is up, as workers report it."""

    def __init__(self, calm: float | None) -> None:
        """A load is steady when no operation is older than `calm` seconds; without a value, as soon as it is up."""
        self._calm = calm
        self._oldest = inf
        self._since = inf

    def is_reached(self, oldest: float, now: float) -> bool:
        """Take the age of the oldest operation, in seconds, at a moment; return whether the load is steady."""
        if oldest < _PROGRESS * self._oldest:
            self._oldest, self._since = oldest, now
        return self._calm is None or oldest <= self._calm or now - self._since >= _NO_CALMER

    def is_near(self, now: float) -> bool:
        """Return whether the oldest operation got younger recently, so that waiting longer is worthwhile."""
        return now - self._since < _NO_CALMER
