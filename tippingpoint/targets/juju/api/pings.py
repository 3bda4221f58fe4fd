"""One ping timer for all connections: each is pinged every minute, counted from its own login."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from tippingpoint.util import timing
from tippingpoint.util.patience import LOCAL_STALL_TOLERANCE

PERIOD = 60.0
"""Seconds between two pings of a connection, as with Juju's own agents (PingPeriod in api/apiclient.go). The server
drops an agent that sends none for 3 minutes (maxClientPingInterval in apiserver/root.go)."""
PATIENCE = 30.0
"""Seconds a ping may stay unanswered before the connection counts as lost (pingTimeout in api/apiclient.go)."""
_GRAIN = 0.1
"""Seconds by which pings may be late or early, so that one timer serves many connections."""


class Pinged(Protocol):
    """A connection as the ping timer sees it."""

    def ping(self) -> int | None:
        """Send a ping and return its number; None when the connection is closed."""
        ...

    def unanswered(self, ping: int) -> bool:
        """Whether the connection is open and this ping has no answer yet."""
        ...

    def unreachable(self, seconds: float) -> None:
        """Fail the connection because no answer came within these seconds."""
        ...


class PingClock:
    """Pings connections until they are closed. `patience` is shorter than `period`, both in seconds.

    Both are the same for all connections, so two queues are always sorted. Connections that are due at almost the same
    time share an entry.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, period: float, patience: float) -> None:
        self._loop = loop
        self._period = period
        self._patience = patience
        self._grain = min(_GRAIN, period)
        self._due: deque[tuple[float, list[Pinged]]] = deque()
        self._expected: deque[tuple[float, Pinged, int]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, connection: Pinged) -> None:
        """Ping a connection from now on, for the first time after one period."""
        self._ping_at(timing.monotonic() + self._period, connection)
        if self._timer is None:
            self._arm()

    def _ping_at(self, moment: float, connection: Pinged) -> None:
        if self._due and moment - self._due[-1][0] < self._grain:
            self._due[-1][1].append(connection)
        else:
            self._due.append((moment, [connection]))

    def close(self) -> None:
        """Stop pinging."""
        self._due.clear()
        self._expected.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        moments = [queue[0][0] for queue in (self._due, self._expected) if queue]
        self._timer = None
        if moments:
            delay = max(min(moments) - timing.monotonic(), self._grain)
            self._timer = self._loop.call_later(delay, self._tick)

    def _tick(self) -> None:
        now = timing.monotonic()
        while self._expected and self._expected[0][0] <= now:
            deadline, connection, ping = self._expected.popleft()
            if not connection.unanswered(ping):
                continue
            if now - deadline > LOCAL_STALL_TOLERANCE:
                self._expected.append((now + self._patience, connection, ping))
            else:
                connection.unreachable(self._patience)
        while self._due and self._due[0][0] <= now:
            _, connections = self._due.popleft()
            for connection in connections:
                ping = connection.ping()
                if ping is not None:
                    self._ping_at(now + self._period, connection)
                    self._expected.append((now + self._patience, connection, ping))
        self._arm()
