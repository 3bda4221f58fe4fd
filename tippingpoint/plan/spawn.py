"""The spawn workload in a plan: groups of things are made, started, reached, probed, repaired and removed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tippingpoint.plan.base import MAX_STAGES, BasePlan, check_operations, check_things_faults
from tippingpoint.plan.fields import Seconds, Section, StageKind, in_units
from tippingpoint.plan.kinds import ByKind, TargetSection
from tippingpoint.util.durations import format_duration

LIFE = ("create", "start", "reachable", "probe", "launch", "delete", "total")
"""The steps of one thing's life. `launch` is the time from the moment it was due until it is as `until` says. `total`
is the time until it is removed again, where the plan removes each thing. Some targets have more steps, by names in
`TargetSection.called`: `off` and `on` switch a thing that was probed, and `release` precedes `delete`."""

Until = Literal["created", "started", "reachable", "probed", "switched"]
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
"""How often one thing is tried again, by the cause of the failure: often for a cause that passes by itself."""

Count = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
Pace = Annotated[int, Field(ge=1, le=10_000, json_schema_extra=in_units("things"))]


class SpawnWorkload(Section, frozen=True):
    """Things in groups (projects) are made, started, reached, probed, repaired and removed. Exactly one of `rate`,
    `concurrency` and `batch` says how fast."""

    kind: Literal["spawn"] = Field(description="The workload: `spawn`.")
    until: Until = Field(
        default="reachable",
        description="How far each thing is brought: `created`, `started`, `reachable` (it has its address), `probed`, "
        "or `switched` (off and on again, where the target's things have power).",
    )
    rate: (
        Annotated[
            float,
            Field(gt=0, le=10_000, allow_inf_nan=False, json_schema_extra=in_units("things per second")),
        ]
        | None
    ) = Field(
        default=None,
        description="Open loop: how many things are made per second, however late the target answers.",
    )
    concurrency: Pace | None = Field(
        default=None,
        description="Closed loop: how many things are made at once. The next is begun when one has started.",
    )
    batch: Pace | None = Field(
        default=None,
        description="Closed loop: how many things are made at once. The next batch is begun when all of one have "
        "started.",
    )
    retries: dict[Passing, Annotated[int, Field(ge=0, le=1000)]] = Field(
        default={},
        description="How often a thing is tried again, by the cause of the failure. Without a value of its own a cause "
        "has this one: " + ", ".join(f"{kind} {count}" for kind, count in RETRIES.items()) + ".",
    )
    cycle: bool = Field(
        default=False,
        description="Each thing is removed as soon as it is as `until` says. A stage's instances are then iterations, "
        "and nothing stays in the target.",
    )
    repair: bool = Field(default=True, description="Things that are lost are made again.")
    evict: bool = Field(
        default=False,
        description="A member that is gone is removed from the cluster by force. The things that were on it are made "
        "again.",
    )
    offline_polls: Annotated[int, Field(ge=1, le=1000, json_schema_extra=in_units("polls"))] = Field(
        default=5, description="A member counts as gone when this many polls in a row found it offline."
    )
    poll_every: Seconds = Field(
        default=1.0,
        description="How often the members, and the groups that change, are listed; at least 100ms.",
    )
    observe_every: Seconds = Field(
        default=10.0,
        description="How often the requests of ordinary users, such as lists, are sent and timed; 0s never.",
    )
    timeout: Seconds = Field(
        default=300.0, description="An operation that takes longer counts as a timeout; at least 10ms."
    )
    memory: Annotated[int, Field(ge=1, le=1 << 20, json_schema_extra=in_units("MiB"))] = Field(
        default=16,
        description="The memory that each thing is expected to take on its member. A stage that does not fit is "
        "refused.",
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
    """One step of a fill: how many things there are in all. A smaller number than before removes the rest."""

    groups: Count = Field(default=1, description="How many groups (projects) there are.")
    instances: Count = Field(description="How many things (containers, servers) each group has.")
    members: (
        Annotated[int, Field(ge=1, le=1000, strict=True, json_schema_extra=in_units("members"))] | None
    ) = Field(
        default=None,
        description="How many members the cluster has in this stage. A lab starts those that are missing.",
    )
    hold: Seconds = Field(
        default=30.0, description="How long the fill is kept up and observed once it is complete."
    )

    @property
    def size(self) -> int:
        """The number of things in all groups."""
        return self.groups * self.instances

    @property
    def over(self) -> float:
        """Seconds over which the stage is spread: 0, as the workload says how fast things are made."""
        return 0.0


class SpawnPlan(BasePlan, frozen=True):
    """A plan of the spawn workload, on a target that runs things."""

    target: Annotated[TargetSection, ByKind("spawn")] = Field(
        description="The system under test. `kind` says which fields it has."
    )
    workload: SpawnWorkload = Field(description="What is done to the target.")
    stages: Annotated[list[SpawnStage], Field(min_length=1, max_length=MAX_STAGES)] = Field(
        description="The sizes of the fill, in order."
    )

    @property
    def load_unit(self) -> str:
        """The unit of the plan's loads: the target's word for things, or `members` where only these differ."""
        if self.workload.cycle:
            return "iterations"
        few = len({stage.size for stage in self.stages}) == 1 < len({stage.members for stage in self.stages})
        if few:
            return "members"
        return self.target.things

    @property
    def loads(self) -> list[tuple[StageKind, int]]:
        """The kind and the load of each stage.

        A stage with fewer things than before destroys. Its load is the one before it, as a stage that removes
        everything would have a load of 0.
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
        if self.workload.until == "switched" and "on" not in self.target.called:
            known = "created, started, reachable or probed"
            raise ValueError(f"workload.until: switched: expected {known}, for {self.target.kind}")
        check_things_faults(self.faults, [stage.hold for stage in self.stages])
        self.target.check(self)
        return self


def spawn_operations(target: type[TargetSection]) -> tuple[str, ...]:
    """The operations of the spawn workload on such a target. `poll` is its own list of a group."""
    life = tuple(target.called.values()) or LIFE
    return (*life, *(("evict",) if target.evicts else ()), "poll", *target.observations)
