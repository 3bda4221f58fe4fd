"""The plan: which target, which workload, how much of it, what would be good enough, and what breaks on the way."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args
from urllib.parse import urlsplit

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainSerializer,
    Tag,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from tippingpoint.durations import ACCEPTED, format_duration, parse_duration
from tippingpoint.errors import UserError
from tippingpoint.plan_errors import explained, nearest, without_login
from tippingpoint.tags import StageKind

MAX_STAGES = 1000
MAX_LEASES = 10_000_000
CLAIM_OPERATIONS = ("connect", "claim", "extend")
"""What the claim workload times; `connect` only where every unit has a connection of its own."""
SPAWN_OPERATIONS = (
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

_ENDPOINT = r"^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?\])(:[0-9]{1,5})?$"
# What YAML's own constructors raise on values that only look like theirs, such as the date 2001-99-99.
_NO_YAML = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def _duration(value: object) -> object:
    if isinstance(value, str):
        return parse_duration(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise ValueError(ACCEPTED)


Seconds = Annotated[
    float,
    BeforeValidator(_duration),
    Field(ge=0, le=7 * 86400, allow_inf_nan=False),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "examples": ["250ms", "30s", "1m30s"]},
                {"type": "number", "minimum": 0},
            ]
        }
    ),
]


def _endpoint(url: str) -> str:
    """A URL as etcd's clients write it; no credentials, which would end up in journals and reports."""
    if "@" in url:
        raise ValueError("http(s)://host:port, and the user in target.credentials")
    try:
        if not re.fullmatch(_ENDPOINT, url) or urlsplit(url).port == 0:
            raise ValueError
    except ValueError:
        raise ValueError("http(s)://host:port") from None
    return url


Endpoint = Annotated[str, AfterValidator(_endpoint), WithJsonSchema({"type": "string", "pattern": _ENDPOINT})]
Leases = Annotated[int, Field(ge=1, le=MAX_LEASES, strict=True)]
Rate = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class EtcdTarget(_Part):
    """A real etcd cluster. Secrets stay in files; TLS is verified against `ca` or the system's authorities."""

    kind: Literal["etcd"] = "etcd"
    endpoints: list[Endpoint] = Field(
        default=["http://127.0.0.1:2379"],
        min_length=1,
        description="client URLs; connections are spread over them",
    )
    api: Literal["v3", "v2"] = "v3"
    connections: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1, description="connections to each endpoint, from each worker"
    )
    ca: Path | None = Field(default=None, description="PEM file with the authority that signed the servers")
    cert: Path | None = Field(default=None, description="PEM file with the client certificate")
    key: Path | None = Field(default=None, description="PEM file with the client key, mode 0600")
    credentials: Path | None = Field(
        default=None, description="YAML file, mode 0600, with `username` and `password`"
    )

    @model_validator(mode="after")
    def _pair(self) -> EtcdTarget:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together: expected both or neither")
        return self


class JujuTarget(_Part):
    """A Juju controller, stock or patched. TLS is verified against the controller's own authority, always."""

    kind: Literal["juju"]
    controller: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="name in the juju client's store; its current controller when left out"
    )
    credentials: Path | None = Field(
        default=None,
        description="YAML file, mode 0600, with `addresses`, `ca`, `user` and `password`, instead of the store",
    )
    model: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="name or UUID of a model to make hollow units in; one is made, and removed, when left out",
    )
    identity: Literal["hollow", "agent"] = Field(
        default="hollow",
        description="hollow: every unit logs in as itself; agent: all as one unit, which needs a patched controller",
    )
    agent: Path | None = Field(
        default=None, description="the unit's agent.conf, with identity agent; it is read, not copied"
    )

    @model_validator(mode="after")
    def _who(self) -> JujuTarget:
        if self.controller is not None and self.credentials is not None:
            raise ValueError(
                f"credentials: {self.credentials}: expected either controller or credentials, not both"
            )
        if (self.identity == "agent") != (self.agent is not None):
            raise ValueError(
                f"agent: {self.agent or 'missing'}: expected an agent.conf with identity agent, and only then"
            )
        if self.identity == "agent" and (self.controller or self.credentials or self.model):
            raise ValueError(
                "identity: agent: expected no controller, credentials or model, as the agent.conf names them"
            )
        return self


class ClaimWorkload(_Part):
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


class Stage(_Part):
    """One step of load: this many leases in all, brought up over a time, then held for a time."""

    leases: Leases
    hold: Seconds = Field(default=30.0, description="how long the load is held once it is up")
    over: Seconds = Field(default=5.0, description="new claims are spread over this; 0s claims all at once")


class SpawnWorkload(_Part):
    """Machines, applications, units and relations that are made, listed and removed, each call timed."""

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
    def _times(self) -> SpawnWorkload:
        if self.timeout < 0.01:
            raise ValueError(f"timeout: {format_duration(self.timeout)}: expected at least 10ms")
        return self


Things = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]


SpawnUnit = Literal["units", "relations", "applications", "machines"]
SPAWN_UNITS: tuple[SpawnUnit, ...] = get_args(SpawnUnit)
"""What loads of the spawn workload may be counted in: the first of these that a plan makes any of."""


