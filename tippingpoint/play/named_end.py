"""Holds a load of many units to its end, or to the earlier moment that the leader names for all of them."""

from __future__ import annotations

from tippingpoint.conduct.run_state import Turn
from tippingpoint.play.conductor import Conductor
from tippingpoint.play.stages import Stages
from tippingpoint.play.worker_pool import WorkerPool

_LOOK_EVERY = 1.0
"""Seconds between two checks for an earlier end."""


async def hold_to_named_end(turn: Turn, conductor: Conductor, stages: Stages, pool: WorkerPool) -> None:
    """Return when the hold of a turn is over on all units."""
    while stages.hold_left > 0:
        ends = conductor.ends(turn)
        if ends is not None:
            stages.end_hold(min(stages.hold_left, ends - conductor.now()))
        await pool.wait(min(stages.hold_left, _LOOK_EVERY))
