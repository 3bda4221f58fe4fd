"""What the claim workload asks of a target: the one contract a new target has to meet."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tippingpoint.workloads.load import OnProgress, TargetFacts


@dataclass(slots=True)
class Holding:
    """A claim that was granted: the lease's number, who holds it, and what the target needs to extend it."""

    lease: int
    holder: int
    token: object = None


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


@runtime_checkable
class Led(Protocol):
    """What a target has besides that is a cluster of members, one of which leads."""

    async def leader(self) -> str | None:
        """The name of the member that leads now, by a question that costs the target next to nothing.

        Empty while none does, or nobody answers; None where the target will not tell our user. Never raises anything.
        """
        ...


class Link(Protocol):
    """A unit's connection."""

    @property
    def closed(self) -> bool:
        """Whether it has ended, by whosever doing."""
        ...


@runtime_checkable
class OwnConnections(Protocol):
    """What a target has besides where every unit is somebody of its own, with a connection of its own.

    A claim is made only while the unit is connected. Such a target may have no way to give a lease back:
    then `release` does nothing, and a lease is free again when its claim time is over.
    """

    async def prepare(self, leases: Sequence[int], units: int, progress: OnProgress) -> None:
        """Make the units of these leases, as far as they are not there; OperationFailed when that fails."""
        ...

    def connect(
        self, lease: int, holder: int, begun: Callable[[], None], lost: Callable[[str], None]
    ) -> Future[Any]:
        """Connect one unit as itself; the future ends with its Link.

        Ends with Limited when a rate limit refuses it, else with OperationFailed when it fails. `begun()` is
        called once when its turn has come and the first byte is sent, later than this returns: few connect at a
        time. `lost(reason)` is called once when the connection ends without our doing, which may be before
        anybody has seen the future's end: its Link is closed then.
        """
        ...

    def disconnect(self, lease: int, holder: int) -> None:
        """Close a unit's connection; nothing happens when there is none."""
        ...
