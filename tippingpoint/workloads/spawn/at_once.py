"""Makes groups concurrently; the first failure cancels the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable


async def make_all(groups: Iterable[int], make: Callable[[int], Awaitable[None]]) -> None:
    """Make all groups concurrently; raises the first failure once the others are cancelled."""

    async def one(group: int) -> None:
        await make(group)

    try:
        async with asyncio.TaskGroup() as making:
            for group in groups:
                making.create_task(one(group))
    except ExceptionGroup as several:
        raise several.exceptions[0] from None
