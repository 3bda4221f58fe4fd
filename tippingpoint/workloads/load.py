"""What a worker asks of a workload: the one contract between the process that keeps time and what loads a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel

from tippingpoint.plan.fields import StageKind
from tippingpoint.plan.read import Plan

OnProgress = Callable[[str, int, int], None]
"""Told what is being made, how many of it there are, and how many there will be."""


def untold(what: str, done: int, goal: int) -> None:
    """Progress that nobody watches."""


Event = tuple[float, str, dict[str, Any]]
"""A moment on the monotonic clock, what happened, and its fields as they stand in the journal."""


class StageOrder(BaseModel):
    """A stage as a worker is told of it."""

    do: Literal["stage"] = "stage"
    number: int
    """Counts the stages that were run, from 1, as the journals do."""
    size: int
    """The load of all workers together, in the workload's own unit (leases, units)."""
    kind: StageKind
    over: float
    """Seconds that new load is spread over."""
    share: tuple[int, int]
    """This worker's index and the number of workers: it has every number-th thing from its index on."""
    listed: int | None
    """Which of the plan's listed stages this is, from 1; None in a search."""


class ShareOrder(BaseModel):
    """Which part of the plan the stages that follow are of: the part of one machine's workers, of many machines."""

    do: Literal["share"] = "share"
    index: int
    of: int


class PrepareOrder(BaseModel):
    """What a worker is to have ready before the stages that follow: `size` is the largest of them."""

    do: Literal["prepare"] = "prepare"
    size: int
    share: tuple[int, int]
    fresh: bool
    """The stages begin from nothing: what those before left is given back first."""


OWED = 5.0
"""Seconds that what is under way when a load ends is waited for: what was due longer ago when a load is cut has had
them."""


@dataclass(frozen=True)
class TargetFacts:
    """What is being tested: the software's version and its members' names, for the report."""

    kind: str
    version: str
    members: list[str]
    controller: str = ""
    """What people call it, where a target has a name."""


@dataclass(frozen=True)
class Gauge:
    """What a load is doing at a moment."""

    held: int
    """Leases held, or things that are there."""
    waiting: int
    """Units waiting for a release, or things that are still to be made or removed."""
    in_flight: int
    """Operations sent and not answered."""
    up: bool
    """Whether the stage's load is there in full."""


class Load(Protocol):
    """One worker's share of a load, used from one event loop.

    It records every operation in the worker's Recorder by tags (tags.tag) and puts what matters
    singly into `errors` and `lost`, which the worker takes once a second.
    """

    @property
    def errors(self) -> Counter[tuple[str, str, str]]:
        """(operation, outcome, message) of failures since the worker last took them."""
        ...

    @property
    def lost(self) -> list[tuple[float, int, int, float]]:
        """(moment, lease or thing, unit, seconds held) of losses since the worker last took them."""
        ...

    @property
    def events(self) -> list[Event]:
        """What else matters singly, since the worker last took it."""
        ...

    @property
    def gauge(self) -> Gauge: ...

    async def open(self) -> TargetFacts:
        """Connect; TargetError when no server can be reached or the target refuses us."""
        ...

    async def prepare(self, order: PrepareOrder, progress: OnProgress) -> None:
        """Make what stages up to that size need and is no part of what they measure; OperationFailed when it fails."""
        ...

    def revise(self, plan: Plan) -> None:
        """Go by this plan from the next stage on: another part of the same one, as the number of machines changed."""
        ...

    async def begin_stage(self, stage: StageOrder) -> None:
        """Put the stage's load on the target; returns as soon as it is begun."""
        ...

    def expire_calls(self) -> None:
        """Count operations older than the workload's timeout as timed out; called a few times a second."""
        ...

    def stop(self) -> None:
        """Begin nothing further; what is under way may still end."""
        ...

    async def drain(self, within: float) -> None:
        """Wait for what is under way; what has no answer after `within` seconds counts as timed out. Cancelled, it does
        as `cut`."""
        ...

    def cut(self) -> None:
        """Wait for nothing: what is under way counts for nothing, as we end it, unless it was due OWED seconds ago."""
        ...

    async def give_back(self, within: float) -> int:
        """Give back what is held singly; returns how many could not be in time and will end by themselves."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


@runtime_checkable
class Upkeep(Protocol):
    """What a load does beside where it keeps up what it has made."""

    def repair(self) -> None:
        """Look at once what is there, and try again what was given up, or is to be tried again later."""
        ...

    async def evict(self, member: str) -> None:
        """Remove a member that is gone from the target by force; OperationFailed when it is not gone, or stays."""
        ...
