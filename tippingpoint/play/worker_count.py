"""Chooses the number of worker processes of a run whose plan does not set it."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, inf

from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.play.plan_share import PlanShare
from tippingpoint.targets.target import Connections

_RATE = 500.0
"""Operations per second that keep a worker well below half a core, so that it is never late."""
_CONNECTIONS = 2000
"""Connections that a worker can reopen within a few seconds, for example after a restart of the target."""


def worker_count(part: PlanShare, connections: Connections, cores: int) -> int:
    """Return the plan's number of workers, or as many as its load needs, at most one for each core.

    `connections` are of the whole plan: a unit's share of the leases may grow while it runs.
    """
    plan, most = part.whole, part.plan.most_workers
    if most is not None:
        return max(1, min(plan.workers or cores, most))
    if plan.workers is not None or not isinstance(plan, ClaimPlan):
        return plan.workers or cores
    if plan.find is not None or plan.faults:
        return cores  # it is unknown how far a search goes, or how much load arrives at once after a fault
    opened = max((size * each for size, each in connections.values()), default=0)
    wanted = max(max(_rates(plan)) / _RATE, opened / _CONNECTIONS)
    return max(1, ceil(min(cores, wanted)))


def _rates(plan: ClaimPlan) -> Iterator[float]:
    """Return the operations per second while each stage comes up and while it is held; infinite if all come at once."""
    each = plan.workload.units * (
        2 if plan.target.own_connections else 1
    )  # a claim, and the connection for it
    before = 0
    renew_time = plan.workload.renew_time
    for stage in plan.stages:
        held = stage.held(renew_time)
        new = max(0, held - before) * each
        if new and not stage.over:
            yield inf
        elif new:
            yield new / stage.over
        yield held / stage.renewed_every(renew_time) + 2 * (stage.claims or 0.0)  # each is released again
        before = held
