"""The operate workload in a plan: models with units at work, and operators who use them, on a Juju controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from tippingpoint.errors import UserError
from tippingpoint.plan.after import After, check_after
from tippingpoint.plan.base import MAX_STAGES, BaseStage, check_fault_times, check_operations, share_of
from tippingpoint.plan.fields import PerSecond, Seconds, Section, as_amount, in_units
from tippingpoint.plan.find import BaseSearchPlan, FindBesideOthers, check_find
from tippingpoint.plan.kinds import ByKind, TargetSection
from tippingpoint.util.durations import format_duration

Command = Literal[
    "models",
    "show-model",
    "status",
    "config",
    "run",
    "exec",
    "deploy",
    "remove-application",
    "add-unit",
    "remove-unit",
    "integrate",
    "remove-relation",
    "offer",
    "remove-offer",
    "consume",
    "remove-saas",
    "add-model",
    "destroy-model",
    "grant",
    "revoke",
    "add-secret",
    "remove-secret",
]
"""A command of the juju client that operators use."""
COMMANDS: tuple[Command, ...] = get_args(Command)


def timed_as(command: Command) -> str:
    """Return the name of the operation that times a command, from its login to its effect, such as juju-status."""
    return f"juju-{command}"


OPERATE_OPERATIONS = (
    "connect",
    "hook",
    "relation-change",
    "secret-change",
    "secret-rotation",
    "log",
    *map(timed_as, COMMANDS),
)
"""The operations of the operate workload.

