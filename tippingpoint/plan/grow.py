"""A model's growth in a plan: what there is of it at each step, and how the calls are made that bring it there."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, model_validator

from tippingpoint.plan.base import MAX_STAGES, BasePlan, check_operations, check_things_faults
from tippingpoint.plan.fields import Seconds, Section, StageKind
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
"""What the grow workload times."""


class GrowWorkload(Section, frozen=True):
    """Machines, applications, units and relations that are made, listed and removed, each call timed."""

    kind: Literal["grow"]
    batch: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1, description="units asked for in one call, as add-unit -n"
    )
    concurrency: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None,
        description="closed loop: at most so many calls at once, however late that makes them; "
        "without it every call is sent at its time",
    )
    agents: bool = Field(
        default=False,
        description="units log in and answer as agents do: they watch, set their status, enter relation scopes",
    )
    observe_every: Seconds = Field(
        default=5.0, description="how often status and full-status are asked for; 0s never"
    )
    timeout: Seconds = Field(default=300.0, description="after this an operation counts as a timeout")

    @model_validator(mode="after")
    def _times(self) -> GrowWorkload:
        if self.timeout < 0.01:
            raise ValueError(f"timeout: {format_duration(self.timeout)}: expected at least 10ms")
        return self


Things = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]


GrowUnit = Literal["units", "relations", "applications", "machines"]
GROW_UNITS: tuple[GrowUnit, ...] = get_args(GrowUnit)
"""What loads of the grow workload may be counted in: the first of these that a plan makes any of."""


class GrowStage(Section, frozen=True):
    """One step of a model's growth: what there is in all when it is reached; less than before is removed."""

    machines: Things = Field(default=1, description="hollow machines, which units are spread over")
    applications: Things = 0
    units: Things = Field(default=1, description="units of each application")
    relations: Things = Field(
        default=0, description="relations between applications, each with its next ones"
    )
    hold: Seconds = Field(default=30.0, description="how long the model is observed once it is there")
    over: Seconds = Field(
        default=10.0, description="the calls are spread over this; 0s sends them all at once"
    )

    @property
    def size(self) -> int:
        """How many units there are in all."""
        return self.applications * self.units

    @property
    def amounts(self) -> dict[GrowUnit, int]:
        """How many of each kind there are in all, in the order of GROW_UNITS."""
        return {
            "units": self.size,
            "relations": self.relations,
            "applications": self.applications,
            "machines": self.machines,
        }

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


class GrowPlan(BasePlan, frozen=True):
    """A plan of the grow workload: a model that grows and shrinks."""

    target: Annotated[TargetSection, ByKind("grow")]
    workload: GrowWorkload
    stages: Annotated[list[GrowStage], Field(min_length=1, max_length=MAX_STAGES)]

    @property
    def load_unit(self) -> GrowUnit:
        """What loads are counted in: units, or in a plan that makes none the first of GROW_UNITS that it makes."""
        made: list[GrowUnit] = [
            name for name in GROW_UNITS if any(stage.amounts[name] for stage in self.stages)
        ]
        return made[0] if made else "units"

    @property
    def loads(self) -> list[tuple[StageKind, int]]:
        """The kind and the load of each stage.

        Where the first of the amounts that changes becomes less, the stage destroys, and its load is what was there
        before: a stage that removes everything would say nothing otherwise.
        """
        found: list[tuple[StageKind, int]] = []
        before = GrowStage(machines=0)
        for stage in self.stages:
            destroys = [*stage.amounts.values()] < [*before.amounts.values()]
            loaded = before if destroys else stage
            found.append(("destroy" if destroys else "ramp", loaded.amounts[self.load_unit]))
            before = stage
        return found

    @model_validator(mode="after")
    def _whole(self) -> GrowPlan:
        self.target.check(self)
        check_operations(self.thresholds, GROW_OPERATIONS)
        check_things_faults(self.faults, [stage.hold for stage in self.stages])
        return self
