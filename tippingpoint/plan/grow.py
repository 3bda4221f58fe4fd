"""The grow workload in a plan: the size of a model in each stage, and how calls bring it to that size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from tippingpoint.errors import UserError
from tippingpoint.plan.after import After, check_after, check_last
from tippingpoint.plan.base import MAX_STAGES, BaseStage, check_operations, check_things_faults, share_of
from tippingpoint.plan.fields import Amount, Seconds, Section, in_units
from tippingpoint.plan.find import BaseSearchPlan, Find, check_find
from tippingpoint.plan.kinds import ByKind, TargetSection
from tippingpoint.util.durations import format_duration

GROW_OPERATIONS = (
    "add-machine",
    "deploy",
    "add-unit",
    "relate",
    "connect",
    "status",
    "full-status",
    "remove-relation",
    "remove-unit",
    "remove-application",
    "remove-machine",
)
"""The operations of the grow workload."""


Batch = Annotated[int, Field(ge=1, le=10_000, json_schema_extra=in_units("units"))]


class GrowWorkload(Section, frozen=True):
    """Machines, applications, units and relations are made, listed and removed. Each call is timed."""

    kind: Literal["grow"] = Field(description="The workload: `grow`.")
    batch: Batch = Field(
        default=1, description="How many units one call asks for, as `juju add-unit -n` does."
    )
    concurrency: Annotated[int, Field(ge=1, le=10_000, json_schema_extra=in_units("calls"))] | None = Field(
        default=None,
        description="Closed loop: the most calls that are under way at once. Without it every call is sent when it "
        "is due.",
    )
    agents: bool = Field(
        default=False,
        description="Units log in and answer as agents do: they watch, set their status and enter relation scopes.",
    )
    observe_every: Seconds = Field(
        default=5.0, description="How often `status` and `full-status` are asked for; 0s never."
    )
    timeout: Seconds = Field(
        default=300.0, description="An operation that takes longer counts as a timeout; at least 10ms."
    )

    @model_validator(mode="after")
    def _times(self) -> GrowWorkload:
        if self.timeout < 0.01:
            raise ValueError(f"timeout: {format_duration(self.timeout)}: expected at least 10ms")
        return self


Things = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]


GrowUnit = Literal["units", "relations", "applications", "machines"]
GROW_UNITS: tuple[GrowUnit, ...] = get_args(GrowUnit)
"""The units of loads of the grow workload. A plan counts in the first of these of which it makes any."""


class GrowStage(BaseStage, frozen=True):
    """One step of a model's growth: the model's size in the stage. A smaller size than before removes the rest."""

    machines: Things = Field(
        default=1, description="How many hollow machines the model has. Units are spread over them."
    )
    applications: Things = Field(default=0, description="How many applications the model has.")
    units: Things = Field(default=1, description="How many units each application has.")
    relations: Things = Field(
        default=0,
        description="How many relations the model has between its applications; at most one for each pair.",
    )
    batch: Batch | None = Field(default=None, description="The stage's own `workload.batch`.")
    hold: Seconds = Field(default=30.0, description="How long the model is observed once it has its size.")
    over: Seconds = Field(
        default=10.0, description="The time over which calls are spread; 0s sends them all at once."
    )

    @property
    def size(self) -> int:
        """The number of units in the model."""
        return self.applications * self.units

    @property
    def amounts(self) -> Mapping[str, int]:
        """The number of each kind in the model, in the order of GROW_UNITS."""
        return {
            "units": self.size,
            "relations": self.relations,
            "applications": self.applications,
            "machines": self.machines,
        }

    def on_top(self, before: BaseStage) -> Self:
        """Return a stage that makes as many units as this one, on top of those of the stage before."""
        return self.model_copy(update={"units": self.units + -(-before.size // max(1, self.applications))})

    @model_validator(mode="after")
    def _possible(self) -> GrowStage:
        if self.applications and self.units and not self.machines:
            raise ValueError("machines: 0: expected at least 1, as units need a machine")
        most = self.applications * (self.applications - 1) // 2
        if self.relations > most:
            raise ValueError(
                f"relations: {self.relations}: expected at most {most}, one for each pair of {self.applications} "
                "applications"
            )
        return self


class GrowFind(Find, frozen=True):
    """A search over how many units a model has, or over how many of them one call asks for."""

    load: Literal["units", "batch"] = Field(
        default="units",
        description="Which load is searched: `units` (how many the model has in all) or `batch` (units a call). With "
        "`batch`, each probe begins with an empty model.",
    )
    start: Amount = Field(default=10, description="The first load.")
    limit: Amount = Field(default=10_000, description="The largest load that is tried; at least `start`.")
    machines: Annotated[Things, Field(ge=1)] = Field(
        default=1, description="How many hollow machines the model has."
    )
    applications: Annotated[Things, Field(ge=1)] = Field(
        default=1, description="How many applications the model has."
    )
    units: Annotated[Things, Field(ge=1)] | None = Field(
        default=None, description="How many units each application has, where `load` is `batch`."
    )
    over: Seconds = Field(
        default=10.0, description="The time over which calls are spread; 0s sends them all at once."
    )

    @model_validator(mode="after")
    def _units(self) -> GrowFind:
        if (self.units is None) != (self.load == "units"):
            found = "missing" if self.units is None else self.units
            accepted = (
                "how many units each batch makes"
                if self.units is None
                else "none, as find looks for the number"
            )
            raise ValueError(f"units: {found}: expected {accepted}")
        return self


class GrowPlan(BaseSearchPlan, frozen=True):
    """A plan of the grow workload: a model that grows and shrinks."""

    target: Annotated[TargetSection, ByKind("grow")] = Field(
        description="The system under test. `kind` says which fields it has."
    )
    workload: GrowWorkload = Field(description="What is done to the target.")
    stages: Annotated[list[GrowStage], Field(max_length=MAX_STAGES)] = Field(
        default=[], description="The sizes of the model, in order. A plan has `stages` or `find`."
    )
    find: GrowFind | None = Field(
        default=None,
        description="A search for the largest load that meets the thresholds, instead of `stages`.",
    )
    after: After = None

    @property
    def counted(self) -> GrowUnit:
        """What the model's size is counted in: the first of GROW_UNITS of which the plan makes any."""
        made: list[GrowUnit] = [
            name for name in GROW_UNITS if any(stage.amounts[name] for stage in self.planned)
        ]
        return made[0] if made else "units"

    @property
    def load(self) -> GrowUnit | Literal["batch"]:
        """Which load the plan varies: the searched one, or the batch of its stages where these differ."""
        if self.find is not None:
            return self.find.load
        return "batch" if len({stage.batch for stage in self.stages}) > 1 else self.counted

    @property
    def load_unit(self) -> str:
        """The unit of the plan's loads."""
        return "units a call" if self.load == "batch" else self.load

    @property
    def accumulates(self) -> bool:
        """Whether the things of one load stay when the next load makes its own: units of a batch do."""
        return self.load == "batch"

    @property
    def observe_every(self) -> float:
        """Seconds between two requests for the model's status; 0 for none."""
        return self.workload.observe_every

    @property
    def to_remove(self) -> int:
        """The largest size of the model."""
        return max(stage.amounts[self.counted] for stage in self.planned)

    def goal(self, stage: BaseStage) -> tuple[int, str]:
        """Return the size of the model in a stage, and what it is counted in."""
        return stage.amounts[self.counted], self.counted

    def load_of(self, stage: GrowStage, load: str = "") -> float:
        """Return a stage's load, counted in `load` or in what the plan varies."""
        load = load or self.load
        return (stage.batch or self.workload.batch) if load == "batch" else stage.amounts[load]

    def stage_at(self, load: float) -> GrowStage:
        """Return the stage with this load: a stage of the search, or one otherwise like the last listed stage.

        With a batch, it makes as many units as that one.
        """
        find = self.find
        if find is None:
            return self._listed_at(load)
        applications = (
            find.applications if find.load == "batch" else min(find.applications, max(1, round(load)))
        )
        stage = GrowStage(machines=find.machines, applications=applications, hold=find.hold, over=find.over)
        if find.load == "batch":
            return stage.model_copy(update={"units": find.units, "batch": round(load)})
        return stage.model_copy(update={"units": round(load / applications)})

    def _listed_at(self, load: float) -> GrowStage:
        last = self.stages[-1]
        if self.load == "batch":
            before = self.stages[-2].size if len(self.stages) > 1 else 0
            units = max(1, ceil((last.size - before) / max(1, last.applications)))
            return last.model_copy(update={"units": units, "batch": round(load)})
        listed = next((stage for stage in self.stages if self.load_of(stage) == load), None)
        if listed is not None:
            return listed
        amount = round(load)
        if self.load != "units":
            return last.model_copy(update={self.load: amount})
        applications = min(last.applications, max(1, amount))
        relations = min(last.relations, applications * (applications - 1) // 2)
        return last.model_copy(
            update={
                "applications": applications,
                "units": round(amount / applications),
                "relations": relations,
            }
        )

    def listed_part(self, index: int, of: int) -> Self:
        """Return the part of a plan with stages for the unit with this index out of this many: a model of its own."""
        sharing = min(of, self.workload.concurrency or of)
        in_units = any(stage.size for stage in self.stages)
        by_application = not in_units or all(
            stage.applications >= sharing for stage in self.stages if stage.applications
        )
        most = max(
            stage.units if in_units and not by_application else stage.amounts[self.counted]
            for stage in self.stages
        )
        # A unit that never has load has no share of the rest either. One whose load is taken away keeps its share.
        if most:
            sharing = min(sharing, most)
        for number, stage in enumerate(self.stages):
            _check_fit(number, stage, sharing, by_application)
        stages = [_stage_part(stage, index, sharing, by_application) for stage in self.stages]
        changes: dict[str, float] = {"observe_every": 0.0} if index else {}
        if self.workload.concurrency is not None:  # a batch, the size of a call, is not divided
            changes["concurrency"] = max(1, share_of(self.workload.concurrency, index, sharing))
        workload = self.workload.model_copy(update=changes)
        return self.model_copy(update={"workload": workload, "stages": stages})

    @property
    def patience(self) -> float:
        """Seconds without progress after which waiting for a load ends: those of a second try, because things that take
        too long are retried. When a service is killed, every request that it had accepted may hang."""
        return 2 * self.workload.timeout

    @property
    def planned(self) -> Sequence[GrowStage]:
        """The listed stages, or those of a search's first and largest load."""
        if self.find is None:
            return self.stages
        return [self.stage_at(self.find.start), self.stage_at(self.find.limit)]

    @property
    def operations(self) -> tuple[str, ...]:
        """The operations that thresholds may name."""
        return GROW_OPERATIONS

    @model_validator(mode="after")
    def _whole(self) -> GrowPlan:
        check_find(self.stages, self.find, self.thresholds, self.faults)
        self.target.check(self)
        check_operations(self.thresholds, self.operations)
        check_operations(self.find.also if self.find is not None else [], self.operations, field="find.also")
        check_things_faults(self.faults, [stage.hold for stage in self.stages])
        self._check_after()
        return self

    def _check_after(self) -> None:
        """Check that the plan's load can go down, and that lower loads show whether thresholds hold."""
        if self.after is None:
            return
        check_last(
            "ramp" if self.find is not None else self.loads[-1][0],
            (self.find or self.stages[-1]).hold if self.load != "batch" else None,
        )
        if self.load == "batch" and self.find is None and not self.stages[-1].size:
            raise ValueError(
                "after: recover: expected a last stage that makes units, as its batch is what goes down"
            )
        observed = ("status", "full-status") if self.workload.observe_every else ()
        if self.load == "batch":
            check_after(
                self.after, self.thresholds, ("add-unit", *observed), "only units are made in the steps"
            )
        else:
            check_after(self.after, self.thresholds, observed, "nothing is made while the load goes down")


def _stage_part(stage: GrowStage, index: int, of: int, by_application: bool) -> GrowStage:
    applications, units = stage.applications, stage.units
    if by_application or index >= of:
        applications = share_of(applications, index, of)
    else:
        units = share_of(units, index, of)
    return stage.model_copy(
        update={
            "machines": share_of(stage.machines, index, of),
            "applications": applications,
            "units": units,
            "relations": share_of(stage.relations, index, of),
        }
    )


def _check_fit(number: int, stage: GrowStage, of: int, by_application: bool) -> None:
    """Refuse a stage if one of its parts would have units but no machine, or more relations than pairs."""
    having = (of if by_application else min(of, stage.units)) if stage.size else 0
    if stage.machines < having:
        raise UserError(
            f"stages.{number}.machines",
            stage.machines,
            f"at least {having}, one for each unit of the generator that has a share (each has a model of its own)",
        )
    # The parts with the most relations, and the first of those with the fewest applications.
    for index in {0, stage.applications % of if by_application else 0}:
        part = _stage_part(stage, index, of, by_application)
        most = part.applications * (part.applications - 1) // 2
        if part.relations > most:
            raise UserError(
                f"stages.{number}.relations",
                stage.relations,
                f"fewer, or fewer units of the generator: {of} have a model of their own each, with "
                f"{part.applications} applications, which have at most {most} relations",
            )