`connect` is the login of a unit, and `hook` an update-status hook of one. `relation-change` and `secret-change` last
from when a unit is due to write until a unit on the other side has noticed, `secret-rotation` from when a revision
expires until then, and `log` until a line is in the model's log. The others last from when an operator is due to type a
command, which logs in, until its effect shows.
"""
DAY: Mapping[Command, float] = {
    "models": 10,
    "show-model": 5,
    "status": 50,
    "config": 5,
    "run": 8,
    "exec": 2,
    "deploy": 2,
    "remove-application": 2,
    "add-unit": 3,
    "remove-unit": 3,
    "integrate": 2,
    "remove-relation": 2,
    "offer": 1,
    "remove-offer": 1,
    "consume": 1,
    "remove-saas": 1,
    "add-model": 0.5,
    "destroy-model": 0.5,
    "grant": 1,
    "revoke": 1,
    "add-secret": 1,
    "remove-secret": 1,
}
"""The default mix. It is our own, because we know of no published one: people mostly look, and undo what they do."""

MAX_UNITS_A_MODEL = 1000
"""A model has one hollow machine, and a machine has at most this many units."""

Models = Annotated[int, Field(ge=1, le=10_000, strict=True, json_schema_extra=in_units("models"))]
Applications = Annotated[int, Field(ge=1, le=1000, strict=True, json_schema_extra=in_units("applications"))]
Units = Annotated[int, Field(ge=1, le=1000, strict=True, json_schema_extra=in_units("units"))]
Relations = Annotated[int, Field(ge=0, le=100_000, strict=True, json_schema_extra=in_units("relations"))]
Operators = Annotated[int, Field(ge=0, le=100_000, strict=True, json_schema_extra=in_units("operators"))]
Weight = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]


class ModelShape(Section, frozen=True):
    """What is in a model: applications with units, and the relations between them."""

    applications: Annotated[
        list[Annotated[int, Field(ge=0, le=1000, strict=True)]], Field(min_length=1, max_length=1000)
    ] = Field(description="How many units each application has.")
    relations: list[Annotated[list[int], Field(min_length=2, max_length=2)]] = Field(
        default=[],
        description="The relations: pairs of applications, each by its place in that list, from 0.",
    )

    @property
    def units(self) -> int:
        """The number of units in the model."""
        return sum(self.applications)

    @property
    def pairs(self) -> frozenset[tuple[int, int]]:
        """The relations, the lower application first."""
        return frozenset((min(pair), max(pair)) for pair in self.relations)

    @model_validator(mode="after")
    def _possible(self) -> ModelShape:
        for number, pair in enumerate(self.relations):
            if pair[0] == pair[1] or not all(0 <= end < len(self.applications) for end in pair):
                raise ValueError(
                    f"relations.{number}: {pair}: expected two different places below {len(self.applications)}"
                )
        if self.units > MAX_UNITS_A_MODEL:
            raise ValueError(f"applications: {self.units} units: expected at most {MAX_UNITS_A_MODEL} in all")
        return self


class OperateWorkload(Section, frozen=True):
    """Models full of units at work, and operators who look at them and change them. Each operation is timed."""

    kind: Literal["operate"] = Field(description="The workload: `operate`.")
    shapes: Annotated[list[ModelShape], Field(max_length=1000)] = Field(
        default=[],
        description="What is in each model, in turn, instead of the `applications`, `units` and `relations` of the "
        "stages. `tippingpoint shape` prints that of a site's own models.",
    )
    mix: dict[Command, Weight] = Field(
        default=dict(DAY),
        description="The share of each command of the operators, as weights. Each is timed as `juju-` and its name.",
    )
    think: Seconds = Field(
        default=30.0, description="The time between the begins of two commands of one operator."
    )
    update_status: Seconds = Field(
        default=300.0,
        description="How often each unit runs an update-status hook, as `update-status-hook-interval` of a model; 0s "
        "for never.",
    )
    rotate: Seconds = Field(
        default=0.0,
        description="After how long each revision of a secret expires, and its owner makes another; 0s for never, "
        "else at least 1s. Each relation has one secret.",
    )
    settings: Annotated[int, Field(ge=1, le=100_000, strict=True, json_schema_extra=in_units("bytes"))] = (
        Field(default=100, description="The size of the setting that a unit writes for each relation change.")
    )
    timeout: Seconds = Field(
        default=60.0, description="An operation that takes longer counts as a timeout; at least 10ms."
    )

    @model_validator(mode="after")
    def _sound(self) -> OperateWorkload:
        if not any(self.mix.values()):
            raise ValueError(
                f"mix: {self.mix or 'empty'}: expected at least one command with a share above 0"
            )
        for name, seconds in (("think", self.think), ("timeout", self.timeout)):
            if seconds < 0.01:
                raise ValueError(f"{name}: {format_duration(seconds)}: expected at least 10ms")
        if 0 < self.rotate < 1:
            raise ValueError(f"rotate: {format_duration(self.rotate)}: expected 0s or at least 1s")
        return self

    def shares(self) -> Mapping[Command, float]:
        """Return the commands of the mix with the share of each, from 0 to 1, in the order of COMMANDS."""
        whole = sum(self.mix.values())
        return {name: self.mix[name] / whole for name in COMMANDS if self.mix.get(name)}

    def of_shapes(self, models: int) -> list[ModelShape]:
        """Return the shapes of this many models, which use the plan's shapes in turn."""
        return [self.shapes[number % len(self.shapes)] for number in range(models)] if self.shapes else []


_MODELS = "How many models there are."
_APPLICATIONS = "How many applications each model has."
_UNITS = "How many units each application has. Each unit is logged in, and answers as its agent does."
_RELATIONS = "How many relations each model has between its applications; at most one for each pair."
_OPERATORS = "How many operators are at work, each with a command of the mix every `workload.think`."
_STATUSES = (
    "How many times a second the status of one model is asked for, as `juju status` does, beside the mix."
)
_CHANGES = "How many times a second a unit changes its settings of a relation."
_SECRETS = "How many times a second a secret of an application gets a new revision, which others consume."
_LOGS = "How many lines a second units write to their models' logs."
Statuses = Annotated[PerSecond, Field(json_schema_extra=in_units("calls per second"))]
Changes = Annotated[PerSecond, Field(json_schema_extra=in_units("changes per second"))]
Revisions = Annotated[PerSecond, Field(json_schema_extra=in_units("revisions per second"))]
Lines = Annotated[PerSecond, Field(json_schema_extra=in_units("lines per second"))]

