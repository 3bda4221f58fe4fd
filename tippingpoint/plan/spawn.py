"""The spawn workload in a plan: groups of things are made, started, reached, probed, repaired and removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import ceil
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from tippingpoint.plan.after import After, check_after, check_last
from tippingpoint.plan.base import MAX_STAGES, BaseStage, check_operations, check_things_faults, share_of
from tippingpoint.plan.fields import Amount, PerSecond, Seconds, Section, as_amount, in_units
from tippingpoint.plan.find import BaseSearchPlan, Find, check_find
from tippingpoint.plan.kinds import ByKind, TargetSection
from tippingpoint.util.durations import format_duration

LIFE = ("create", "start", "reachable", "probe", "launch", "delete", "total")
"""The steps of one thing's life. `launch` is the time from the moment it was due until it reaches the state that
`until` names. `total` is the time until it is removed again, if the plan removes each thing. Some targets have more
steps, named in `TargetSection.called`: `off` and `on` switch a thing that was probed, and `release` precedes
`delete`."""

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
Pace = Annotated[PerSecond, Field(le=10_000)]
AtOnce = Annotated[int, Field(ge=1, le=10_000, json_schema_extra=in_units("things"))]

PaceKind = Literal["rate", "concurrency", "batch"]
PACES: tuple[PaceKind, ...] = get_args(PaceKind)
"""The ways to say how fast things are made."""


class SpawnWorkload(Section, frozen=True):
    """Things in groups (projects) are made, started, reached, probed, repaired and removed. One of `rate`,
    `concurrency` and `batch` says how fast, here or in each stage."""

    kind: Literal["spawn"] = Field(description="The workload: `spawn`.")
    until: Until = Field(
        default="reachable",
        description="How far each thing is brought: `created`, `started`, `reachable` (it has its address), `probed`, "
        "or `switched` (off and on again, where the target's things have power).",
    )
    rate: Annotated[Pace, Field(json_schema_extra=in_units("things per second"))] | None = Field(
        default=None,
        description="Open loop: how many things are made per second, however late the target answers.",
    )
    concurrency: AtOnce | None = Field(
        default=None,
        description="Closed loop: how many things are made at once. The next is begun when one has started.",
    )
    batch: AtOnce | None = Field(
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
        if len(given := paces_of(self)) > 1:
            raise ValueError(f"rate: {_shown(given)}: expected one of rate, concurrency and batch")
        if self.cycle and self.until not in ("created", "started"):
            raise ValueError(f"until: {self.until}: expected created or started, with cycle")
        if self.timeout < 0.01:
            raise ValueError(f"timeout: {format_duration(self.timeout)}: expected at least 10ms")
        if self.poll_every < 0.1:
            raise ValueError(f"poll_every: {format_duration(self.poll_every)}: expected at least 100ms")
        return self

    @property
    def at_once(self) -> int | None:
        """Closed loop: the most things that are made at once; None in an open loop."""
        return self.concurrency or self.batch

    def at(self, stage: SpawnStage) -> SpawnWorkload:
        """Return the workload at the pace of a stage, which may have its own."""
        return self.model_copy(update={str(name): value for name, value in paces_of(stage).items()})


def paces_of(paced: SpawnWorkload | SpawnStage) -> dict[PaceKind, float]:
    """Return what a workload or a stage says about how fast things are made."""
    return {name: value for name in PACES if (value := getattr(paced, name)) is not None}


def _own_pace(paced: SpawnWorkload | SpawnStage, index: int, of: int) -> dict[str, float]:
    """A unit's share of the pace of a workload or a stage; a unit without a share keeps a pace that it does not use."""
    return {
        name: value / of if name == "rate" else max(1, share_of(round(value), index, of))
        for name, value in paces_of(paced).items()
    }


