"""What the spawn workload needs of a target: things in groups, made and removed one by one and listed by the group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

from tippingpoint.errors import OperationFailed

if TYPE_CHECKING:  # what targets raise is imported by API clients, which need nothing of a worker's
    from tippingpoint.workloads.load import OnProgress, TargetFacts

Trouble = Literal[
    "locked",
    "quorum",
    "unreachable",
    "busy",
    "timeout",
    "full",
    "quota",
    "image",
    "trust",
    "setting",
    "other",
]
"""Why an operation failed, which decides whether it is tried again (see retries.py):

locked: the database was locked; quorum: the cluster has no leader or its database did not answer in time;
unreachable: the connection, or the member that was to do it, is gone; busy: another operation on the same thing;
timeout: no answer in time; full: no room left in storage; quota: a limit of the project or the user; image: it is
not there; trust: we are not let in; setting: a setting was refused; other: anything else.
"""
TROUBLES: tuple[Trouble, ...] = get_args(Trouble)
PASSING: tuple[Trouble, ...] = ("locked", "quorum", "busy", "unreachable", "timeout")
"""What passes by itself: what is no part of the load is asked again so long."""


class SpawnFailed(OperationFailed):
    """One operation that the target failed, and why, as far as its message tells."""

    def __init__(self, message: str, kind: Trouble = "other") -> None:
        self.kind: Trouble = kind
        super().__init__(message)


class Gone(SpawnFailed):
    """The thing that was to be started, probed or deleted is not there."""


class Exists(SpawnFailed):
    """The thing that was to be made is there already."""


class Item(NamedTuple):
    """A thing that is to be there: its group and its number in it, both from 0. The target makes names of them."""

    group: int
    number: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A thing as a list shows it."""

    running: bool
    member: str
    """The name of the cluster's member that it is on; empty where there are none."""
    address: bool = False
    """Whether it has an address of its own; False too when addresses were not asked for."""
    unclear: bool = False
    """The target cannot tell whether it runs (LXD: status Error, which instances on an online member show too
    while the cluster changes its leader): nothing is concluded from `running` and `address` then."""


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """One member of the cluster as it reports itself; a single server is one member that is online."""

    name: str
    online: bool
    leader: bool = False
    """Whether it leads the cluster's database."""
    takes: bool = True
    """Whether new things may be put on it (it is not being emptied for maintenance)."""
    stale: bool = False
    """The target may say so of old: offline is no sign then that it is gone."""
    address: str = ""
    """The host where it is reached, by which whoever measures it may know it; empty where the target does not tell."""


class SpawnTarget(Protocol):
    """One worker's access to the target, used from one event loop; what fails raises SpawnFailed.

    No call is given a time limit: the workload cancels what takes too long. A cancelled call may still take
    effect, which the next list shows.
    """

    waits_with_members: bool
    """Whether a call hangs when the member is gone that is to do it, and is not worth waiting for then."""

    async def open(self) -> TargetFacts:
        """Connect; TargetError when it cannot be reached or does not let us in."""
        ...

    async def prepare(self, groups: range, progress: OnProgress) -> None:
        """Make these groups, unless they are there."""
        ...

    async def create(self, item: Item, member: str | None) -> None:
        """Make a thing, not started; on that member, or where the target puts it. Exists when it is there."""
        ...

    async def start(self, item: Item) -> str:
        """Start it, fine when it runs already; the member that it runs on, empty where that is not known at once. Gone
        when it is not there."""
        ...

    def is_failed(self, item: Item) -> bool:
        """Whether what is there of a thing that failed to start will never run: it is to be removed, and made anew."""
        ...

    async def probe(self, item: Item) -> None:
        """Do in it what shows that it works; Gone when it is not there."""
        ...

    async def delete(self, item: Item) -> None:
        """Stop and remove it; fine when it is not there."""
        ...

    async def list_group(self, group: int, *, addresses: bool) -> Mapping[Item, Seen]:
        """What there is of a group, by one call; with addresses where they are asked for."""
        ...

    async def members(self) -> list[MemberSeen]:
        """The cluster's members."""
        ...

    async def evict(self, member: str) -> None:
        """Remove a member that is gone from the cluster, and what was on it."""
        ...

    async def observe(self, what: str, group: int, running: Item | None) -> bool:
        """One of the target's OBSERVATIONS; `running` is a thing that runs. False when nothing was there for it."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


@runtime_checkable
class EventSource(Protocol):
    """What a target does beside that tells of what else happens in it."""

    def take_events(self) -> list[tuple[str, dict[str, Any]]]:
        """What happened since this was last asked: events for the journal, with their fields."""
        ...
