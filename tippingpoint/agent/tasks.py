"""Tasks that take longer than a charm's action may wait: they are started at once, and polled by id."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from dataclasses import dataclass

from tippingpoint.errors import UserError, describe

_KEPT = 100
"""How many ended tasks are kept with their outcome, the newest ones."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a task."""

    text: str
    failed: bool


class Tasks:
    """Tasks in the background. Their outcomes are kept for later requests; all tasks end with the agent."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[Outcome]] = {}

    def begin(self, work: Coroutine[None, None, str]) -> str:
        """Start some work, which returns a text; returns the task's id."""
        for ended in [name for name, task in self._tasks.items() if task.done()][:-_KEPT]:
            del self._tasks[ended]
        name = secrets.token_hex(4)
        self._tasks[name] = asyncio.create_task(_outcome(work))
        return name

    def ask(self, name: str) -> Outcome | None:
        """Return the outcome of a task, or None while it runs; raises UserError for an unknown or forgotten id."""
        task = self._tasks.get(name)
        if task is None:
            raise UserError("task", name, "the id of a task that this agent started recently")
        return task.result() if task.done() else None

    async def close(self) -> None:
        """Cancel the tasks that are running."""
        await asyncio.sleep(0)  # work that never started could not be cancelled
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)


async def _outcome(work: Coroutine[None, None, str]) -> Outcome:
    try:
        return Outcome(await work, failed=False)
    except Exception as problem:
        return Outcome(describe(problem), failed=True)
