"""How many worker processes a run has, where its plan does not say so."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf

from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.run.own_part import OwnPart
from tippingpoint.targets.target import Connections

_RATE = 500.0
"""Operations per second up to which a worker is well below half a core, and so answers late to nothing."""
_CONNECTIONS = 2000
"""Connections up to which a worker opens them all anew within a few seconds, as after a restart of the target."""


def worker_count(part: OwnPart, connections: Connections, cores: int) -> int:
    """The plan's own number of workers, or as many as its load needs: at most one for each core.

    A group of things belongs to one worker, so more workers than groups would idle. `connections` are of the whole
    plan: a unit's share of the leases may grow while it runs.
    """
    plan = part.plan
    if isinstance(plan, SpawnPlan):
        return max(1, min(plan.workers or cores, max(stage.groups for stage in plan.stages)))
    plan = part.whole
    if plan.workers is not None or not isinstance(plan, ClaimPlan):
        return plan.workers or cores
    if plan.find is not None or plan.faults:
        return cores  # nobody knows how far a search goes, or how much comes at once after a fault
    opened = max((size * each for size, each in connections.values()), default=0)
    wanted = max(max(_rates(plan)) / _RATE, opened / _CONNECTIONS)
    return max(1, ceil(min(cores, wanted)))


def _rates(plan: ClaimPlan) -> Iterator[float]:
    """Operations per second while each stage comes up and while it is held; infinite where all come at once."""
    each = plan.workload.units * (
        2 if plan.target.own_connections else 1
    )  # a claim, and the connection for it
    before = 0
    for stage in plan.stages:
        new = max(0, stage.leases - before) * each
        if new and not stage.over:
            yield inf
        elif new:
            yield new / stage.over
        yield stage.leases / plan.workload.renew_time
        before = stage.leases
