"""The simulated controller's store: what a commit costs, how commits queue, and what happens when they wait too long.

Every claim and every extension of a lease is one commit. Commits are done one after another, as in the log of a Raft
cluster (Juju 2.5) and the write-ahead log of dqlite (Juju 4). A denied claim is a read without a commit. Time is
virtual inside the queue: a commit begins when the last one ended. So a late event loop delays answers, but does not
lower the throughput.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Commit = Literal["claim", "extend"]
State = Literal["normal", "stalled", "failing"]

RETRY_FIRST_S = 0.05
"""Seconds that Juju's lease manager waits before it retries an operation that timed out in the store ..."""
RETRY_FACTOR = 1.6
"""... the factor for each further wait (internal/worker/lease/manager.go of Juju 4.0) ..."""
ATTEMPTS = 10
"""... and the number of attempts before it gives up with "lease operation timed out"."""


@dataclass(frozen=True, slots=True)
class Profile:
    """The cost of a commit, in seconds, at full scale.

    `claim_s` and `extend_s` are the costs of a new lease and of an extension; `per_lease_s` is added for every lease
    held. `wait_s` is how long a commit may wait in the queue before the attempt times out (None: for ever).
    `claims_waiting` is the most new claims that may wait at once (None: any number). Further ones are put off to the
    next attempt.

    Three fields are for planted failures. A commit that waited longer than `patience_s` is for a client that has given
    it up; it costs `waste` times as much, as its work is undone. No more than `most_waiting` commits wait; further ones
    fail at once.
    """

    name: str
    claim_s: float = 0.0
    extend_s: float = 0.0
    per_lease_s: float = 0.0
    wait_s: float | None = 5.0
    claims_waiting: int | None = None
    patience_s: float | None = None
    waste: float = 1.0
    most_waiting: int | None = None


PROFILES: dict[str, Profile] = {
    profile.name: profile
    for profile in (
        Profile("instant"),
        # Seed 002, Juju 2.5.0: up to 1000 leases an operation takes about a second at worst. At 2000 extensions settle
        # at 50-110 ms. Between 2000 and 4000, claims and extensions take 45 s, then over a minute, and leases are lost.
        # No operation times out, it only waits. Renewals come every 30 s, and a commit's cost grows with the leases
        # held: c = b*N. So the queue grows without end when N * b*N / 30 s > 1, which is N = 3000 for b = 3.3 us.
        # At 2000 leases a commit then costs 6.7 ms, and the store is busy 44 % of the time.
        Profile("2.5.0", claim_s=1e-3, extend_s=1e-3, per_lease_s=3.3e-6, wait_s=None),
        # Seed 002, Juju 2.5.1: extensions take 8-15 ms at best, and 30-160 ms at 16,000 leases (533 per second). So a
        # commit costs less than 1/533 s = 1.9 ms at any number of leases. New claims in a burst take 5.1 s: one attempt
        # is given up after 5 s, and another follows. Some in the storm of 20,000 fail after 57 s: ten attempts.
        # Extensions meanwhile stay below 170 ms: 100 waiting commits of 1.5 ms.
        Profile("2.5.1", claim_s=1.5e-3, extend_s=1.5e-3, wait_s=5.0, claims_waiting=100),
        # Measured on a real, stock 4.0.15 (one server, a quiet machine of 2 cores shared with the client, 220 leases):
        # 742 to 846 claims or extensions per second with 8 to 220 at once. p50 was 6.7 ms with 8 and 150 ms with 220.
        # A single one takes 1.7 ms, with TLS and JSON. A transaction may take 30 s (DefaultTimeout of Juju's
        # internal/database/txn). The behaviour of an overloaded store before that is unknown.
        Profile("4.0", claim_s=1.2e-3, extend_s=1.2e-3, wait_s=30.0),
        # Planted: 250 commits a second. What waits then is waiting for 0.6 s, longer than clients that wait for 0.5 s.
        # "plain" is merely too slow for more. "retry-loop" loses seven eighths of that on what clients gave up, and
        # they try again: it stays down until they are nearly gone.
        Profile("plain", claim_s=4e-3, extend_s=4e-3, wait_s=None, most_waiting=150),
        Profile(
            "retry-loop",
            claim_s=4e-3,
            extend_s=4e-3,
            wait_s=None,
            patience_s=0.5,
            waste=8.0,
            most_waiting=150,
        ),
    )
}


