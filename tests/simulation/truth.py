"""The true limit of a simulated service, for searches: the load at which half of all holds meet the thresholds.

A hold is played many times with the service's queue alone: leases are claimed from nothing over `find.over`, each is
renewed on its schedule and never twice at once, and the service serves one operation after the other. What counts is
how long extensions took, as in a report. Left out are limits beyond 95 % of the capacity, as more than latency may
break such a load, and plans in which several units claim a lease or all claims come within a part of `renew_time`:
there, a load from nothing and one that grew are not the same.
"""

from __future__ import annotations

import heapq
import random

from tests.simulation.draws import Drawn
from tests.simulation.measured import seconds_of
from tippingpoint.analysis.thresholds import limits_of
from tippingpoint.plan.base import Threshold
from tippingpoint.rundir.recorder import rank_of

_HOLDS = 120
"""How often a load is held: its share of holds that meet the thresholds is known to within 9 points."""
_MOST = 0.95
"""The largest share of the capacity at which a limit is told."""


def is_known(drawn: Drawn) -> bool:
    """Whether a run searches for a limit that follows from the queue alone."""
    service, find, workload = drawn.service, drawn.plan.get("find"), drawn.plan["workload"]
    return (
        find is not None
        and workload["units"] == 1
        and seconds_of(find["over"]) >= seconds_of(workload["renew_time"])
        and not (drawn.events or service.troubles)
        and service.longest_queue >= 1e9
        and all(threshold["operation"] == "extend" for threshold in drawn.plan["thresholds"])
    )


def limit_of(drawn: Drawn) -> float | None:
    """Return the true limit of a run that is_known; None if it is less than one lease, or not told."""
    chance = random.Random(drawn.seed)
    renew = seconds_of(drawn.plan["workload"]["renew_time"])
    held, broken = 0, int(_MOST * drawn.service.capacity * renew) + 1
    shares = {0: 1.0, broken: _share(drawn, broken, chance)}
    if shares[broken] >= 0.5:
        return None
    while broken - held > 1:
        middle = (held + broken) // 2
        shares[middle] = _share(drawn, middle, chance)
        held, broken = (middle, broken) if shares[middle] >= 0.5 else (held, middle)
    if not held:
        return None
    return held + (shares[held] - 0.5) / (shares[held] - shares[broken])


def _share(drawn: Drawn, load: int, chance: random.Random) -> float:
    return sum(_meets(drawn, load, chance) for _ in range(_HOLDS)) / _HOLDS


def _meets(drawn: Drawn, load: int, chance: random.Random) -> bool:
    took = sorted(_extensions(drawn, load, chance))
    limits = [
        limit for each in drawn.plan["thresholds"] for limit in limits_of(Threshold.model_validate(each))
    ]
    return not took or all(
        took[rank_of(limit.percentile, len(took)) - 1] * 1e6 <= limit.allowed
        for limit in limits
        if limit.percentile is not None
    )


def _extensions(drawn: Drawn, load: int, chance: random.Random) -> list[float]:
    """Return how many seconds each extension of one hold took, from when it was due."""
    plan, service = drawn.plan, drawn.service
    renew, hold = seconds_of(plan["workload"]["renew_time"]), seconds_of(plan["find"]["hold"])
    step = seconds_of(plan["find"]["over"]) / load
    coming = [(lease * step, 0.0, lease, True) for lease in range(load)]
    granted = 0
    took: list[float] = []
    free, over = 0.0, float("inf")
    while coming and coming[0][0] < over:
        asked, due, lease, claims_it = heapq.heappop(coming)
        free = max(free, asked) + chance.expovariate(service.capacity)
        answered = free + service.base * chance.uniform(0.5, 1.5)
        if not claims_it:
            took.append(answered - due)
            due += renew
        else:
            granted += 1
            due = answered + renew
            if granted == load:
                over = answered + hold
        heapq.heappush(coming, (max(due, answered), due, lease, False))
    return took
