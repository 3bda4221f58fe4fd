"""The plan: which target, which workload, how much of it, what would be good enough, and what breaks on the way."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args

import yaml
from pydantic import (
    BaseModel,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from tippingpoint.errors import UserError
from tippingpoint.plan.explain import ON, explained, nearest, without_login
from tippingpoint.plan.fields import Seconds, Section, StageKind
from tippingpoint.plan.spawn import OBSERVATIONS, SERVER_LIFE, SERVER_OBSERVATIONS, SERVER_OPERATIONS
from tippingpoint.plan.spawn import SPAWN_OPERATIONS as SPAWN_OPERATIONS
from tippingpoint.plan.spawn import SpawnStage as SpawnStage
from tippingpoint.plan.spawn import SpawnWorkload as SpawnWorkload
from tippingpoint.plan.targets import EtcdTarget as EtcdTarget
from tippingpoint.plan.targets import JujuTarget as JujuTarget
from tippingpoint.plan.targets import LxdTarget as LxdTarget
from tippingpoint.plan.targets import OpenstackTarget as OpenstackTarget
from tippingpoint.util.durations import format_duration

MAX_STAGES = 1000
MAX_LEASES = 10_000_000
CLAIM_OPERATIONS = ("connect", "claim", "extend")
"""What the claim workload times; `connect` only where every unit has a connection of its own."""
MODEL_OPERATIONS = (
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
"""What the spawn workload times on Juju."""
MAX_TEXT = 1 << 20
"""Characters (bytes of a file) of a plan."""

# What YAML's own constructors raise on values that only look like theirs, such as the date 2001-99-99.
_NO_YAML = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


Leases = Annotated[int, Field(ge=1, le=MAX_LEASES, strict=True)]
Rate = Annotated[float, Field(ge=0, le=1)]


class ClaimWorkload(Section):
    """Leases that are claimed, renewed and fought over."""

    kind: Literal["claim"] = "claim"
    units: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=3, description="units contending for each lease"
    )
    claim_time: Seconds = Field(default=60.0, description="how long a claim lasts unless it is extended")
    renew_time: Seconds = Field(default=30.0, description="how often a holder extends its claim")
    timeout: Seconds = Field(default=60.0, description="after this an operation counts as a timeout")

    @model_validator(mode="after")
    def _times(self) -> ClaimWorkload:
        if self.claim_time < 1:
            raise ValueError(f"claim_time: {format_duration(self.claim_time)}: expected at least 1s")
        if self.renew_time < 0.01:
            raise ValueError(f"renew_time: {format_duration(self.renew_time)}: expected at least 10ms")
        if self.timeout < 0.01:
            raise ValueError(f"timeout: {format_duration(self.timeout)}: expected at least 10ms")
        if self.renew_time >= self.claim_time:
            raise ValueError(
                f"renew_time: {format_duration(self.renew_time)}: expected less than claim_time "
                f"({format_duration(self.claim_time)}), or every lease is lost before it is renewed"
            )
        return self


class Stage(Section):
    """One step of load: this many leases in all, brought up over a time, then held for a time."""

    leases: Leases
    hold: Seconds = Field(default=30.0, description="how long the load is held once it is up")
    over: Seconds = Field(default=5.0, description="new claims are spread over this; 0s claims all at once")


class ModelWorkload(Section):
    """On Juju: machines, applications, units and relations that are made, listed and removed, each call timed."""

    kind: Literal["spawn"]
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
    def _times(self) -> ModelWorkload:
        if self.timeout < 0.01:
            raise ValueError(f"timeout: {format_duration(self.timeout)}: expected at least 10ms")
        return self


Things = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]


ModelUnit = Literal["units", "relations", "applications", "machines"]
MODEL_UNITS: tuple[ModelUnit, ...] = get_args(ModelUnit)
"""What loads of the spawn workload may be counted in: the first of these that a plan makes any of."""


class ModelStage(Section):
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
    def amounts(self) -> dict[ModelUnit, int]:
        """How many of each kind there are in all, in the order of MODEL_UNITS."""
        return {
            "units": self.size,
            "relations": self.relations,
            "applications": self.applications,
            "machines": self.machines,
        }

    @model_validator(mode="after")
    def _possible(self) -> ModelStage:
        if self.applications and self.units and not self.machines:
            raise ValueError("machines: 0: expected at least 1, as units need a machine")
        most = self.applications * (self.applications - 1) // 2
        if self.relations > most:
            raise ValueError(
                f"relations: {self.relations}: expected at most {most}, one for each pair of {self.applications} "
                "applications"
            )
        return self


class Find(Section):
    """Search for the largest load that meets the thresholds: double, bisect, confirm."""

    start: Leases = 100
    limit: Leases = 100_000
    hold: Seconds = 30.0
    over: Seconds = 5.0
    resolution: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.1, description="bisect until the gap is at most this share of the load that held"
    )
    repeats: Annotated[int, Field(ge=1, le=20)] = Field(
        default=3, description="how often the answer and the load above it are tried again"
    )

    @model_validator(mode="after")
    def _order(self) -> Find:
        if self.limit < self.start:
            raise ValueError(f"limit: {self.limit}: expected at least start ({self.start})")
        return self


class Threshold(Section):
    """What is good enough, for one operation, in every stage."""

    operation: Annotated[str, Field(max_length=40)]
    p50: Seconds | None = None
    p90: Seconds | None = None
    p95: Seconds | None = None
    p99: Seconds | None = None
    p999: Seconds | None = Field(default=None, description="p99.9")
    max: Seconds | None = None
    error_rate: Rate | None = Field(default=None, description="errors and timeouts over all attempts")
    lost_rate: Rate | None = Field(default=None, description="leases lost over all attempts to extend")
    throughput: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="at least this many succeed per second while a stage is held; of what brings a stage up "
        "(connect, and what makes or removes things) until it is",
    )

    @model_validator(mode="after")
    def _something(self) -> Threshold:
        if all(getattr(self, name) is None for name in type(self).model_fields if name != "operation"):
            raise ValueError(
                "no limit: expected one of p50 p90 p95 p99 p999 max error_rate lost_rate throughput"
            )
        if self.lost_rate is not None and self.operation != "extend":
            raise ValueError(f"lost_rate: {self.lost_rate}: expected on operation extend only")
        return self


UNDONE_BY: dict[str, Literal["start", "continue", "heal"]] = {
    "kill": "start",
    "stop": "continue",
    "partition": "heal",
}
"""What undoes what a fault does to a lab's member."""


