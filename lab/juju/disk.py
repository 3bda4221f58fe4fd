"""The disks under a simulated controller's database, which may be slow.

A slow disk is written twice a second, as those of other labs (lab/slow_disk.py), and everything that waits is written
at once then. The database needs a majority of its servers' disks, as dqlite does. Reads need none.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

WRITES_PER_S = 2
_WRITES = re.compile(
    "Add|Begin|Cancel|Claim|Commit|Consume|Create|Deploy$|Destroy|Enqueue|Ensure|Enter|Expose|Finish|Grant|Leave|"
    "LogActions|Modify|ModelSet|Offer$|Remove|Revoke|Run$|SecretsRotated|Set|Switch|Unexpose|Unset|Update"
)
"""The beginnings of the methods that change something."""


class Disks:
    """The disks of all servers."""

    def __init__(self, servers: int, loop: asyncio.AbstractEventLoop) -> None:
        self._servers = servers
        self._loop = loop
        self._slow: dict[str, float] = {}
        self._waiting: list[Callable[[], None]] = []

    def slow(self, server: str, writes_per_s: float) -> None:
        """Let a server's disk be written only so often."""
        self._slow[server] = writes_per_s

    def free(self, server: str) -> None:
        """Undo `slow`."""
        self._slow.pop(server, None)
        if not self._lacks_majority():
            self._write()

    def delay(self, method: str) -> bool:
        """Whether a method of a facade has to wait for the disks."""
        return bool(self._slow) and self._lacks_majority() and _WRITES.match(method) is not None

    def when_written(self, do: Callable[[], None]) -> None:
        """Do something with the next write."""
        if not self._waiting:
            self._loop.call_later(1 / min(self._slow.values()), self._write)
        self._waiting.append(do)

    def _lacks_majority(self) -> bool:
        return 2 * (self._servers - len(self._slow)) <= self._servers

    def _write(self) -> None:
        waiting, self._waiting = self._waiting, []
        for do in waiting:
            do()
