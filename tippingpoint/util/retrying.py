"""Retries calls that are not measured while they fail for a transient reason."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tippingpoint.util.backoff import backoff

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 2.0
"""Defaults in seconds: the wait after the first failure, doubled with each failure up to the longest wait."""
T = TypeVar("T")


async def retry(
    call: Callable[[], Awaitable[T]],
    within: float,
    passes: Callable[[Exception], bool],
    first: float = FIRST_PAUSE,
    longest: float = LONGEST_PAUSE,
) -> T:
    """Return the result of a call, which is retried for `within` seconds while its exceptions are transient.

    `passes` decides which exceptions are transient. Raises TimeoutError if a call is still unanswered at the end, else
    the last exception.
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
    raise AssertionError("unreachable: the loop has no end")
