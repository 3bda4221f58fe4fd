"""Queues of known capacity as targets of a search: calls come at random, and their p99 is what a threshold limits.

Times count in the mean time of one service, so that a queue's capacity is a matter of scale: each has the same limit in
shares of its capacity, which is computed once, by simulation.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import log, sqrt
from typing import Any, Literal

import numpy as np

from tests.simulated_targets import EMPTYING_S, RAMP_S, Looks
from tippingpoint.analysis.search.probes import Margin, Probe

FloatArray = np.ndarray[tuple[Any, ...], np.dtype[np.float64]]

CALLS = 10_000
"""The number of calls that a hold at the queue's whole capacity has."""
_BATCHES = 10
_LOOKS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class Queue:
    """A queue; its p99 may be `allowed` mean times of service."""

    services: Literal["random", "fixed"]
    servers: int = 1
    burst: int = 0
    """Calls that a token bucket lets through at once."""
    allowed: float = 50.0

    def responses(self, load: float, draw: np.random.Generator) -> FloatArray:
        """Return the response times of a hold's calls, at a load in shares of the capacity."""
        count = max(50, int(load * CALLS))
        gaps = draw.exponential(1 / load, count)
        services = draw.exponential(1.0, count) if self.services == "random" else np.ones(count)
        if self.burst:
            return _waits(gaps, services, credit=self.burst) + 0.02
        if self.servers == 1:
            return _waits(gaps, services) + services
        # With fixed times of service, servers take calls in turn: each is a queue of every `servers`-th call.
        arrivals = np.cumsum(gaps)
        found = np.empty(count)
        for server in range(self.servers):
            own = arrivals[server :: self.servers]
            times = np.full(own.size, float(self.servers))
            found[server :: self.servers] = _waits(np.diff(own, prepend=0.0), times) + times
        return found


QUEUES = {
    "M/M/1": Queue("random"),
    "M/D/4": Queue("fixed", servers=4, allowed=20.0),
    "token bucket": Queue("fixed", burst=50, allowed=10.0),
}


class QueueTarget:
    """A queue whose limit is `limit` calls per unit of time."""

    def __init__(self, queue: Queue, limit: float, draw: random.Random) -> None:
        self._queue = queue
        self._capacity = limit / limit_of(queue)
        self._limit = limit
        self._draw = np.random.default_rng(draw.getrandbits(64))

    def limit(self, at: float, hold: float) -> float:
        """Return the limit, at any time."""
        return self._limit

    def probe(self, load: float, *, fresh: bool, at: float, hold: float, looks: Looks | None = None) -> Probe:
        """Return what a load shows; see simulated_targets.Target."""
        responses = self._queue.responses(load / self._capacity, self._draw)
        margin, lasted, held = Margin("call p99", 0.0, 0.0), hold, True
        for share in _LOOKS if looks is not None else (1.0,):
            margin = _margin(responses[: max(20, int(share * responses.size))], self._queue.allowed)
            held, lasted = margin.value <= 0, share * hold
            told = looks(load, [margin], lasted) if looks is not None and share < 1 else None
            if told is not None:
                held = told
                break
        return Probe(load, held, (margin,), fresh, at, RAMP_S + EMPTYING_S * fresh + lasted)


@lru_cache
def limit_of(queue: Queue) -> float:
    """Return the load, in shares of the capacity, at which half of all holds meet the threshold."""
    draw = np.random.default_rng(1)
    low, high = 0.3, 1.5
    for _ in range(11):
        middle = (low + high) / 2
        held = sum(_margin(queue.responses(middle, draw), queue.allowed).value <= 0 for _ in range(300))
        low, high = (middle, high) if held > 150 else (low, middle)
    return (low + high) / 2


def _waits(gaps: FloatArray, services: FloatArray, credit: float = 0.0) -> FloatArray:
    """Return how long each call waits for its turn (Lindley's recursion), with so much work done in advance."""
    before = np.concatenate([[0.0], services[:-1]]) - gaps
    walk = np.cumsum(before)
    if not credit:
        return walk - np.minimum.accumulate(np.minimum(walk, 0.0))
    level = walk - np.minimum.accumulate(np.minimum(walk, 0.0))
    return np.maximum(0.0, level - credit)


def _margin(responses: FloatArray, allowed: float) -> Margin:
    """Return the margin of p99, with the error that its scatter between batches of calls shows."""
    value = _p99(responses, allowed)
    each = [_p99(batch, allowed) for batch in np.array_split(responses, _BATCHES)]
    return Margin("call p99", value, _deviation(each) / sqrt(_BATCHES))


def _p99(responses: FloatArray, allowed: float) -> float:
    return log(max(float(np.percentile(responses, 99)), 1e-3) / allowed)


def _deviation(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1))
