"""A call outside of what is measured, made again while it fails of what passes by itself."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tippingpoint.util.backoff import backoff

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 2.0
"""Seconds before the call is made again, doubled with each failure, unless the caller has others."""
T = TypeVar("T")


async def retry(
    call: Callable[[], Awaitable[T]],
    within: float,
    passes: Callable[[Exception], bool],
    first: float = FIRST_PAUSE,
    longest: float = LONGEST_PAUSE,
) -> T:
    """What the call returns, made again while what it raises passes by itself, for `within` seconds in all.

    TimeoutError where an answer is still waited for then; else what was raised last.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + within
    for failures in itertools.count(1):
        pause = backoff(failures, first, longest)
        try:
            async with asyncio.timeout_at(until):
                return await call()
        except TimeoutError:
            raise
        except Exception as problem:
            if not passes(problem) or loop.time() + pause > until:
                raise
        await asyncio.sleep(pause)
    raise AssertionError("no end of counting")