class Fault(Section):
    """Something that goes wrong on purpose: at a time into the run, or into a stage (counted from 1)."""

    do: Literal["kill", "stop", "continue", "start", "partition", "heal", "drop-claims"] = Field(
        description="kill, stop (SIGSTOP), continue or start a lab member; partition cuts it off from the others and "
        "from us, heal undoes that; "
        "drop-claims abandons every claim and connection and claims new leases all at once (a restart storm)"
    )
    member: str | None = Field(default=None, description="a lab member's name; not for drop-claims")
    stage: Annotated[int, Field(ge=1, le=MAX_STAGES)] | None = Field(
        default=None,
        description="count `at` from the beginning of this stage's hold, and be less; drop-claims needs it",
    )
    at: Seconds = 0.0
    undo_after: Seconds | None = Field(
        default=None, description="start (continue, heal) the member again after this"
    )

    @model_validator(mode="after")
    def _member(self) -> Fault:
        if (self.member is None) != (self.do == "drop-claims"):
            raise ValueError(
                f"member: {self.member!r}: expected a lab member's name for {self.do}"
                if self.member is None
                else f"member: {self.member!r}: expected none for drop-claims"
            )
        if self.do == "drop-claims" and self.stage is None:
            raise ValueError("stage: missing: expected the number of the listed stage that drop-claims is in")
        if self.undo_after is not None and self.do not in UNDONE_BY:
            raise ValueError(f"undo_after: expected only with {', '.join(UNDONE_BY)}, not {self.do}")
        return self