class Store:
    """A queue of commits, each with its cost; `leases` returns the number of leases held now.

    At `scale` k one simulated lease stands for k leases. A commit keeps the store busy k times as long, per-lease costs
    count k times, and limits are divided by k. An answer still comes after the cost of one commit. So plateaus keep
    their height, and cliffs come at 1/k of the leases.
    """

    def __init__(
        self,
        profile: Profile,
        scale: float,
        leases: Callable[[], int],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.profile = profile
        self.scale = scale
        self._leases = leases
        self._loop = loop
        self._queue: deque[_Attempt] = deque()
        self._claims_waiting = 0
        self._under_way: _Attempt | None = None
        self._free_at = 0.0
        self._state: State = "normal"
        self._slower = 1.0
        self._has_quorum = True

    def be(self, state: State, slower: float) -> None:
        """Set the state: normal is `slower` times slower, stalled commits nothing, failing fails every attempt."""
        self._state = state
        self._slower = slower
        self._begin_again()

    def quorum(self, there: bool) -> None:
        """Set whether the servers have a quorum. Without one nothing commits."""
        self._has_quorum = there
        self._begin_again()

    def use(self, profile: Profile, scale: float) -> None:
        """Use another cost model from now on. Commits under way end with the old one."""
        self.profile = profile
        self.scale = scale

    def commit(self, kind: Commit, done: Callable[[], None], timed_out: Callable[[], None]) -> None:
        """Commit once, and call `done` when it is committed, or `timed_out` after the last attempt."""
        if self._idle() and not self._cost(kind):
            done()
        else:
            self._attempt(_Attempt(kind, done, timed_out, 1))

    @property
    def works(self) -> bool:
        """Whether commits are being made."""
        return self._state == "normal" and self._has_quorum

    @property
    def waiting(self) -> int:
        """The number of commits that have not begun."""
        return sum(attempt.waits for attempt in self._queue)

    def _attempt(self, attempt: _Attempt) -> None:
        profile = self.profile
        if self._state == "failing":
            self._gave_up(attempt)
            return
        if profile.wait_s is not None:
            attempt.timer = self._loop.call_later(profile.wait_s, self._gave_up, attempt)
        limit = profile.claims_waiting
        if limit is not None and attempt.kind == "claim":
            if self._claims_waiting >= max(1, int(limit / self.scale)):
                return
            self._claims_waiting += 1
        most = profile.most_waiting
        if most is not None and len(self._queue) >= max(1, int(most / self.scale)):
            self._stop_waiting(attempt)
            attempt.timed_out()
            return
        attempt.arrived = self._loop.time()
        attempt.waits = True
        self._queue.append(attempt)
        if self._under_way is None:
            self._go_on()

    def _idle(self) -> bool:
        return self._under_way is None and not self._queue and self.works

    def _cost(self, kind: Commit) -> float:
        profile = self.profile
        each = profile.claim_s if kind == "claim" else profile.extend_s
        return self._slower * (each + profile.per_lease_s * self._leases() * self.scale)

    def _begin_again(self) -> None:
        self._free_at = max(self._free_at, self._loop.time())
        self._go_on()

    def _go_on(self) -> None:
        while self.works:
            attempt = self._under_way or self._begin_next()
            if attempt is None:
                return
            if attempt.ends > self._loop.time():
                self._loop.call_at(attempt.ends, self._go_on)
                return
            self._under_way = None
            attempt.done()

    def _begin_next(self) -> _Attempt | None:
        while self._queue:
            attempt = self._queue.popleft()
            if attempt.waits:
                break
        else:
            return None
        self._stop_waiting(attempt)
        begins = max(self._free_at, attempt.arrived)
        cost = self._cost(attempt.kind)
        patience = self.profile.patience_s
        if patience is not None and begins - attempt.arrived > patience:
            cost *= self.profile.waste
        self._free_at = begins + cost * self.scale
        attempt.ends = begins + cost
        self._under_way = attempt
        return attempt

    def _stop_waiting(self, attempt: _Attempt) -> None:
        if attempt.timer is not None:
            attempt.timer.cancel()
        if attempt.waits:
            attempt.waits = False
            if self.profile.claims_waiting is not None and attempt.kind == "claim":
                self._claims_waiting -= 1

    def _gave_up(self, attempt: _Attempt) -> None:
        self._stop_waiting(attempt)
        if attempt.number >= ATTEMPTS:
            attempt.timed_out()
            return
        delay = RETRY_FIRST_S * RETRY_FACTOR ** (attempt.number - 1)
        again = _Attempt(attempt.kind, attempt.done, attempt.timed_out, attempt.number + 1)
        self._loop.call_later(delay, self._attempt, again)


class _Attempt:
    """One attempt of one operation; `waits` while it is in the queue and has not timed out."""

    __slots__ = ("arrived", "done", "ends", "kind", "number", "timed_out", "timer", "waits")

    def __init__(
        self, kind: Commit, done: Callable[[], None], timed_out: Callable[[], None], number: int
    ) -> None:
        self.kind: Commit = kind
        self.done = done
        self.timed_out = timed_out
        self.number = number
        self.arrived = 0.0
        self.ends = 0.0
        self.waits = False
        self.timer: asyncio.TimerHandle | None = None