OperateLoad = Literal[
    "models", "applications", "units", "relations", "operators", "statuses", "changes", "secrets", "logs"
]
OPERATE_LOADS: tuple[OperateLoad, ...] = get_args(OperateLoad)
_OF_A_MODEL = ("applications", "units", "relations")
_RATES: tuple[OperateLoad, ...] = ("statuses", "changes", "secrets", "logs")
_LOAD_UNITS: dict[OperateLoad, str] = {
    "models": "models",
    "applications": "applications a model",
    "units": "units an application",
    "relations": "relations a model",
    "operators": "operators",
    "statuses": "statuses/s",
    "changes": "relation changes/s",
    "secrets": "secret revisions/s",
    "logs": "log lines/s",
}


class OperateStage(BaseStage, frozen=True):
    """One step of load: how many models there are and what is in each, and what is done to them."""

    models: Models = Field(default=1, description=_MODELS)
    applications: Applications = Field(default=1, description=_APPLICATIONS)
    units: Units = Field(default=1, description=_UNITS)
    relations: Relations = Field(default=0, description=_RELATIONS)
    operators: Operators = Field(default=0, description=_OPERATORS)
    statuses: Statuses | None = Field(default=None, description=_STATUSES)
    changes: Changes | None = Field(default=None, description=_CHANGES)
    secrets: Revisions | None = Field(default=None, description=_SECRETS)
    logs: Lines | None = Field(default=None, description=_LOGS)
    hold: Seconds = Field(default=60.0, description="How long the load is held once it is up.")
    over: Seconds = Field(
        default=10.0,
        description="The time over which the models begin to be made or changed; 0s begins with all at once.",
    )

    @property
    def size(self) -> int:
        """The number of units in all models, unless shapes define it."""
        return self.models * self.applications * self.units

    @property
    def amounts(self) -> Mapping[str, int]:
        """What is in the controller."""
        return {"units": self.size, "relations": self.models * self.relations, "models": self.models}

    @property
    def shape(self) -> ModelShape:
        """What is in each model, the relations between the nearest applications first."""
        pairs = (
            [first, first + distance]
            for distance in range(1, self.applications)
            for first in range(self.applications - distance)
        )
        relations = [pair for _, pair in zip(range(self.relations), pairs, strict=False)]
        return ModelShape(applications=[self.units] * self.applications, relations=relations)

    @model_validator(mode="after")
    def _possible(self) -> OperateStage:
        most = self.applications * (self.applications - 1) // 2
        if self.relations > most:
            raise ValueError(
                f"relations: {self.relations}: expected at most {most}, one for each pair of {self.applications} "
                "applications"
            )
        if self.applications * self.units > MAX_UNITS_A_MODEL:
            raise ValueError(
                f"units: {self.units}: expected at most {MAX_UNITS_A_MODEL // self.applications}, as a model has "
                f"{self.applications} applications, and at most {MAX_UNITS_A_MODEL} units"
            )
        return self


class OperateFind(FindBesideOthers, frozen=True):
    """A search over one load of the operate workload, beside fixed amounts of the others."""

    loads = OPERATE_LOADS
    rates = frozenset(_RATES)

    load: OperateLoad = Field(
        default="models",
        description="Which load is searched: `models`, `applications`, `units` or `relations` (of each model), "
        "`operators`, or `statuses`, `changes`, `secrets` or `logs` per second.",
    )
    models: Models | None = Field(default=None, description=_MODELS)
    applications: Applications | None = Field(default=None, description=_APPLICATIONS)
    units: Units | None = Field(default=None, description=_UNITS)
    relations: Relations | None = Field(default=None, description=_RELATIONS)
    operators: Operators | None = Field(default=None, description=_OPERATORS)
    statuses: Statuses | None = Field(default=None, description=_STATUSES)
    changes: Changes | None = Field(default=None, description=_CHANGES)
    secrets: Revisions | None = Field(default=None, description=_SECRETS)
    logs: Lines | None = Field(default=None, description=_LOGS)
    over: Seconds = Field(
        default=10.0,
        description="The time over which the models begin to be made or changed; 0s begins with all at once.",
    )


