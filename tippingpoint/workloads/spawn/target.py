"""The contract between the spawn workload and a target: things in groups, made and removed singly, listed by
group."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args, runtime_checkable

from tippingpoint.errors import OperationFailed

if TYPE_CHECKING:  # API clients import the exceptions below, and need nothing of a worker
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
"""Why an operation failed, which decides whether it is retried (see retries.py).

- locked: the database was locked.
- quorum: the cluster has no leader, or its database did not answer in time.
- unreachable: the connection, or the member that was to do it, is gone.
- busy: another operation on the same thing was in progress.
- timeout: there was no answer in time.
- full: the storage is full.
- quota: a limit of the project or the user was reached.
- image: the image does not exist.
- trust: we are not let in.
- setting: a setting was refused.
- other: anything else.
"""
TROUBLES: tuple[Trouble, ...] = get_args(Trouble)
PASSING: tuple[Trouble, ...] = ("locked", "quorum", "busy", "unreachable", "timeout")
"""Causes that pass by themselves: requests that are not part of the load are retried while they last."""


class SpawnFailed(OperationFailed):
    """Raised when the target failed one operation; `kind` is the cause according to its message."""

    def __init__(self, message: str, kind: Trouble = "other") -> None:
        self.kind: Trouble = kind
        super().__init__(message)


class Gone(SpawnFailed):
    """Raised when the thing to be started, probed or deleted does not exist."""


class Exists(SpawnFailed):
    """Raised when the thing to be made exists already."""


class Item(NamedTuple):
    """A thing by its group and its number in it, both from 0. The target makes names of them."""

    group: int
    number: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A thing as a list shows it."""

    running: bool
    member: str
    """The name of the cluster's member that it is on; empty without a cluster."""
    address: bool = False
    """Whether it has an address of its own; also False if addresses were not requested."""
    unclear: bool = False
    """Whether the target does not know if it runs; `running` and `address` mean nothing then. (On LXD this is status
    Error, which instances on an online member also show while the cluster changes its leader.)"""
    in_use: bool = False
    """Whether it has to be released before it is removed; only for a target that is Releasing."""


class Changes(Mapping[Item, Seen]):
    """A group's list from a target that knows what has changed: with 168,000 things, comparing all of them at each poll
    would be most of the load."""

    @property
    @abstractmethod
    def changed(self) -> Collection[Item]:
        """The things that appeared, disappeared, or look different since the last list that was taken in."""

    @abstractmethod
    def taken(self) -> None:
        """Note that the changes were taken in; until then further lists include them, too."""


@dataclass(frozen=True, slots=True)
class MemberSeen:
    """One member of the cluster as it reports itself; a single server is one member that is online."""

    name: str
    online: bool
    leader: bool = False
    """Whether it leads the cluster's database."""
    takes: bool = True
    """Whether it accepts new things (it is not being emptied for maintenance)."""
    stale: bool = False
    """Whether the status may be old: offline is then no sign that the member is gone."""
    address: str = ""
    """The host where it is reached, by which metrics may name it; empty if the target does not report it."""


class SpawnTarget(Protocol):
    """One worker's access to the target, used from one event loop; failures raise SpawnFailed.

    Calls have no time limit: the workload cancels those that take too long. A cancelled call may still take effect,
    which shows in the next list.
    """

    waits_with_members: bool
    """Whether calls hang when the member that executes them is gone, so that waiting for them is useless."""

    async def open(self) -> TargetFacts:
        """Connect; raises TargetError when the target cannot be reached or does not accept us."""
        ...

    async def prepare(self, groups: range, progress: OnProgress) -> None:
        """Make the groups among these that do not exist."""
        ...

    async def create(self, item: Item, member: str | None) -> None:
        """Make a thing without starting it, on that member, or where the target decides; raises Exists."""
        ...

    async def start(self, item: Item) -> str:
        """Start a thing, unless it runs; returns the member that it runs on, or an empty name if that is not known at
        once.

        Raises Gone if it does not exist.
        """
        ...

    def is_failed(self, item: Item) -> bool:
        """Return whether what exists of a thing that failed to start will never run: then it is removed, and made
        anew."""
        ...

    async def probe(self, item: Item) -> None:
        """Do something in a thing that shows that it works; raises Gone if it does not exist."""
        ...

    async def delete(self, item: Item) -> None:
        """Stop and remove a thing, if it exists."""
        ...

    async def list_group(self, group: int, *, addresses: bool) -> Mapping[Item, Seen]:
        """Return the things of a group, by one call; with addresses if these are requested. They may be Changes."""
        ...

    async def members(self) -> list[MemberSeen]:
        """Return the cluster's members."""
        ...

    async def evict(self, member: str) -> None:
        """Remove a dead member from the cluster, with everything on it."""
        ...

    async def observe(self, what: str, group: int, running: Item | None) -> bool:
        """Make one of the target's OBSERVATIONS; `running` is a thing that runs. Returns False if there was nothing
        to observe."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


@runtime_checkable
class Releasing(Protocol):
    """An extension for a target whose things are in somebody's use once they were probed."""

    async def release(self, item: Item) -> None:
        """End the use of a thing, so that it can be removed; raises Gone if it does not exist."""
        ...


@runtime_checkable
class Switching(Protocol):
    """An extension for a target whose things can be powered on and off."""

    async def switch(self, item: Item, *, on: bool) -> None:
        """Switch a thing off or on, and wait until that is done; raises Gone if it does not exist."""
        ...


@runtime_checkable
class EventSource(Protocol):
    """An extension for a target that reports other events."""

    def take_events(self) -> list[tuple[str, dict[str, Any]]]:
        """Return the events since the last call, with their fields, for the journal."""
        ...
