"""The spawn workload in a plan: groups of things that are made, started, reached, probed, kept up, and removed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tippingpoint.plan.base import MAX_STAGES, BasePlan, check_operations, check_things_faults
from tippingpoint.plan.fields import Seconds, Section, StageKind
from tippingpoint.plan.kinds import ByKind, TargetSection
from tippingpoint.util.durations import format_duration

LIFE = ("create", "start", "reachable", "probe", "launch", "delete", "total")
"""What is timed of one thing's life; `launch` from the moment it was due until it is as the plan wants it, `total`
until it is removed again, where that is what the plan wants of it."""

Until = Literal["created", "started", "reachable", "probed"]
Passing = Literal["locked", "quorum", "unreachable", "busy", "timeout", "full", "quota", "image", "other"]
RETRIES: dict[Passing, int] = {
    "locked": 20,
    "quorum": 20,
    "unreachable": 20,
    "busy": 20,
    "timeout": 3,
    "full": 0,
    "quota": 0,
    "image": 0,
    "other": 3,
}
"""How often one thing is tried again after a failure of a kind: what passes by itself often, what does not never."""

Count = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]


class SpawnWorkload(Section, frozen=True):
    """Things in groups (projects) that are made, started, reached, probed, repaired while kept, and removed."""

    kind: Literal["spawn"]
    until: Until = Field(
        default="reachable",
        description="how far a thing is brought: created, started, reachable (it has its address), probed",
    )
    rate: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)] | None = Field(
        default=None, description="open loop: so many per second, however late the target is"
    )
    concurrency: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="closed loop: so many at once, the next when one has started"
    )
    batch: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None,
        description="closed loop: so many at once, and the next so many when all of them have started",
    )
    retries: dict[Passing, Annotated[int, Field(ge=0, le=1000)]] = Field(
        default={},
        description="how often a thing is tried again after failures of a kind; "
        + ", ".join(f"{kind} {count}" for kind, count in RETRIES.items()),
    )
    cycle: bool = Field(
        default=False,
        description="remove each thing as soon as it is as wanted: a stage's instances are then iterations, and "
        "nothing stays there",
    )
    repair: bool = Field(default=True, description="make again what is lost")
    evict: bool = Field(
        default=False,
        description="remove a member that is gone from the cluster by force, and make again what was on it",
    )
    offline_polls: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=5,
        description="a member is gone when it was offline in so many polls one after the other",
    )
    poll_every: Seconds = Field(
        default=1.0, description="how often the members, and groups that change, are listed"
    )
    observe_every: Seconds = Field(
        default=10.0, description="how often what users ask for is asked for; 0s never"
    )
    timeout: Seconds = Field(default=300.0, description="after this an operation counts as a timeout")
    memory: Annotated[int, Field(ge=1, le=1 << 20)] = Field(
        default=16,
        description="MiB that a thing is expected to take of its member's memory; what does not fit is refused",
    )

    @model_validator(mode="after")
    def _paced(self) -> SpawnWorkload:
        paces = {name: getattr(self, name) for name in ("rate", "concurrency", "batch")}
        given = {name: value for name, value in paces.items() if value is not None}
        if len(given) != 1:
            found = ", ".join(f"{name} {value:g}" for name, value in given.items()) or "none"
            raise ValueError(f"rate: {found}: expected one of rate, concurrency and batch")
        if self.cycle and self.until not in ("created", "started"):
            raise ValueError(f"until: {self.until}: expected created or started, with cycle")
        if self.timeout < 0.01:
            raise ValueError(f"timeout: {format_duration(self.timeout)}: expected at least 10ms")
        if self.poll_every < 0.1:
            raise ValueError(f"poll_every: {format_duration(self.poll_every)}: expected at least 100ms")
        return self


class SpawnStage(Section, frozen=True):
    """One step of a fill: what there is in all when it is reached; less than before is removed."""

    groups: Count = Field(default=1, description="groups (projects)")
    instances: Count = Field(description="things (containers) in each group")
    members: Annotated[int, Field(ge=1, le=1000, strict=True)] | None = Field(
        default=None,
        description="members the cluster has in this stage; a lab starts those that are missing",
    )
    hold: Seconds = Field(default=30.0, description="how long it is kept up and observed once it is there")

    @property
    def size(self) -> int:
        """How many things there are in all."""
        return self.groups * self.instances

    @property
    def over(self) -> float:
        """Seconds the stage is spread over: none, as the workload says how fast things are made."""
        return 0.0


class SpawnPlan(BasePlan, frozen=True):
    """A plan of the spawn workload, on a target that runs things."""

    target: Annotated[TargetSection, ByKind("spawn")]
    workload: SpawnWorkload
    stages: Annotated[list[SpawnStage], Field(min_length=1, max_length=MAX_STAGES)]

    @property
    def load_unit(self) -> str:
        """What loads are counted in: what things are called, or the cluster's members where only these differ."""
        if self.workload.cycle:
            return "iterations"
        few = len({stage.size for stage in self.stages}) == 1 < len({stage.members for stage in self.stages})
        if few:
            return "members"
        return self.target.things

    @property
    def loads(self) -> list[tuple[StageKind, int]]:
        """The kind and the load of each stage; one with fewer things than before destroys, and has the load before it.

        A stage that removes everything would say nothing otherwise.
        """
        if self.workload.cycle:
            return [("ramp", stage.size) for stage in self.stages]
        found: list[tuple[StageKind, int]] = []
        before = 0
        for stage in self.stages:
            load = (stage.members or 0) if self.load_unit == "members" else max(stage.size, before)
            found.append(("destroy" if stage.size < before else "ramp", load))
            before = stage.size
        return found

    @model_validator(mode="after")
    def _whole(self) -> SpawnPlan:
        check_operations(self.thresholds, spawn_operations(type(self.target)))
        check_things_faults(self.faults, [stage.hold for stage in self.stages])
        self.target.check(self)
        return self


def spawn_operations(target: type[TargetSection]) -> tuple[str, ...]:
    """What the spawn workload times on such a target; `poll` is its own list of a group."""
    life = tuple(target.called.values()) or LIFE
    return (*life, *(("evict",) if target.evicts else ()), "poll", *target.observations)
