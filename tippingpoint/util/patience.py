"""How long a server may take to answer, excluding the time for which this process itself stood still."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

LOCAL_STALL_TOLERANCE = 1.0
"""Seconds of our own lateness after which a missing answer may be our fault: it may lie unread in the socket."""
MOST_AGAIN = 3
"""How often a server is given more time. One that keeps us busy would otherwise get more without end."""


@asynccontextmanager
async def answers_within(seconds: float) -> AsyncGenerator[None]:
    """Like asyncio.timeout, for code that waits for a server: raises TimeoutError after `seconds`.

    If the timeout is noticed more than OURS too late, the event loop stood still, and the server is given `seconds`
    more, at most MOST_AGAIN times.
    """
    loop = asyncio.get_running_loop()

    def wait() -> asyncio.TimerHandle:
        deadline = loop.time() + seconds
        return loop.call_at(deadline, look, deadline)

    def look(deadline: float) -> None:
        nonlocal timer, again
        if loop.time() - deadline > LOCAL_STALL_TOLERANCE and again < MOST_AGAIN:
            again += 1
            timer = wait()
        else:
            limit.reschedule(deadline)

    again = 0
    timer = wait()
    try:
        async with asyncio.timeout(None) as limit:
            yield
    finally:
        timer.cancel()
