"""The leases themselves: what the claim workload asks for. A file's time of change is when its lease was extended."""

from __future__ import annotations

import asyncio
import time
from asyncio import Future
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tippingpoint.errors import OperationFailed
from tippingpoint.workloads.claim.target import Holding
from tippingpoint.workloads.load import TargetFacts

T = TypeVar("T")

_LOOK = 0.05
"""Seconds between looks at the leases that somebody waits for."""


class Leases:
    """A ClaimTarget. Files are so fast that its calls have ended when they return."""

    def __init__(self, path: Path, prefix: str, claim_time: float) -> None:
        self._path = path
        self._prefix = prefix
        self._claim_time = claim_time
        self._waiting: dict[tuple[int, int], Callable[[], None]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> TargetFacts:
        """Begin to look for leases that are free."""
        self._looking = asyncio.create_task(self._look())
        return TargetFacts(kind="directory", version="1.0", members=[self._path.name])

    def claim(self, lease: int, holder: int) -> Future[Holding | None]:
        """Make the lease's file, where it is not there or has run out."""

        def claim() -> Holding | None:
            if not self._is_free(lease):
                return None
            self._file(lease).write_text(str(holder))
            return Holding(lease, holder)

        return _ended(claim)

    def extend(self, holding: Holding) -> Future[bool]:
        """Write the lease's file again, while it is ours."""

        def extend() -> bool:
            if self._is_free(holding.lease) or self._file(holding.lease).read_text() != str(holding.holder):
                return False
            self._file(holding.lease).touch()
            return True

        return _ended(extend)

    def release(self, holding: Holding) -> Future[None]:
        """Remove the lease's file."""
        return _ended(lambda: self._file(holding.lease).unlink(missing_ok=True))

    def watch_release(self, lease: int, holder: int, released: Callable[[], None]) -> None:
        """Call `released` once when the lease is free."""
        self._waiting[lease, holder] = released

    def unwatch(self, lease: int, holder: int) -> None:
        """Call nobody for this holder."""
        self._waiting.pop((lease, holder), None)

    async def drop(self) -> None:
        """There are no connections, but nobody waits any more."""
        self._waiting.clear()

    async def close(self) -> None:
        """Look no more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait([self._looking])

    def _file(self, lease: int) -> Path:
        return self._path / f"{self._prefix}-{lease}"

    def _is_free(self, lease: int) -> bool:
        try:
            return self._file(lease).stat().st_mtime + self._claim_time < time.time()
        except FileNotFoundError:
            return True

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            for waits in [waits for waits in self._waiting if self._is_free(waits[0])]:
                self._waiting.pop(waits)()


def _ended(do: Callable[[], T]) -> Future[T]:
    """A future with what this comes to."""
    future: Future[T] = asyncio.get_running_loop().create_future()
    try:
        future.set_result(do())
    except OSError as problem:
        future.set_exception(OperationFailed(f"{problem.filename}: {problem.strerror}"))
    return future
