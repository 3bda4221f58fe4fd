"""Juju's lease semantics for one model: a lease has one holder, only the holder extends it, and it expires in rounds.

The rules are those of Juju 4.0 (internal/worker/lease, internal/worker/leaseexpiry, domain/lease). A claim of a lease
with another holder is denied without a commit, even if the lease has expired but is not removed yet. A holder extends
by claiming again, to now plus the duration, even after expiry. Expired leases are removed in rounds, each 1 to 5
seconds after the last one. Clients that wait for a release are notified in the round that finds the lease gone, even if
it had no holder.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Literal

from lab.juju.store import Store

Outcome = Literal["ok", "denied", "timed out"]

SHORTEST_S = 5.0
LONGEST_S = 300.0
"""The longest duration. Outside 5 s to 5 min it is refused: "invalid duration" (apiserver/facades/agent/leadership)."""
EXPIRY_ROUND_S = (1.0, 5.0)
"""The shortest and longest seconds from one round of removals to the next (internal/worker/leaseexpiry)."""


class Leases:
    """The leases of one model, by application name."""

    def __init__(self, store: Store, loop: asyncio.AbstractEventLoop) -> None:
        self._store = store
        self._loop = loop
        self._held: dict[str, tuple[str, float]] = {}
        self._blocked: dict[str, dict[int, Callable[[], None]]] = {}
        self._blocks = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def unused(self) -> bool:
        """Whether no lease is held and nobody waits for one."""
        return not self._held and not self._blocked

    def holder(self, application: str) -> str | None:
        """Return the unit that holds an application's lease, which may have expired, until it is removed."""
        lease = self._held.get(application)
        return lease[0] if lease else None

    def claim(
        self, application: str, unit: str, duration_s: float, answer: Callable[[Outcome], None]
    ) -> None:
        """Claim a lease, or extend it for its holder. `answer` is called once, now or when the store is done."""
        lease = self._held.get(application)
        if lease is not None and lease[0] != unit:
            answer("denied")
            return

        def committed() -> None:
            now = self._held.get(application)
            if now is not None and now[0] != unit:
                answer("denied")
                return
            self._held[application] = (unit, self._loop.time() + duration_s)
            answer("ok")

        self._store.commit("claim" if lease is None else "extend", committed, lambda: answer("timed out"))

    def block(self, application: str, released: Callable[[], None]) -> Callable[[], None]:
        """Call `released` in the round that finds the lease gone. Return a function that cancels this."""
        self._blocks += 1
        number = self._blocks
        self._blocked.setdefault(application, {})[number] = released

        def forget() -> None:
            waiting = self._blocked.get(application)
            if waiting is not None and waiting.pop(number, None) is not None and not waiting:
                del self._blocked[application]

        return forget

    def revoke(self, unit: str) -> None:
        """Free the leases of a unit that is removed."""
        application = unit.partition("/")[0]
        if self.holder(application) == unit:
            del self._held[application]
            self._unblock(application)

    def expire(self) -> None:
        """Run one round: remove expired leases, then notify the clients that waited for them."""
        now = self._loop.time()
        for application in [name for name, (_, until) in self._held.items() if until < now]:
            del self._held[application]
        for application in [name for name in self._blocked if name not in self._held]:
            self._unblock(application)

    def _unblock(self, application: str) -> None:
        for released in self._blocked.pop(application, {}).values():
            released()


def next_round_in() -> float:
    """Return the seconds until the next round of removals."""
    return random.uniform(*EXPIRY_ROUND_S)