class OperatePlan(BaseSearchPlan, frozen=True):
    """A plan of the operate workload."""

    is_held: ClassVar[bool] = True

    target: Annotated[TargetSection, ByKind("operate")] = Field(
        description="The system under test. `kind` says which fields it has."
    )
    workload: OperateWorkload = Field(description="What is done to the target.")
    stages: Annotated[list[OperateStage], Field(max_length=MAX_STAGES)] = Field(
        default=[], description="The steps of load, in order. A plan has `stages` or `find`."
    )
    find: OperateFind | None = Field(
        default=None,
        description="A search for the largest load that meets the thresholds, instead of `stages`.",
    )
    after: After = None

    @property
    def load(self) -> OperateLoad:
        """Which load the plan varies: the searched one, or the first that differs between stages."""
        if self.find is not None:
            return self.find.load
        given = {name: {getattr(stage, name) for stage in self.stages} for name in OPERATE_LOADS}
        varied: list[OperateLoad] = [
            name for name in OPERATE_LOADS if None not in given[name] and len(given[name]) > 1
        ]
        return varied[0] if varied else "models"

    @property
    def load_unit(self) -> str:
        """The unit of the plan's loads."""
        return _LOAD_UNITS[self.load]

    def load_of(self, stage: OperateStage, load: str = "") -> float:
        """Return a stage's load, counted in `load` or in what the plan varies."""
        return as_amount(getattr(stage, load or self.load) or 0)

    @property
    def counted(self) -> Literal["units"]:
        """What exists while the load is held: logged-in units."""
        return "units"

    def shapes_of(self, stage: OperateStage) -> list[ModelShape]:
        """Return what is in each model of a stage."""
        return self.workload.of_shapes(stage.models) or [stage.shape] * stage.models

    def goal(self, stage: BaseStage) -> tuple[int, str]:
        """Return how many units a stage has in all its models."""
        assert isinstance(stage, OperateStage)
        return sum(shape.units for shape in self.shapes_of(stage)), self.counted

    def rate_of(self, stage: OperateStage) -> float:
        """Return how many of a stage's operations are due per second in all."""
        update = self.workload.update_status
        hooks = self.goal(stage)[0] / update if update else 0.0
        rotate = self.workload.rotate
        rotations = sum(len(shape.pairs) for shape in self.shapes_of(stage)) / rotate if rotate else 0.0
        rates: list[float] = [getattr(stage, name) or 0.0 for name in _RATES]
        return hooks + rotations + sum(rates) + stage.operators / self.workload.think

    def removes(self, before: BaseStage, stage: BaseStage) -> bool:
        """Never: a stage with fewer units is held like any other."""
        return False

    @property
    def to_remove(self) -> int:
        """The most units that exist at once."""
        return max(self.goal(stage)[0] for stage in self.planned)

    @property
    def most_workers(self) -> int:
        """As many as there are models, because each has one worker."""
        return min(stage.models for stage in self.planned)

    def stage_at(self, load: float) -> OperateStage:
        """Return the stage with this load: a stage of the search, or one otherwise like the last listed stage."""
        find = self.find
        if find is None:
            like, name = self.stages[-1], self.load
        else:
            name = find.load
            like = OperateStage.model_construct(hold=find.hold, over=find.over, **find.fixed)
        if name in _RATES:
            return like.model_copy(update={name: load or None})
        least = 0 if name in ("relations", "operators") else 1
        return like.model_copy(update={name: max(least, round(load))})

    def listed_part(self, index: int, of: int) -> Self:
        """Return the part of a plan with stages for the unit with this index out of this many: models of its own."""
        fewest = min(stage.models for stage in self.stages)
        if of > fewest:
            place = next(number for number, stage in enumerate(self.stages) if stage.models == fewest)
            raise UserError(
                f"stages.{place}.models", fewest, f"at least {of}, one for each unit of the generator"
            )
        shapes = self.workload.shapes
        own = [shapes[number % len(shapes)] for number in range(index, index + of * len(shapes), of)]
        return self.model_copy(
            update={
                "workload": self.workload.model_copy(update={"shapes": own}),
                "stages": [_stage_part(stage, index, of) for stage in self.stages],
            }
        )

    @property
    def patience(self) -> float:
        """Seconds without progress after which waiting for a load ends: the time limit of an operation."""
        return self.workload.timeout

    @property
    def planned(self) -> Sequence[OperateStage]:
        """The listed stages, or those of a search's first and largest load."""
        if self.find is None:
            return self.stages
        return [self.stage_at(self.find.start), self.stage_at(self.find.limit)]

    @property
    def operations(self) -> list[str]:
        """The operations that thresholds may name."""
        planned = self.planned
        there: set[str] = {"connect"}
        if self.workload.update_status:
            there.add("hook")
        if self.workload.rotate:
            there.add("secret-rotation")
        beside = {
            "statuses": timed_as("status"),
            "changes": "relation-change",
            "secrets": "secret-change",
            "logs": "log",
        }
        there.update(name for load, name in beside.items() if any(getattr(stage, load) for stage in planned))
        if any(stage.operators for stage in planned):
            there.update(map(timed_as, self.workload.shares()))
        return [name for name in OPERATE_OPERATIONS if name in there]

    @model_validator(mode="after")
    def _whole(self) -> OperatePlan:
        check_find(self.stages, self.find, self.thresholds, self.faults)
        self._check_stages()
        check_operations(self.thresholds, self.operations)
        check_operations(self.find.also if self.find is not None else [], self.operations, field="find.also")
        check_after(self.after, self.thresholds, self.operations, "")
        check_fault_times(self.faults, [stage.hold for stage in self.stages])
        self.target.check(self)
        return self

    def _check_stages(self) -> None:
        """Check that shapes and stages do not both define a model's contents, and that what is to be changed exists."""
        for number, stage in enumerate(self.planned):
            place = f"stages.{number}" if self.find is None else "find"
            if self.workload.shapes:
                said = next((name for name in _OF_A_MODEL if name in stage.model_fields_set), None)
                if said is not None:
                    raise ValueError(
                        f"{place}.{said}: {getattr(stage, said)}: expected none, as workload.shapes says it"
                    )
            elif self.find is not None:  # the search puts the stage together unchecked
                try:
                    OperateStage.model_validate(stage.model_dump())
                except ValueError as problem:
                    raise ValueError(f"find: {_first_line(problem)}") from None
            needing = {
                "changes": stage.changes,
                "secrets": stage.secrets,
                "workload.rotate": self.workload.rotate,
            }
            for load, wanted in needing.items():
                if wanted and not any(shape.relations for shape in self.shapes_of(stage)):
                    raise ValueError(f"{place}.relations: 0: expected at least 1, for {load}")


def _first_line(problem: ValueError) -> str:
    text = str(getattr(problem, "errors", lambda: [{"msg": problem}])()[0]["msg"])
    return text.removeprefix("Value error, ")


def _stage_part(stage: OperateStage, index: int, of: int) -> OperateStage:
    changes: dict[str, object] = {
        name: value / of for name in _RATES if (value := getattr(stage, name)) is not None
    }
    changes["models"] = share_of(stage.models, index, of)
    changes["operators"] = share_of(stage.operators, index, of)
    return stage.model_copy(update=changes)
