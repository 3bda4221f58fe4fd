"""The contract between a worker process, which keeps time, and the load that it drives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from pydantic import BaseModel

from tippingpoint.plan.fields import StageKind
from tippingpoint.plan.read import AnyStage, Plan

OnProgress = Callable[[str, int, int], None]
"""Called with what is being made, how many of it exist, and how many there will be."""


def untold(what: str, done: int, goal: int) -> None:
    """Ignore progress."""


Event = tuple[float, str, dict[str, Any]]
"""A moment on the monotonic clock, what happened, and its fields as in the journal."""


class StageOrder(BaseModel):
    """The message that begins a stage on a worker."""

    do: Literal["stage"] = "stage"
    number: int
    """Counts the stages that were run, from 1, as the journals do."""
    size: int | float
    """The load of all workers together, in the plan's unit (leases, units, claims per second)."""
    kind: StageKind
    spec: AnyStage
    """The stage's own fields, for all workers together: a listed stage of this unit's part, or a probe of a search."""
    over: float
    """Seconds that new load is spread over."""
    share: tuple[int, int]
    """This worker's index and the number of workers: it has every `number`-th thing, beginning with its index."""
    listed: int | None
    """Which of the plan's listed stages this is, from 1; None in a search."""


class ShareOrder(BaseModel):
    """Sets the part of the plan for later stages: this machine's index, of how many machines."""

    do: Literal["share"] = "share"
    index: int
    of: int


class PrepareOrder(BaseModel):
    """Prepares a worker for later stages, which ask for no more than these."""

    do: Literal["prepare"] = "prepare"
    stages: Sequence[AnyStage]
    share: tuple[int, int]
    fresh: bool
    """Whether the stages begin from nothing: what earlier stages left is released first."""


DRAIN_TIMEOUT = 5.0
"""Seconds to wait for operations in flight when a load ends. When a load is cut, operations that were due longer ago
have had that time."""


@dataclass(frozen=True)
class TargetFacts:
    """The target's description of itself, for the report: the software's version and its members' names."""

    kind: str
    version: str
    members: list[str]
    controller: str = ""
    """The name that people use, if the target has one."""


@dataclass(frozen=True)
class Gauge:
    """What a load is doing at a moment."""

    held: int
    """Leases held, or things that exist."""
    waiting: int
    """Units waiting for a release, or things still to be made or removed."""
    in_flight: int
    """Operations sent but not answered."""
    up: bool
    """Whether the stage's full load is up."""
    oldest: float = 0.0
    """Seconds since the oldest operation in flight was due; 0 without any."""


class Load(Protocol):
    """One worker's share of a load, used from one event loop.

    It records every operation in the worker's Recorder by tags (tags.tag). Single events go into `errors`, `lost` and
    `events`, which the worker takes once a second.
    """

    @property
    def errors(self) -> Counter[tuple[str, str, str]]:
        """Failures by (operation, outcome, message) since the worker last took them."""
        ...

    @property
    def lost(self) -> list[tuple[float, int, int, float]]:
        """(moment, lease or thing, unit, seconds held) of losses since the worker last took them."""
        ...

    @property
    def events(self) -> list[Event]:
        """Other single events since the worker last took them."""
        ...

    @property
    def gauge(self) -> Gauge: ...

    async def open(self) -> TargetFacts:
        """Connect; raises TargetError when no server can be reached or the target refuses us."""
        ...

    async def prepare(self, order: PrepareOrder, progress: OnProgress) -> None:
        """Make, before they are measured, what stages up to that size need; raises OperationFailed when that fails."""
        ...

    def revise(self, plan: Plan) -> None:
        """Follow this plan from the next stage on: another part of the same plan, because the number of machines
        changed."""
        ...

    async def begin_stage(self, stage: StageOrder) -> None:
        """Put the stage's load on the target; returns as soon as that has begun."""
        ...

    def expire_calls(self) -> None:
        """Count operations older than the workload's timeout as timed out; called a few times a second."""
        ...

    def stop(self) -> None:
        """Begin nothing more; operations in flight may still end."""
        ...

    async def drain(self, within: float) -> None:
        """Wait for operations in flight; those without an answer after `within` seconds count as timed out.

        If it is cancelled, it does what `cut` does.
        """
        ...

    def cut(self) -> None:
        """Wait for nothing: operations in flight are not counted, because we end them, unless they were due OWED
        seconds ago."""
        ...

    async def give_back(self, within: float) -> int:
        """Release what is held; returns how many leases could not be released in time and will expire."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


@runtime_checkable
class Settling(Protocol):
    """An extension for a load that goes on while it is judged."""

    async def settle(self, within: float, *, count: bool = False) -> dict[str, list[float]]:
        """Wait for the operations that are in flight now, while the load goes on.

        Returns, by operation, how many seconds ago the operations were due that had no answer within `within` seconds.
        With `count`, these count as timed out at their age instead. Their answers count too, if they arrive later.
        """
        ...


@runtime_checkable
class Upkeep(Protocol):
    """An extension for a load that maintains the things it has made."""

    def repair(self) -> None:
        """Check at once which things exist, and retry what was given up or would be retried later."""
        ...

    async def evict(self, member: str) -> None:
        """Remove a dead member from the target by force; raises OperationFailed when it is alive, or stays."""
        ...
