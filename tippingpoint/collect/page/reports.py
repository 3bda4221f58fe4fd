"""Reports for the page: each is made once, in the confined process, and kept as long as people read it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tippingpoint import __version__
from tippingpoint.collect.runs import StoredRun, forget_oldest
from tippingpoint.collect.sandbox import question, write
from tippingpoint.errors import UserError

SECONDS = 120.0
"""Seconds that a reader's browser waits for a report; one of 100 units takes some tens of seconds."""
KEPT = 50
"""How many files are kept, the newest; an HTML report has at most 5 MB."""
_AT_A_TIME = 2
"""How many reports are made at a time, because the machine has other work."""
_WAITING = 20
"""How many reports may be in progress or in the queue before more are refused."""


class Reports:
    """The engine's answers, as files in a directory, by their questions: a new word of a unit is a new question."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._making: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Semaphore(_AT_A_TIME)

    async def answer(self, do: str, runs: Sequence[StoredRun], **asked: Any) -> Path:
        """Return the file with the engine's answer; raises UserError with the engine's line if it refuses."""
        asked_for = await asyncio.to_thread(question, do, runs, **asked)
        name = hashlib.sha256(__version__.encode() + b"\0" + asked_for).hexdigest()
        path = self._directory / name
        with suppress(FileNotFoundError):
            await asyncio.to_thread(os.utime, path)  # so that it is kept
            return path
        making = self._making.get(name)
        if making is None:
            if len(self._making) >= _WAITING:
                raise UserError(
                    "report", do, f"fewer than {_WAITING} reports in the queue; try again in a minute"
                )
            making = self._making[name] = asyncio.create_task(self._make(path, asked_for))
            making.add_done_callback(self._forget(name))
        await asyncio.shield(making)  # other readers may wait for it, too
        return path

    async def _make(self, path: Path, asked_for: bytes) -> None:
        async with self._turn:
            await asyncio.to_thread(write, path, asked_for, within=SECONDS)
            await asyncio.to_thread(forget_oldest, self._directory, KEPT)

    def _forget(self, name: str) -> Callable[[asyncio.Task[None]], None]:
        def forget(made: asyncio.Task[None]) -> None:
            del self._making[name]
            if not made.cancelled():
                made.exception()  # it was raised to the readers, who may have gone

        return forget
