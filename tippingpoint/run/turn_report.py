"""Closes the figures of a unit's turn, for its report to the leader."""

from __future__ import annotations

import numpy as np

from tippingpoint.run.crew import Crew
from tippingpoint.run.interruption import EndedEarly
from tippingpoint.run.messages import Settle, Settled
from tippingpoint.rundir.histogram import Histogram


async def close_figures(crew: Crew) -> dict[str, str]:
    """Close the stage's figures, while the load goes on.

    Returns by operation an encoded histogram of the ages of calls without an answer. Raises EndedEarly if the journal
    could not be written.
    """
    unanswered: dict[str, Histogram] = {}
    for answer in await crew.ask(Settled, lambda _: Settle()):
        for operation, ages in answer.unanswered.items():
            unanswered.setdefault(operation, Histogram()).add(Histogram.of(np.asarray(ages) * 1e6))
    if crew.unwritten:
        raise EndedEarly("cut", "no disk space left for the journal, by which the load is judged")
    return {operation: ages.encode() for operation, ages in unanswered.items()}