def _shown(given: Mapping[PaceKind, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in given.items()) or "none"


class SpawnStage(BaseStage, frozen=True):
    """One step of a fill: how many things there are in all. A smaller number than before removes the rest."""

    groups: Count = Field(default=1, description="How many groups (projects) there are.")
    instances: Count = Field(description="How many things (containers, servers) each group has.")
    members: (
        Annotated[int, Field(ge=1, le=1000, strict=True, json_schema_extra=in_units("members"))] | None
    ) = Field(
        default=None,
        description="How many members the cluster has in this stage. A lab starts those that are missing.",
    )
    rate: Annotated[Pace, Field(json_schema_extra=in_units("things per second"))] | None = Field(
        default=None, description="The stage's own `workload.rate`."
    )
    concurrency: AtOnce | None = Field(default=None, description="The stage's own `workload.concurrency`.")
    batch: AtOnce | None = Field(default=None, description="The stage's own `workload.batch`.")
    hold: Seconds = Field(
        default=30.0, description="How long the fill is kept up and observed once it is complete."
    )

    @property
    def amounts(self) -> Mapping[str, int]:
        """The number of things in all groups."""
        return {"instances": self.groups * self.instances}

    def on_top(self, before: BaseStage) -> Self:
        """Return a stage that makes what this one does, on top of the things of the stage before."""
        return self.model_copy(update={"instances": self.instances + -(-before.size // self.groups)})

    @property
    def over(self) -> float:
        """Seconds over which the stage is spread: 0, as the workload says how fast things are made."""
        return 0.0


SpawnLoadKind = Literal["instances", "rate", "concurrency", "batch"]


class SpawnFind(Find, frozen=True):
    """A search over how many things there are, or over how fast they are made."""

    rates = frozenset({"rate"})

    load: SpawnLoadKind = Field(
        default="instances",
        description="Which load is searched: `instances` (how many things there are in all), `rate` (things made per "
        "second), `concurrency` or `batch` (things made at once). All but `instances` begin each probe with nothing, "
        "unless the workload has `cycle`.",
    )
    start: Amount = Field(default=1, description="The first load.")
    limit: Amount = Field(default=1000, description="The largest load that is tried; at least `start`.")
    hold: Seconds = Field(
        default=30.0,
        description="With `rate`, the time for which things are made; else how long each load is observed once it is "
        "up.",
    )
    groups: Annotated[Count, Field(ge=1)] = Field(
        default=1, description="How many groups (projects) the things are in."
    )
    instances: Annotated[Count, Field(ge=1)] | None = Field(
        default=None,
        description="How many things each group has, where `load` is `concurrency` or `batch`. At least `limit` things "
        "in all.",
    )

    @model_validator(mode="after")
    def _things(self) -> SpawnFind:
        if self.load in ("instances", "rate"):
            if self.instances is not None:
                why = "looks for them" if self.load == "instances" else "makes `rate` times `hold` things"
                raise ValueError(f"instances: {self.instances}: expected none, as find {why}")
        elif self.instances is None:
            raise ValueError(f"instances: missing: expected how many things each {self.load} makes")
        elif self.instances * self.groups < self.limit:
            raise ValueError(
                f"instances: {self.instances}: expected at least {-(-as_amount(self.limit) // self.groups)}, for "
                f"limit {as_amount(self.limit)}"
            )
        if self.load == "rate" and not self.hold:
            raise ValueError(
                "hold: 0s: expected more than 0s, the time for which things are made at each rate"
            )
        return self


class SpawnPlan(BaseSearchPlan, frozen=True):
    """A plan of the spawn workload, on a target that runs things."""

    target: Annotated[TargetSection, ByKind("spawn")] = Field(
        description="The system under test. `kind` says which fields it has."
    )
    workload: SpawnWorkload = Field(description="What is done to the target.")
    stages: Annotated[list[SpawnStage], Field(max_length=MAX_STAGES)] = Field(
        default=[], description="The sizes of the fill, in order. A plan has `stages` or `find`."
    )
    find: SpawnFind | None = Field(
        default=None,
        description="A search for the largest load that meets the thresholds, instead of `stages`.",
    )
    after: After = None

    @property
    def load(self) -> SpawnLoadKind | Literal["members"]:
        """Which load the plan varies: the searched one, or the pace of its stages unless only their sizes differ."""
        if self.find is not None:
            return self.find.load
        sizes = {stage.size for stage in self.stages}
        for pace in PACES:
            given = {getattr(stage, pace) for stage in self.stages}
            if len(given) > 1:
                return pace
        if len(sizes) == 1 < len({stage.members for stage in self.stages}):
            return "members"
        return "instances"

    @property
    def load_unit(self) -> str:
        """The unit of the plan's loads: the target's word for things, how many of them are made per second or at once,
        or `members` where only these differ."""
        things = self._things
        match self.load:
            case "members":
                return "iterations" if self.cycles else "members"
            case "rate":
                return f"{things}/s"
            case "concurrency":
                return f"{things} at a time"
            case "batch":
                return f"{things} a batch"
            case "instances":
                return things

    @property
    def accumulates(self) -> bool:
        """Whether the things of one load stay when the next load makes its own: at a pace, they do without `cycle`."""
        return self.load in PACES and not self.cycles

    @property
    def cycles(self) -> bool:
        """Whether each thing is removed as soon as it is made, so that nothing stays in the target."""
        return self.workload.cycle

    @property
    def observe_every(self) -> float:
        """Seconds between two rounds of the requests of ordinary users; 0 for none."""
        return self.workload.observe_every

    @property
    def most_workers(self) -> int:
        """The most workers that have anything to do: a group of things belongs to one."""
        groups = max(stage.groups for stage in self.planned)
        return min(groups, self.shared_by or groups)

    @property
    def to_remove(self) -> int:
        """The most things that exist at once, with their groups."""
        return max(stage.size + stage.groups for stage in self.planned)

    def goal(self, stage: BaseStage) -> tuple[int, str]:
        """Return how many things exist in a stage, or were made if none stays, and the target's word for them."""
        return stage.size, self._things

    @property
    def _things(self) -> str:
        return "iterations" if self.cycles else self.target.things

    def load_of(self, stage: SpawnStage, load: str = "") -> float:
        """Return a stage's load, counted in `load` or in what the plan varies."""
        match load or self.load:
            case "instances":
                return stage.size
            case "members":
                return stage.size if self.cycles else stage.members or 0
            case pace:
                return as_amount(getattr(self.workload.at(stage), pace))

    def load_in(self, stage: int, load: str) -> float:
        """Return the load of a part in a listed stage (from 1): it has none without things, whatever its pace."""
        return super().load_in(stage, load) if self.stages[stage - 1].size or load == "members" else 0

    def stage_at(self, load: float) -> SpawnStage:
        """Return the stage with this load: a stage of the search, or one otherwise like the last listed stage.

        At a pace, it makes as many things as that stage; at a rate, it makes them for as long.
        """
        find = self.find
        if find is None:
            return self._listed_at(load)
        if find.load == "instances":
            groups = min(find.groups, max(1, round(load)))
            return SpawnStage(groups=groups, instances=round(load / groups), hold=find.hold)
        if find.load == "rate":
            # They are made for as long as the hold: nothing is left to be held.
            each = ceil(load * find.hold / find.groups)
            return SpawnStage(groups=find.groups, instances=each, rate=load, hold=0.0)
        assert find.instances is not None
        stage = SpawnStage(groups=find.groups, instances=find.instances, hold=find.hold)
        return stage.model_copy(update={find.load: round(load)})

    def _listed_at(self, load: float) -> SpawnStage:
        last = self.stages[-1]
        if self.load not in PACES:
            listed = next((stage for stage in self.stages if self.load_of(stage) == load), None)
            groups = min(last.groups, max(1, round(load)))
            return listed or last.model_copy(update={"groups": groups, "instances": round(load / groups)})
        before = 0 if self.workload.cycle or len(self.stages) == 1 else self.stages[-2].size
        made = (last.size - before) * (load / self.load_of(last) if self.load == "rate" else 1)
        amount = load if self.load == "rate" else round(load)
        return last.model_copy(update={"instances": max(1, ceil(made / last.groups)), self.load: amount})

    def listed_part(self, index: int, of: int) -> Self:
        """Return the part of a plan with stages for the unit with this index out of this many: groups of its own."""
        sharing = min(of, self.shared_by or of)
        by_group = all(stage.groups >= sharing for stage in self.stages if stage.size)
        divided = "groups" if by_group or index >= sharing else "instances"
        stages = [
            stage.model_copy(
                update={divided: share_of(getattr(stage, divided), index, sharing)}
                | _own_pace(stage, index, sharing)
            )
            for stage in self.stages
        ]
        observes = {"observe_every": 0.0} if index else {}
        workload = self.workload.model_copy(update=_own_pace(self.workload, index, sharing) | observes)
        return self.model_copy(update={"workload": workload, "stages": stages})

    def begins_after(self, stage: int, index: int) -> float:
        """Return how many seconds after a stage's beginning a unit begins, in an open loop at its turn."""
        rate = self.workload.at(self.stages[stage - 1]).rate
        return index / rate if rate is not None else 0.0

    @property
    def patience(self) -> float:
        """Seconds without progress after which waiting for a load ends: those of a second try, because things that take
        too long are retried. When a service is killed, every request that it had accepted may hang."""
        return 2 * self.workload.timeout

    @property
    def planned(self) -> Sequence[SpawnStage]:
        """The listed stages, or those of a search's first and largest load."""
        if self.find is None:
            return self.stages
        return [self.stage_at(self.find.start), self.stage_at(self.find.limit)]

    @property
    def shared_by(self) -> int | None:
        """The most workers, or units, that may share a closed loop: no more than things are made at once in any stage.

        None for an open loop. A search for how many are made at once may try one at a time.
        """
        if self.find is not None and self.find.load in ("concurrency", "batch"):
            return 1
        return min(
            (most for stage in self.planned if (most := self.workload.at(stage).at_once)), default=None
        )

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that thresholds may name."""
        return spawn_operations(type(self.target))

    @model_validator(mode="after")
    def _whole(self) -> SpawnPlan:
        check_find(self.stages, self.find, self.thresholds, self.faults)
        self._check_paces()
        check_operations(self.thresholds, self.operations)
        check_operations(self.find.also if self.find is not None else [], self.operations, field="find.also")
        if self.workload.until == "switched" and "on" not in self.target.called:
            known = "created, started, reachable or probed"
            raise ValueError(f"workload.until: switched: expected {known}, for {self.target.kind}")
        check_things_faults(self.faults, [stage.hold for stage in self.stages])
        self._check_after()
        self.target.check(self)
        return self

    def _check_after(self) -> None:
        """Check that the plan's load can go down, and that lower loads show whether thresholds hold."""
        if self.after is None:
            return
        if self.load == "members":
            raise ValueError("after: recover: expected stages of other sizes, as a cluster keeps its members")
        if self.load == "instances" and self.workload.cycle:
            raise ValueError(
                "after: recover: expected loads of rate, concurrency or batch, as iterations leave nothing that could "
                "become less"
            )
        check_last(
            "ramp" if self.find is not None else self.loads[-1][0],
            (self.find or self.stages[-1]).hold if self.load == "instances" else None,
        )
        listed = ("poll", *(self.target.observations if self.workload.observe_every else ()))
        if self.load == "instances":
            check_after(self.after, self.thresholds, listed, "nothing is made while the load goes down")
            return
        removing = {self.target.called.get(step, step) for step in ("release", "delete", "total")}
        measured = [
            name
            for name in self.operations
            if name in listed
            or (
                name not in ("poll", *self.target.observations, "evict")
                and (self.workload.cycle or name not in removing)
            )
        ]
        check_after(self.after, self.thresholds, measured, "nothing is removed while the load goes down")

    def _check_paces(self) -> None:
        """Check that there is exactly one kind of pace in all, and that stages with different paces make things."""
        own = paces_of(self.workload)
        if self.find is not None:
            searched = () if self.find.load == "instances" else (self.find.load,)
            kinds = {*own, *searched}
            if len(kinds) != 1:
                found = ", ".join([*own, *(f"find.load {name}" for name in searched)]) or "none"
                raise ValueError(f"workload.rate: {found}: expected one of rate, concurrency and batch")
            return
        kind: PaceKind | None = next(iter(own), None)
        for number, stage in enumerate(self.stages):
            given = paces_of(stage)
            if len(own | given) != 1:
                place = f"stages.{number}.rate" if given else "workload.rate"
                raise ValueError(
                    f"{place}: {_shown(own | given)}: expected one of rate, concurrency and batch"
                )
            (kind_here,) = own | given
            kind = kind or kind_here
            if kind_here != kind:
                raise ValueError(
                    f"stages.{number}.{kind_here}: {given[kind_here]:g}: expected {kind}, as before"
                )
        if self.load not in PACES or self.workload.cycle:
            return
        for number, (before, stage) in enumerate(pairwise(self.stages), start=1):
            if stage.size == before.size:
                raise ValueError(
                    f"stages.{number}.instances: {stage.instances}: expected another number than before, or "
                    f"workload.cycle, as nothing is made at this {kind}"
                )


def spawn_operations(target: type[TargetSection]) -> tuple[str, ...]:
    """The operations of the spawn workload on such a target. `poll` is the workload's own list of a group."""
    life = tuple(target.called.values()) or LIFE
    return (*life, *(("evict",) if target.evicts else ()), "poll", *target.observations)
