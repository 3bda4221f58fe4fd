"""Closes the figures of a stage that is judged while its load goes on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tippingpoint.run.crew import Crew
from tippingpoint.run.interruption import EndedEarly
from tippingpoint.run.messages import Settle, Settled
from tippingpoint.rundir.histogram import Histogram


async def close_figures(crew: Crew) -> None:
    """Close the stage's figures. Calls that have no answer count as timed out, in the journals and so in the report.

    Raises EndedEarly if the journal could not be written.
    """
    await _settled(crew, count=True)


async def unanswered_in(crew: Crew) -> dict[str, str]:
    """Close the figures of a unit's turn in a search, for its report to the leader.

    Returns by operation an encoded histogram of the ages of calls without an answer. Raises EndedEarly if the journal
    could not be written.
    """
    unanswered: dict[str, Histogram] = {}
    for answer in await _settled(crew, count=False):
        for operation, ages in answer.unanswered.items():
            unanswered.setdefault(operation, Histogram()).add(Histogram.of(np.asarray(ages) * 1e6))
    return {operation: ages.encode() for operation, ages in unanswered.items()}


async def _settled(crew: Crew, *, count: bool) -> Sequence[Settled]:
    answers = await crew.ask(Settled, lambda _: Settle(count=count))
    if crew.unwritten:
        raise EndedEarly("cut", "no disk space left for the journal, by which the load is judged")
    return answers
