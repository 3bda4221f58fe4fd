"""Collects what is due at one moment, and does it together."""

from __future__ import annotations

import asyncio
from asyncio import Future, Task
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Together(Generic[T]):
    """Gives what is added at one moment to `do`, at most `most` at once; these succeed or fail together."""

    def __init__(self, most: int, do: Callable[[list[T]], Awaitable[None]]) -> None:
        self._most = most
        self._do = do
        self._due: list[tuple[T, Future[None]]] = []
        self._tasks: set[Task[None]] = set()

    async def add(self, what: T) -> None:
        """Have it done; raises what `do` raises. What is cancelled before it is begun is left out."""
        loop = asyncio.get_running_loop()
        if not self._due:
            loop.call_soon(self._begin)
        done: Future[None] = loop.create_future()
        self._due.append((what, done))
        await done

    def _begin(self) -> None:
        due, self._due = [each for each in self._due if not each[1].done()], []
        for first in range(0, len(due), self._most):
            task = asyncio.get_running_loop().create_task(self._run(due[first : first + self._most]))
            self._tasks.add(task)  # the loop itself keeps no task alive
            task.add_done_callback(self._tasks.discard)

    async def _run(self, several: list[tuple[T, Future[None]]]) -> None:
        try:
            await self._do([what for what, _ in several])
        except Exception as problem:
            for _, done in several:
                if not done.done():
                    done.set_exception(problem)
        else:
            for _, done in several:
                if not done.done():
                    done.set_result(None)
