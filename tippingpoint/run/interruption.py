"""The end of a run before its plan's: what ends it, and how much time there is for that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from tippingpoint.rundir.manifest import RunStatus

T = TypeVar("T")


class EndedEarly(Exception):
    """The run is to end now, with what it has."""

    def __init__(self, status: RunStatus, reason: str) -> None:
        self.status: RunStatus = status
        super().__init__(reason)


class Interruption:
    """Whether somebody asked for the run's end; who asks again is in a hurry."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()
        self._reason = ""

    def ask(self, reason: str) -> None:
        """Ask for it, the first time with the reason that the run's manifest has then."""
        if self.asked.is_set():
            self.hurried.set()
        else:
            self._reason = reason
        self.asked.set()

    def check(self) -> None:
        """Raise EndedEarly where it was asked for."""
        if self.asked.is_set():
            raise EndedEarly("interrupted", self._reason)

    async def unless_asked(self, work: Awaitable[T]) -> T:
        """The result of some work, which is given up when the run is interrupted meanwhile: that raises EndedEarly."""
        working = asyncio.ensure_future(work)
        asked = asyncio.create_task(self.asked.wait())
        await asyncio.wait([working, asked], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not working.done():
            working.cancel()
            # It may see what it was at to its end, unless we are in a hurry.
            hurried = asyncio.create_task(self.hurried.wait())
            await asyncio.wait([working, hurried], return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            self.check()
        return working.result()
