"""Judges the turns of a search that many units share, on the leader's unit, in parallel with everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from tippingpoint.conduct.run_state import SharedRun, UnitWord
from tippingpoint.conduct.search_messages import NextLoad, ProbeReport
from tippingpoint.errors import describe

_Key = tuple[str, int, tuple[str, ...]]


class Judging:
    """Judges one turn at a time, and remembers the answer until another one is asked for."""

    def __init__(self, directory: Path, wake: Callable[[], None]) -> None:
        """Files are made below `directory`; `wake` is called when there is an answer."""
        self._directory = directory
        self._wake = wake
        self._key: _Key | None = None
        self._task: asyncio.Task[NextLoad] | None = None

    def ask(
        self,
        run: SharedRun,
        after: int,
        words: Mapping[str, UnitWord],
        reports: Mapping[str, ProbeReport],
    ) -> NextLoad | None:
        """Return what follows a turn; None while that is being judged."""
        key = (run.id, after, tuple(run.missing))
        if key != self._key or self._task is None:
            self._key = key
            self._task = asyncio.create_task(self._judge(run, after, words, reports))
        return self._task.result() if self._task.done() else None

    async def close(self) -> None:
        """Give up."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _judge(
        self,
        run: SharedRun,
        after: int,
        words: Mapping[str, UnitWord],
        reports: Mapping[str, ProbeReport],
    ) -> NextLoad:
        # It imports numpy, which an agent needs only for results.
        from tippingpoint.conduct.next_load import next_load
        from tippingpoint.digest.unit_reports import FromDigests

        try:
            reported = FromDigests(run, words, reports, self._directory)
            return (await asyncio.to_thread(next_load, reported)).shortened()
        except Exception as problem:  # the run ends with this reason, instead of waiting forever
            return NextLoad(after=after, stop=f"turn {after} cannot be judged: {describe(problem)}"[:1000])
        finally:
            self._wake()
