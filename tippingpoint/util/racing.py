"""Chooses among several addresses of one server, so that silent ones cost no time (RFC 8305, happy eyeballs)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

STAGGER = 0.25
"""Seconds of silence after which the next address is tried too."""


async def first_to_accept(addresses: Sequence[tuple[str, int]], within: float) -> int | None:
    """Return the position of the first address, host and port, that accepts a TCP connection; None if none does.

    An address is tried when the one before it has failed, or has been silent for STAGGER. None is given more than
    `within` seconds. The connections are closed again.
    """
    trying: dict[asyncio.Task[None], int] = {}
    left = list(range(len(addresses)))
    try:
        while left or trying:
            if left:
                position = left.pop(0)
                trying[asyncio.create_task(_connect(*addresses[position], within))] = position
            done, _ = await asyncio.wait(
                trying, timeout=STAGGER if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for attempt in done:
                position = trying.pop(attempt)
                if attempt.exception() is None:
                    return position
        return None
    finally:
        for attempt in trying:
            attempt.cancel()
        if trying:
            await asyncio.wait(trying)


async def _connect(host: str, port: int, within: float) -> None:
    async with asyncio.timeout(within):
        _, writer = await asyncio.open_connection(host, port)
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
