"""Readiness of many sockets, with a bounded share of each turn of the event loop."""

from __future__ import annotations

import asyncio
import select
from typing import Protocol

from tippingpoint.util import timing

READ = select.EPOLLIN
WRITE = select.EPOLLOUT

_TURN = 0.008
"""Seconds of a loop turn that sockets may take. Sockets still ready then wait for the next turn. So thousands of
sockets that fail or answer at once delay a due renewal by no more than this."""
_AT_ONCE = 256


class Watched(Protocol):
    """The owner of a socket."""

    def ready(self, events: int) -> None:
        """Handle a ready socket. `events` is a mask of READ, WRITE and epoll's own error bits. May be spurious."""
        ...


class Readiness:
    """A private epoll, registered as one reader in the event loop: a watched socket needs no handle of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll = select.epoll()
        self._watched: dict[int, Watched] = {}
        self._new: set[int] = set()
        loop.add_reader(self._epoll.fileno(), self._turn)

    def watch(self, fd: int, owner: Watched, events: int) -> None:
        """Call `owner.ready` whenever one of the events occurs."""
        self._epoll.register(fd, events)
        self._watched[fd] = owner
        self._new.add(fd)

    def change(self, fd: int, owner: Watched, events: int) -> None:
        """Give a watched socket another owner or other events."""
        self._watched[fd] = owner
        self._epoll.modify(fd, events)

    def forget(self, fd: int) -> None:
        """Stop watching a socket. Call this before closing it, because its number is then reused."""
        if self._watched.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def close(self) -> None:
        """Stop watching all sockets."""
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()
        self._watched.clear()

    def _turn(self) -> None:
        until = timing.monotonic() + _TURN
        self._new.clear()
        for fd, events in self._epoll.poll(0, _AT_ONCE):
            owner = self._watched.get(fd)
            # A socket opened since the poll may reuse the number of a closed one: the event is not its own.
            if owner is None or fd in self._new:
                continue
            try:
                owner.ready(events)
            except Exception as problem:  # one socket's failure must not keep the others from being served
                self._loop.call_exception_handler(
                    {"message": "a socket's owner failed", "exception": problem}
                )
            if self._epoll.closed or timing.monotonic() > until:
                return
