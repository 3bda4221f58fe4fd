"""Ending a run early: who asked for it, and whether in a hurry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from tippingpoint.rundir.manifest import RunStatus

T = TypeVar("T")


class EndedEarly(Exception):
    """Raised to end the run now and keep its results; `status` is the run's final status."""

    def __init__(self, status: RunStatus, reason: str) -> None:
        self.status: RunStatus = status
        super().__init__(reason)


class Interruption:
    """Whether the run is asked to end early; a second request means that it is in a hurry."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()
        self._reason = ""
        self._status: RunStatus = "interrupted"

    def ask(self, reason: str) -> None:
        """Ask for the end of the run. The first reason given becomes the reason in the run's manifest."""
        if self.asked.is_set():
            self.hurried.set()
        else:
            self._reason = reason
        self.asked.set()

    def abort(self, reason: str) -> None:
        """Ask for the end of the run because the target would be harmed; no effect if it is already ending."""
        if not self.asked.is_set():
            self._reason, self._status = reason, "aborted"
            self.asked.set()

    def check(self) -> None:
        """Raise EndedEarly if somebody asked for the end."""
        if self.asked.is_set():
            raise EndedEarly(self._status, self._reason)

    async def unless_asked(self, work: Awaitable[T]) -> T:
        """Return the result of `work`; raises EndedEarly, and cancels the work, if the run is interrupted
        meanwhile."""
        working = asyncio.ensure_future(work)
        asked = asyncio.create_task(self.asked.wait())
        await asyncio.wait([working, asked], return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not working.done():
            working.cancel()
            # The work in progress may finish its current step, unless we are in a hurry.
            hurried = asyncio.create_task(self.hurried.wait())
            await asyncio.wait([working, hurried], return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            self.check()
        return working.result()
