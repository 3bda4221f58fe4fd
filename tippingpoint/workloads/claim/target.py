"""The contract between the claim workload and a target."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tippingpoint.workloads.load import OnProgress, TargetFacts


@dataclass(slots=True)
class Holding:
    """A granted claim: the lease's number, its holder, and what the target needs to extend it."""

    lease: int
    holder: int
    token: object = None


class ClaimTarget(Protocol):
    """A lease service. There is one instance per worker, used from one event loop, with no task per idle unit.

    Leases and holders are numbers; a target may choose their names among those that the ledger declares as ours. A call
    returns a future that ends when the target has answered, or with OperationFailed when the target or the connection
    failed. It never raises anything else, and never hangs after `close`. The workload handles timeouts by cancelling
    the future.
    """

    async def open(self) -> TargetFacts:
        """Connect; raises TargetError when no server can be reached or the target refuses us."""
        ...

    def claim(self, lease: int, holder: int) -> Future[Holding | None]:
        """Try to take a lease; the future ends with a Holding, or None when another unit holds it."""
        ...

    def extend(self, holding: Holding) -> Future[bool]:
        """Keep a lease for another claim time; the future ends with False when it is no longer ours."""
        ...

    def watch_release(self, lease: int, holder: int, released: Callable[[], None]) -> None:
        """Call `released` once when the lease is free after a denied claim, or at once if it is free already.

        The watch survives a lost connection; a release that may have been missed meanwhile counts as one.
        """
        ...

    def unwatch(self, lease: int, holder: int) -> None:
        """Stop waiting for a release; does nothing without such a watch."""
        ...

    def release(self, holding: Holding) -> Future[None]:
        """Release a lease."""
        ...

    async def drop(self) -> None:
        """Close every connection without releasing anything, and open new ones (a restart storm)."""
        ...

    async def close(self) -> None:
        """Close every connection; calls in flight end with OperationFailed."""
        ...


@runtime_checkable
class Led(Protocol):
    """An extension for a target that is a cluster of members, one of which leads."""

    async def leader(self) -> str | None:
        """Return the name of the member that leads now, by a request that costs the target next to nothing.

        Returns an empty name if no member leads or none answers, and None if our user is not allowed to know. Never
        raises.
        """
        ...


@runtime_checkable
class Visible(Protocol):
    """An extension for a target whose members answer reads on their own, perhaps with old values."""

    def seen(self, holding: Holding) -> Future[None]:
        """Read a lease from all members until each shows its last acknowledged renewal, or a later one.

        Members that are down, or have no quorum, are not waited for. The future ends like those of ClaimTarget.
        """
        ...


Happened = Callable[[str, Mapping[str, Any]], None]
"""Called with an event of the target and its fields."""


@runtime_checkable
class Noticing(Protocol):
    """An extension for a target that notices more than the answers to its calls."""

    def notice(self, happened: Happened, members: bool) -> None:
        """Call `happened` with each event from now on. Only with `members` may events be about the target's members.

        One worker of a run reports the members for all. A target that reports who leads is not also `Led`.
        """
        ...


class Link(Protocol):
    """A unit's connection."""

    @property
    def closed(self) -> bool:
        """Whether it is closed, by either side."""
        ...


@runtime_checkable
class OwnConnections(Protocol):
    """An extension for a target where every unit has an identity and a connection of its own.

    A claim is made only while the unit is connected. Such a target may have no way to release a lease: then `release`
    does nothing, and the lease is free again when its claim time is over.
    """

    async def prepare(self, leases: Sequence[int], units: int, progress: OnProgress) -> None:
        """Make the units of these leases that do not exist yet; raises OperationFailed when that fails."""
        ...

    def connect(
        self, lease: int, holder: int, begun: Callable[[], None], lost: Callable[[str], None]
    ) -> Future[Any]:
        """Connect one unit as itself; the future ends with its Link.

        It ends with Limited when a rate limit refuses it, and with OperationFailed when it fails. `begun()` is called
        once, when its turn has come and the first byte is sent. That may be after this returns, because only a few
        connect at a time. `lost(reason)` is called once when the connection ends without our doing. That may be before
        the future's end was handled: then its Link is closed.
        """
        ...

    def disconnect(self, lease: int, holder: int) -> None:
        """Close a unit's connection; does nothing without one."""
        ...