class _Plan(Section):
    """What every plan has."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
    description: str = ""
    thresholds: list[Threshold] = Field(default=[])
    faults: list[Fault] = Field(default=[])
    workers: Annotated[int, Field(ge=1, le=256)] | None = Field(
        default=None, description="processes that generate load; one per core when left out"
    )
    lab: Path | None = Field(
        default=None, description="control socket of the lab whose members faults act on"
    )

    def to_yaml(self) -> str:
        """The plan as YAML that `parse_plan` reads back to an equal plan."""
        document = self.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        # What a plan does before what would be good enough and what breaks on the way.
        first = ("name", "description", "target", "workload", "stages", "find")
        document = {name: document[name] for name in (*first, *document) if name in document}
        return yaml.safe_dump(document, sort_keys=False)


def _check_operations(thresholds: Sequence[Threshold], operations: Sequence[str]) -> None:
    for number, threshold in enumerate(thresholds):
        if threshold.operation not in operations:
            raise ValueError(
                f"thresholds.{number}.operation: {threshold.operation}: expected one of "
                f"{', '.join(operations)}{nearest(threshold.operation, operations)}"
            )


def _check_fault_times(faults: Sequence[Fault], holds: Sequence[float]) -> None:
    for number, fault in enumerate(faults):
        if fault.stage is None:
            continue
        place = f"faults.{number}"
        if fault.stage > len(holds):
            raise ValueError(f"{place}.stage: {fault.stage}: expected one of the {len(holds)} listed stages")
        hold = holds[fault.stage - 1]
        if fault.at >= hold:
            raise ValueError(
                f"{place}.at: {format_duration(fault.at)}: expected less than the hold of stage "
                f"{fault.stage} ({format_duration(hold)})"
            )


def _target_kind(value: Any) -> str:
    kind = (
        cast(dict[str, Any], value).get("kind", "etcd")
        if isinstance(value, dict)
        else getattr(value, "kind", "")
    )
    return kind if isinstance(kind, str) else repr(kind)


ClaimTargets = Annotated[
    Annotated[EtcdTarget, Tag("etcd")] | Annotated[JujuTarget, Tag("juju")], Discriminator(_target_kind)
]


SpawnTargets = Annotated[
    Annotated[LxdTarget, Tag("lxd")] | Annotated[OpenstackTarget, Tag("openstack")],
    Discriminator(_target_kind),
]


_TARGETS: dict[str, type[BaseModel]] = {
    "etcd": EtcdTarget,
    "juju": JujuTarget,
    "lxd": LxdTarget,
    "openstack": OpenstackTarget,
}


class ClaimPlan(_Plan):
    """A plan of the claim workload."""

    target: ClaimTargets = EtcdTarget()
    workload: ClaimWorkload = ClaimWorkload()
    stages: list[Stage] = Field(default=[], max_length=MAX_STAGES)
    find: Find | None = None

    @property
    def load_unit(self) -> str:
        """What loads are counted in."""
        return "leases"

    @property
    def loads(self) -> list[tuple[StageKind, int]]:
        """The kind and the load of each listed stage."""
        return [("ramp", stage.leases) for stage in self.stages]

    @model_validator(mode="after")
    def _whole(self) -> ClaimPlan:
        if bool(self.stages) == (self.find is not None):
            raise ValueError(f"stages: {len(self.stages)} listed: expected 1 to {MAX_STAGES} stages, or find")
        if self.find is not None and not self.thresholds:
            raise ValueError("thresholds: none: expected at least one, or find has nothing to look for")
        own_connections = self.target.kind == "juju"
        _check_operations(
            self.thresholds,
            CLAIM_OPERATIONS if own_connections else [op for op in CLAIM_OPERATIONS if op != "connect"],
        )
        renews = any(threshold.operation == "extend" for threshold in self.thresholds)
        if self.find is not None and renews and self.find.hold < self.workload.renew_time:
            raise ValueError(
                f"find.hold: {format_duration(self.find.hold)}: expected at least workload.renew_time "
                f"({format_duration(self.workload.renew_time)}), or no extension is measured"
            )
        staged = next((n for n, fault in enumerate(self.faults) if fault.stage is not None), None)
        if self.find is not None and staged is not None:
            raise ValueError(
                f"faults.{staged}.stage: {self.faults[staged].stage}: expected none, as find lists no stages"
            )
        _check_fault_times(self.faults, [stage.hold for stage in self.stages])
        if self.target.kind == "juju" and not 5 <= self.workload.claim_time <= 300:
            raise ValueError(
                f"workload.claim_time: {format_duration(self.workload.claim_time)}: expected 5s to 5m, "
                "which is what a Juju controller grants"
            )
        return self


class ModelPlan(_Plan):
    """A plan of the spawn workload on Juju."""

    target: JujuTarget
    workload: ModelWorkload
    stages: Annotated[list[ModelStage], Field(min_length=1, max_length=MAX_STAGES)]

    @property
    def load_unit(self) -> ModelUnit:
        """What loads are counted in: units, or in a plan that makes none the first of MODEL_UNITS that it makes."""
        made: list[ModelUnit] = [
            name for name in MODEL_UNITS if any(stage.amounts[name] for stage in self.stages)
        ]
        return made[0] if made else "units"

    @property
    def loads(self) -> list[tuple[StageKind, int]]:
        """The kind and the load of each stage.

        Where the first of the amounts that changes becomes less, the stage destroys, and its load is what was there
        before: a stage that removes everything would say nothing otherwise.
        """
        found: list[tuple[StageKind, int]] = []
        before = ModelStage(machines=0)
        for stage in self.stages:
            destroys = [*stage.amounts.values()] < [*before.amounts.values()]
            loaded = before if destroys else stage
            found.append(("destroy" if destroys else "ramp", loaded.amounts[self.load_unit]))
            before = stage
        return found

    @model_validator(mode="after")
    def _whole(self) -> ModelPlan:
        if self.target.identity != "hollow":
            raise ValueError(f"target.identity: {self.target.identity}: expected hollow, for spawn")
        _check_operations(self.thresholds, MODEL_OPERATIONS)
        _check_spawn_faults(self.faults, [stage.hold for stage in self.stages])
        return self


class SpawnPlan(_Plan):
    """A plan of the spawn workload on a target that runs things: LXD or OpenStack."""

    target: SpawnTargets
    workload: SpawnWorkload
    stages: Annotated[list[SpawnStage], Field(min_length=1, max_length=MAX_STAGES)]

    @property
    def load_unit(self) -> Literal["containers", "servers", "iterations", "members"]:
        """What loads are counted in: what things are called, or the cluster's members where only these differ."""
        if self.workload.cycle:
            return "iterations"
        few = len({stage.size for stage in self.stages}) == 1 < len({stage.members for stage in self.stages})
        if few:
            return "members"
        return "servers" if self.target.kind == "openstack" else "containers"

    @property
    def called(self) -> Mapping[str, str]:
        """What the steps of a thing's life are called on this target, where that is not what they are called here."""
        return SERVER_LIFE if self.target.kind == "openstack" else {}

    @property
    def observations(self) -> Sequence[str]:
        """What users ask this target for."""
        return SERVER_OBSERVATIONS if self.target.kind == "openstack" else OBSERVATIONS

    @property
    def in_turn(self) -> bool:
        """Whether we say which member a thing is put on."""
        return self.target.kind == "lxd" and self.target.placement == "round-robin"

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
        servers = self.target.kind == "openstack"
        _check_operations(self.thresholds, SERVER_OPERATIONS if servers else SPAWN_OPERATIONS)
        _check_spawn_faults(self.faults, [stage.hold for stage in self.stages])
        if self.target.kind == "openstack":
            _check_servers(self.workload)
            most = max(stage.groups for stage in self.stages)
            if most > 1 and not self.target.tenants:
                raise ValueError(
                    f"target.tenants: false: expected true, as {most} groups are a project each; or groups: 1"
                )
            return self
        named = self.target.projects
        for number, stage in enumerate(self.stages):
            if named and stage.groups > len(named):
                raise ValueError(
                    f"stages.{number}.groups: {stage.groups}: expected at most {len(named)}, as target.projects has "
                    f"that many ({', '.join(named)})"
                )
        return self


