"""The token bucket that limits agents' logins on one server (agent-ratelimit-max and agent-ratelimit-rate)."""

from __future__ import annotations

from collections.abc import Callable


class Bucket:
    """A bucket that is full at the start. A token comes back every `every_s` seconds, up to `most`."""

    def __init__(self, most: int, every_s: float, clock: Callable[[], float]) -> None:
        self._most = float(most)
        self._every_s = every_s
        self._clock = clock
        self._tokens = float(most)
        self._at = clock()

    def take(self) -> bool:
        """Take a token; False if there is none."""
        now = self._clock()
        self._tokens = min(self._most, self._tokens + (now - self._at) / self._every_s)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
