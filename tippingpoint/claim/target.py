"""What the claim workload asks of a target: the one contract a new target has to meet."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(slots=True)
class Holding:
    """A claim that was granted: the lease's number, who holds it, and what the target needs to extend it."""

    lease: int
    holder: int
    token: object = None


@dataclass(frozen=True)
class TargetFacts:
    """What is being tested: the software's version and its members' names, for the report."""

    kind: str
    version: str
    members: list[str]


class ClaimTarget(Protocol):
    """A lease service. One instance per worker; used from one event loop; no task per idle unit.

    Leases and holders are numbers; a target names them as it likes within what the ledger says is ours.
    A call returns a future that ends when the target has answered. It ends with OperationFailed when the
    target or the connection failed; whatever happens, it never raises anything else and never hangs
    after `close`. Timeouts are the workload's business: it cancels the future.
    """

    async def open(self) -> TargetFacts:
        """Connect; TargetError when no server can be reached or the target refuses us."""
        ...

    def claim(self, lease: int, holder: int) -> Future[Holding | None]:
        """Try to take a lease: a Holding, or None when somebody else holds it."""
        ...

    def extend(self, holding: Holding) -> Future[bool]:
        """Keep a lease for another claim time: False when it is no longer ours."""
        ...

    def watch_release(self, lease: int, holder: int, released: Callable[[], None]) -> None:
        """Call `released` once, when the lease is free after a denied claim (at once if it is already).

        Survives a lost connection; a release that may have been missed meanwhile counts as one.
        """
        ...

    def unwatch(self, lease: int, holder: int) -> None:
        """Stop waiting for a release; nothing happens when there is no such watch."""
        ...

    def release(self, holding: Holding) -> Future[None]:
        """Give a lease back."""
        ...

    async def drop(self) -> None:
        """Close every connection without releasing anything and open fresh ones (a restart storm)."""
        ...

    async def close(self) -> None:
        """Close every connection; futures under way end with OperationFailed."""
        ...
