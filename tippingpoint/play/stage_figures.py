"""Closes the figures of a stage that is judged while its load continues."""

from __future__ import annotations

from collections.abc import Sequence

from tippingpoint.play.interruption import EndedEarly
from tippingpoint.play.messages import Settle, Settled
from tippingpoint.play.worker_pool import WorkerPool


async def close_figures(pool: WorkerPool) -> None:
    """Close the stage's figures. Calls that have no answer count as timed out, in the journals and so in the report.

    Raises EndedEarly if the journal could not be written.
    """
    await _settled(pool, count=True)


async def unanswered_in(pool: WorkerPool) -> dict[str, list[float]]:
    """Close the figures of a turn in a search; returns by operation the ages in seconds of calls without an answer.

    Raises EndedEarly if the journal could not be written.
    """
    unanswered: dict[str, list[float]] = {}
    for answer in await _settled(pool, count=False):
        for operation, ages in answer.unanswered.items():
            unanswered.setdefault(operation, []).extend(ages)
    return unanswered


async def _settled(pool: WorkerPool, *, count: bool) -> Sequence[Settled]:
    answers = await pool.ask(Settled, lambda _: Settle(count=count))
    if pool.unwritten:
        raise EndedEarly("cut", "no disk space left for the journal, by which the load is judged")
    return answers
