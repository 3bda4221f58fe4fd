"""Reports as the page serves them: made in the confined process, each once, and kept as long as they are asked for."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tippingpoint import __version__
from tippingpoint.collect.runs import StoredRun, forget_oldest
from tippingpoint.collect.sandbox import question, write
from tippingpoint.errors import UserError

SECONDS = 120.0
"""How long a reader's browser waits for a report; that of 100 units takes some tens."""
KEPT = 50
"""Files, the newest; an HTML report has 5 MB at most."""
_AT_A_TIME = 2
"""Of a machine that has other things to do."""
_WAITING = 20
"""Reports that are being made or wait for their turn, before more are refused."""


class Reports:
    """Answers of the engine, as files in a directory by what was asked: another word of a unit is another question."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._making: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Semaphore(_AT_A_TIME)

    async def answer(self, do: str, runs: Sequence[StoredRun], **asked: Any) -> Path:
        """The file with the engine's answer; UserError with the engine's line where it refuses."""
        asked_for = await asyncio.to_thread(question, do, runs, **asked)
        name = hashlib.sha256(__version__.encode() + b"\0" + asked_for).hexdigest()
        path = self._directory / name
        if path.exists():
            await asyncio.to_thread(path.touch)  # so that it stays
            return path
        making = self._making.get(name)
        if making is None:
            if len(self._making) >= _WAITING:
                raise UserError(
                    "report", do, f"fewer than {_WAITING} reports to be made; try again in a minute"
                )
            making = self._making[name] = asyncio.create_task(self._make(path, asked_for))
            making.add_done_callback(self._forget(name))
        await asyncio.shield(making)  # another reader may wait for it, too
        return path

    async def _make(self, path: Path, asked_for: bytes) -> None:
        async with self._turn:
            await asyncio.to_thread(write, path, asked_for, within=SECONDS)
            await asyncio.to_thread(forget_oldest, self._directory, KEPT)

    def _forget(self, name: str) -> Callable[[asyncio.Task[None]], None]:
        def forget(made: asyncio.Task[None]) -> None:
            del self._making[name]
            if not made.cancelled():
                made.exception()  # told to those who wait, of whom there may be none any more

        return forget
