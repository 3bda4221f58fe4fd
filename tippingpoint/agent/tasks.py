"""Work that takes longer than a charm's action may wait: begun at once, and asked for later by its id."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from dataclasses import dataclass

from tippingpoint.errors import UserError, told

_KEPT = 100
"""Ended tasks whose outcome is kept, the newest."""


@dataclass(frozen=True)
class Outcome:
    """What a task came to."""

    text: str
    failed: bool


class Tasks:
    """Tasks in the background. What one comes to is kept for those that ask later; all end with the agent."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Outcome]] = {}

    def begin(self, work: Coroutine[None, None, str]) -> str:
        """Begin some work, which returns a text; returns its id."""
        for ended in [name for name, task in self._tasks.items() if task.done()][:-_KEPT]:
            del self._tasks[ended]
        name = secrets.token_hex(4)
        self._tasks[name] = asyncio.create_task(_outcome(work))
        return name

    def ask(self, name: str) -> Outcome | None:
        """What a task came to, None while it goes on; UserError where nobody knows of it (any more)."""
        task = self._tasks.get(name)
        if task is None:
            raise UserError("task", name, "the id of a task that this agent has begun and not forgotten")
        return task.result() if task.done() else None

    async def close(self) -> None:
        """Give up what goes on."""
        await asyncio.sleep(0)  # work that was never begun cannot be given up
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def _outcome(work: Coroutine[None, None, str]) -> Outcome:
    try:
        return Outcome(await work, failed=False)
    except Exception as problem:
        return Outcome(told(problem), failed=True)
