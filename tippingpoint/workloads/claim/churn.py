"""Churn: leases are claimed at a rate, held for a moment, and released.

It is an open loop: a claim is made when it is due, however late the target answers. One unit claims each lease. The
number of a lease is reused once it has been released, so the target never has more leases than exist at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from tippingpoint.plan.claim import MAX_LEASES
from tippingpoint.workloads.schedule import Schedule

HELD_FOR = 0.1
"""Seconds for which such a lease is held: its release is due this long after the answer to its claim."""


class Turns:
    """When one worker's claims are due, and which lease each of them is for.

    `claim(lease, due)` is called for each; `again(lease)` must be called once the lease has been released.
    """

    def __init__(self, schedule: Schedule, claim: Callable[[int, float], None]) -> None:
        self._schedule = schedule
        self._claim = claim
        self._round = 0
        self._free: deque[int] = deque()
        self._next = 0
        self._step = 1

    def begin(self, claims: float | None, share: tuple[int, int], moment: float) -> None:
        """Make this many claims per second of all workers from a moment on; for none, make no more."""
        self._round += 1
        index, workers = share
        if workers != self._step or not self._next:
            self._free.clear()
            # From the top, so that none of the held leases is used.
            self._next, self._step = MAX_LEASES - 1 - index, workers
        if claims is not None:
            due = partial(self._due, self._round, workers / claims)
            self._schedule.at(moment + index / claims, due)

    def stop(self) -> None:
        """Make no more claims."""
        self._round += 1

    def forget(self) -> None:
        """Use other leases from now on: nothing is known about the present ones."""
        self.stop()
        self._free.clear()

    def again(self, lease: int) -> None:
        """Reuse a lease."""
        self._free.append(lease)

    def _due(self, its_round: int, gap: float, due: float) -> None:
        if its_round != self._round:
            return
        self._schedule.at(due + gap, partial(self._due, its_round, gap))
        if self._free:
            lease = self._free.popleft()
        else:
            lease, self._next = self._next, self._next - self._step
        self._claim(lease, due)