class SpawnStage(_Part):
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
    def amounts(self) -> dict[SpawnUnit, int]:
        """How many of each kind there are in all, in the order of SPAWN_UNITS."""
        return {
            "units": self.size,
            "relations": self.relations,
            "applications": self.applications,
            "machines": self.machines,
        }

    @model_validator(mode="after")
    def _possible(self) -> SpawnStage:
        if self.applications and self.units and not self.machines:
            raise ValueError("machines: 0: expected at least 1, as units need a machine")
        most = self.applications * (self.applications - 1) // 2
        if self.relations > most:
            raise ValueError(
                f"relations: {self.relations}: expected at most {most}, one for each pair of {self.applications} "
                "applications"
            )
        return self


class Find(_Part):
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


class Threshold(_Part):
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


class Fault(_Part):
    """Something that goes wrong on purpose: at a time into the run, or into a stage (counted from 1)."""

    do: Literal["kill", "stop", "continue", "start", "drop-claims"] = Field(
        description="kill, stop (SIGSTOP), continue or start a lab member; "
        "drop-claims abandons every claim and connection and claims new leases all at once (a restart storm)"
    )
    member: str | None = Field(default=None, description="a lab member's name; not for drop-claims")
    stage: Annotated[int, Field(ge=1, le=MAX_STAGES)] | None = Field(
        default=None,
        description="count `at` from the beginning of this stage's hold, and be less; drop-claims needs it",
    )
    at: Seconds = 0.0
    undo_after: Seconds | None = Field(
        default=None, description="start (or continue) the member again after this"
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
        if self.undo_after is not None and self.do not in ("kill", "stop"):
            raise ValueError(f"undo_after: expected only with kill or stop, not {self.do}")
        return self


class _Plan(_Part):
    """What every plan has."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
    description: str = ""
    thresholds: list[Threshold] = []
    faults: list[Fault] = []
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


_TARGETS: dict[str, type[BaseModel]] = {"etcd": EtcdTarget, "juju": JujuTarget}


class ClaimPlan(_Plan):
    """A plan of the claim workload."""

    target: ClaimTargets = EtcdTarget()
    workload: ClaimWorkload = ClaimWorkload()
    stages: Annotated[list[Stage], Field(max_length=MAX_STAGES)] = []
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


class SpawnPlan(_Plan):
    """A plan of the spawn workload."""

    target: JujuTarget
    workload: SpawnWorkload
    stages: Annotated[list[SpawnStage], Field(min_length=1, max_length=MAX_STAGES)]

    @property
    def load_unit(self) -> SpawnUnit:
        """What loads are counted in: units, or in a plan that makes none the first of SPAWN_UNITS that it makes."""
        made: list[SpawnUnit] = [
            name for name in SPAWN_UNITS if any(stage.amounts[name] for stage in self.stages)
        ]
        return made[0] if made else "units"

    @property
    def loads(self) -> list[tuple[StageKind, int]]:
        """The kind and the load of each stage.

        Where the first of the amounts that changes becomes less, the stage destroys, and its load is what was there
        before: a stage that removes everything would say nothing otherwise.
        """
        found: list[tuple[StageKind, int]] = []
        before = SpawnStage(machines=0)
        for stage in self.stages:
            destroys = [*stage.amounts.values()] < [*before.amounts.values()]
            loaded = before if destroys else stage
            found.append(("destroy" if destroys else "ramp", loaded.amounts[self.load_unit]))
            before = stage
        return found

    @model_validator(mode="after")
    def _whole(self) -> SpawnPlan:
        if self.target.identity != "hollow":
            raise ValueError(f"target.identity: {self.target.identity}: expected hollow, for spawn")
        _check_operations(self.thresholds, SPAWN_OPERATIONS)
        for number, fault in enumerate(self.faults):
            if fault.do == "drop-claims":
                raise ValueError(
                    f"faults.{number}.do: drop-claims: expected kill, stop, continue or start, for spawn"
                )
        _check_fault_times(self.faults, [stage.hold for stage in self.stages])
        return self


Plan = ClaimPlan | SpawnPlan
"""A validated plan: `workload.kind` says which."""


def _workload_kind(value: Any) -> str:
    if isinstance(value, _Plan):
        return "spawn" if isinstance(value, SpawnPlan) else "claim"
    workload = cast(dict[str, Any], value).get("workload") if isinstance(value, dict) else None
    kind = cast(dict[str, Any], workload).get("kind", "claim") if isinstance(workload, dict) else "claim"
    return kind if isinstance(kind, str) else repr(kind)


AnyPlan = Annotated[
    Annotated[ClaimPlan, Tag("claim")] | Annotated[SpawnPlan, Tag("spawn")], Discriminator(_workload_kind)
]
"""A plan as a field of a pydantic model."""
_PLANS: TypeAdapter[Plan] = TypeAdapter(AnyPlan)
_KINDS: dict[str, type[BaseModel]] = {"claim": ClaimPlan, "spawn": SpawnPlan}


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