def _check_servers(workload: SpawnWorkload) -> None:
    if workload.until not in ("created", "started"):
        raise ValueError(
            f"workload.until: {workload.until}: expected started (ACTIVE) or created, for openstack"
        )
    if workload.evict:
        raise ValueError("workload.evict: true: expected false, for openstack")


def _check_spawn_faults(faults: Sequence[Fault], holds: Sequence[float]) -> None:
    for number, fault in enumerate(faults):
        if fault.do == "drop-claims":
            raise ValueError(
                f"faults.{number}.do: drop-claims: expected kill, stop, continue, start, partition or heal, for spawn"
            )
    _check_fault_times(faults, holds)


Plan = ClaimPlan | ModelPlan | SpawnPlan
"""A validated plan: `workload.kind` says which, and of the spawn workloads the target's kind."""


def _plan_kind(value: Any) -> str:
    match value:
        case _Plan():
            return next(kind for kind, plan in _KINDS.items() if isinstance(value, plan))
        case {"workload": {"kind": "spawn"}, "target": {"kind": kind}}:
            return f"spawn{ON}{kind}"
        case {"workload": {"kind": "spawn"}}:
            return f"spawn{ON}lxd"  # which then says what is missing
        case {"workload": {"kind": kind}}:
            return kind if isinstance(kind, str) else repr(kind)
        case _:
            return "claim"


_KINDS: dict[str, type[BaseModel]] = {
    "claim": ClaimPlan,
    f"spawn{ON}lxd": SpawnPlan,
    f"spawn{ON}openstack": SpawnPlan,
    f"spawn{ON}juju": ModelPlan,
}
AnyPlan = Annotated[
    Annotated[ClaimPlan, Tag("claim")]
    | Annotated[SpawnPlan, Tag(f"spawn{ON}lxd")]
    | Annotated[SpawnPlan, Tag(f"spawn{ON}openstack")]
    | Annotated[ModelPlan, Tag(f"spawn{ON}juju")],
    Discriminator(_plan_kind),
]
"""A plan as a field of a pydantic model."""
_PLANS: TypeAdapter[Plan] = TypeAdapter(AnyPlan)


def validate_plan(fields: object) -> Plan:
    """The plan of these fields, such as a manifest has; ValidationError when they are none."""
    return _PLANS.validate_python(fields)


def plan_schema() -> dict[str, Any]:
    """The JSON schema of plans."""
    return _PLANS.json_schema()


def parse_plan(text: str, overrides: Sequence[str] = (), source: str = "plan") -> Plan:
    """The plan in a YAML text with `key=value` overrides applied; UserError says which field is wrong and why."""
    try:
        document = _read_yaml(text)
    except ValueError as problem:
        raise UserError(source, without_login(str(problem)), "a plan in YAML") from None
    if not isinstance(document, dict):
        found = "empty" if document is None else "a list" if isinstance(document, list) else "a single value"
        raise UserError(source, found, "a mapping of plan fields")
    fields = cast(dict[str, Any], document)
    for override in overrides:
        _override(fields, override)
    try:
        return validate_plan(fields)
    except ValidationError as problem:
        raise explained(problem, _KINDS, _TARGETS) from None
    except RecursionError:
        raise UserError(source, "nested too deeply", "a plan") from None


class _Loader(yaml.SafeLoader):
    """YAML without merge keys: a few lines of them can stand for more than fits into the memory."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        if any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            raise ValueError("a merge key (<<)")
        super().flatten_mapping(node)


def _read_yaml(text: str) -> object:
    """The value in a text; ValueError says in one line why there is none."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"{len(text)} characters, more than {MAX_TEXT}")
    try:
        return yaml.load(text, _Loader)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except _NO_YAML as problem:
        raise ValueError(
            " ".join(str(problem).split()) or "a value that is not what its tag says"
        ) from problem


def shipped_plans() -> dict[str, str]:
    """The names of the plans that come with the suite, and their texts."""
    folder = resources.files("tippingpoint") / "plans"
    return {
        entry.name.removesuffix(".yaml"): entry.read_text(encoding="utf-8")
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name)
        if entry.name.endswith(".yaml")
    }


def load_plan(name: str, overrides: Sequence[str] = ()) -> Plan:
    """The plan in the file of that name, or the shipped plan of that name."""
    path = Path(name)
    try:
        if path.is_file():
            if path.stat().st_size > MAX_TEXT:
                raise UserError("plan", name, "a file of at most 1 MiB")
            return parse_plan(path.read_text(encoding="utf-8"), overrides, name)
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else problem
        raise UserError("plan", name, f"a readable text file ({reason})") from None
    plans = shipped_plans()
    if name in plans:
        return parse_plan(plans[name], overrides, name)
    raise UserError("plan", name, f"a file, or one of {', '.join(plans)}{nearest(name, plans)}")


def _override(fields: dict[str, Any], override: str) -> None:
    """Apply `workload.renew_time=10s` or `stages.0.leases=50`; the value is read as YAML."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise UserError("--set", without_login(override), "key=value, such as workload.renew_time=10s")
    try:
        value = _read_yaml(text)
    except ValueError as problem:
        if not isinstance(problem.__cause__, yaml.YAMLError):
            raise UserError("--set", without_login(override), f"a value in YAML ({problem})") from None
        value = text  # no YAML at all, such as a description with a colon
    *parents, last = key.split(".")
    place: Any = fields
    for parent in parents:
        if isinstance(place, dict):
            place = cast(dict[str, Any], place).setdefault(parent, {})
        else:
            place = _item(place, parent, override)
    if isinstance(place, dict):
        place[last] = value
    else:
        _item(place, last, override)
        place[int(last)] = value


def _item(place: Any, index: str, override: str) -> Any:
    if not isinstance(place, list):
        raise UserError("--set", without_login(override), f"a key of the plan ({index} is inside a value)")
    items = cast(list[Any], place)
    if not items:
        raise UserError(
            "--set", without_login(override), f"another key, as the list has no position {index}: it is empty"
        )
    if not re.fullmatch("[0-9]{1,9}", index) or int(index) >= len(items):
        raise UserError("--set", without_login(override), f"a position from 0 to {len(items) - 1}")
    return items[int(index)]
