"""The fields that every plan has: a name, thresholds, faults, workers and a lab."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from tippingpoint.plan.fields import Seconds, Section, StageKind, in_units
from tippingpoint.util.durations import format_duration
from tippingpoint.util.quantities import Quantity, parse_quantity
from tippingpoint.util.strict_yaml import dump_yaml
from tippingpoint.util.text import nearest

MAX_STAGES = 1000

Rate = Annotated[float, Field(ge=0, le=1, json_schema_extra=in_units("share"))]


def _quantity(value: object) -> object:
    """A limit of a figure as text. YAML may have read it as a number."""
    text = repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if isinstance(text, str):
        parse_quantity(text)
    return text


_Quantity = Annotated[
    str,
    BeforeValidator(_quantity),
    Field(max_length=40),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "maxLength": 40, "examples": ["10ms", "300MB"]},
                {"type": "number", "exclusiveMinimum": 0},
            ]
        }
    ),
]
_OF_FIGURES = ("role", "host", "part", "at_most")
_ABOUT = ("operation", "figure", "role", "host", "part", "abort")
"""The fields of a threshold that are not limits."""


class Threshold(Section, frozen=True):
    """Limits of one operation, or of a figure that Prometheus has of the target, which hold in every stage. A threshold
    has at least one limit."""

    operation: Annotated[str, Field(max_length=40)] = Field(
        default="",
        description="The operation that the limits are for. Workload and target decide which ones exist. A threshold "
        "has either an operation or a figure.",
    )
    figure: Annotated[str, Field(min_length=1, max_length=80)] | None = Field(
        default=None,
        description="Instead of an operation: the name of a figure of the target's query packs, which Prometheus is "
        "asked for. The run needs `--prometheus`, and a charm the relation `prometheus-api`. `at_most` is its limit.",
    )
    role: Literal["leader", "follower"] | None = Field(
        default=None,
        description="Whose figure it is: the leader's, or the followers'. Left out, it is that of every host.",
    )
    host: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None,
        description="The host whose figure it is, by the name in its metrics. Left out: every host.",
    )
    part: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None,
        description="The part of a host, for a figure that has several: a process, a vhost. Left out: every part.",
    )
    at_most: _Quantity | None = Field(
        default=None,
        description="The most that a figure may be at any host and moment of the hold: a duration or a size where the "
        "figure is one, otherwise a number in the figure's unit. A rate or percentile is that of the whole hold.",
    )
    p50: Seconds | None = Field(default=None, description="The most that the median response time may be.")
    p90: Seconds | None = Field(
        default=None, description="The most that the 90th percentile of response time may be."
    )
    p95: Seconds | None = Field(
        default=None, description="The most that the 95th percentile of response time may be."
    )
    p99: Seconds | None = Field(
        default=None, description="The most that the 99th percentile of response time may be."
    )
    p999: Seconds | None = Field(
        default=None, description="The most that the 99.9th percentile of response time may be."
    )
    max: Seconds | None = Field(default=None, description="The most that any response time may be.")
    error_rate: Rate | None = Field(
        default=None, description="The most that errors and timeouts may be of all attempts."
    )
    lost_rate: Rate | None = Field(
        default=None,
        description="The most that lost leases may be of all attempts to extend. Only `extend` has it.",
    )
    throughput: (
        Annotated[float, Field(gt=0, allow_inf_nan=False, json_schema_extra=in_units("per second"))] | None
    ) = Field(
        default=None,
        description="The least that has to succeed per second while a stage is held. Operations that bring a stage "
        "up, such as `connect`, are counted until it is up.",
    )
    cpu: Seconds | None = Field(
        default=None,
        description="The most CPU time that one such operation may take of the whole target: 120us. It is known after "
        "the run, where the target's CPU was measured: `collect`, or metrics-collector. A limit is missed where "
        "the whole 95 % interval is above it. A search has none.",
    )
    abort: bool = Field(
        default=False,
        description="`true` ends the run early when the threshold is missed for eight windows in a row, each of at "
        "least 2 s and 5 attempts. A figure has to be above its limit in four scrapes in a row. A search takes the "
        "load away, and tries no load near it or above it any more. One that units share ends.",
    )

    @property
    def subject(self) -> str:
        """What is limited: an operation, or a figure and its owner, such as etcd-memory of the leader."""
        if not self.figure:
            return self.operation
        whose = {"leader": " of the leader", "follower": " of followers", None: ""}[self.role]
        return f"{self.figure}{f' {self.part}' if self.part else ''}{whose}{f' on {self.host}' if self.host else ''}"

    @property
    def quantity(self) -> Quantity:
        """The limit of a figure, with the unit in which it is written."""
        assert self.at_most is not None
        return parse_quantity(self.at_most)

    @model_validator(mode="after")
    def _something(self) -> Threshold:
        limits = [name for name in type(self).model_fields if name not in _ABOUT]
        given = [name for name in limits if getattr(self, name) is not None]
        if bool(self.operation) == bool(self.figure):
            raise ValueError(
                f"operation: {self.operation or 'missing'}: expected either an operation or a figure of Prometheus"
            )
        if self.figure:
            other = next((name for name in given if name != "at_most"), "")
            if other:
                raise ValueError(f"{other}: {getattr(self, other)}: expected only with an operation")
            if not given:
                raise ValueError("at_most: missing: expected the most that the figure may be")
            return self
        ours = next((name for name in _OF_FIGURES if getattr(self, name) is not None), None)
        if ours is not None:
            raise ValueError(f"{ours}: {getattr(self, ours)}: expected only with a figure")
        if not given:
            raise ValueError(
                "no limit: expected one of p50 p90 p95 p99 p999 max error_rate lost_rate throughput cpu"
            )
        if self.abort and given == ["cpu"]:
            raise ValueError(
                "abort: true: expected beside another limit than cpu, which is known after the run"
            )
        return self


UNDONE_BY: dict[str, Literal["start", "continue", "heal", "free-disk", "mend-fencing", "free-quota"]] = {
    "kill": "start",
    "stop": "continue",
    "partition": "heal",
    "slow-disk": "free-disk",
    "fail-fencing": "mend-fencing",
    "fill-quota": "free-quota",
}
"""The fault that undoes each of these."""
UPKEEP = ("compact", "defrag", "snapshot", "move-leader")
"""Maintenance of a member of etcd, as an operator does it. It takes some time, and ends when the lab has answered."""


class Fault(Section, frozen=True):
    """Something that goes wrong on purpose, at a time of the run or of a stage."""

    do: Literal[
        "kill",
        "stop",
        "continue",
        "start",
        "partition",
        "heal",
        "slow-disk",
        "free-disk",
        "fail-fencing",
        "mend-fencing",
        "kill-daemon",
        "compact",
        "defrag",
        "snapshot",
        "move-leader",
        "fill-quota",
        "free-quota",
        "drop-claims",
    ] = Field(
        description="`kill`, `stop` (SIGSTOP), `continue` and `start` act on a member of a lab. `partition` cuts the "
        "member off from the others and, but for Pacemaker, from the generator, and `heal` undoes that. Two "
        "are for members of etcd, nodes of Pacemaker and servers of a simulated Juju: `slow-disk` lets one write "
        "to its disk twice a second only, until `free-disk`. Three are for nodes of Pacemaker: after "
        "`fail-fencing` the cluster cannot fence the node, until `mend-fencing`, and `kill-daemon` kills one of "
        "its daemons. Six are for members of etcd: `compact` gives up old revisions, `defrag` writes the "
        "member's database anew, `snapshot` reads it as a whole, `move-leader` makes the member lead, and "
        "`fill-quota` raises the alarm of a full quota, until `free-quota`, which first compacts the cluster and "
        "defragments its members. `drop-claims` is a restart storm: it drops every claim and connection and "
        "claims new leases "
        "all at once. On a store it drops every connection, and all watchers come up again at once. In models "
        "that are operated, all units log in again at once."
    )
    member: str | None = Field(
        default=None, description="The name of a lab's member. `drop-claims` has none."
    )
    daemon: str | None = Field(
        default=None, description="The daemon that `kill-daemon` kills, such as pacemaker-controld."
    )
    stage: Annotated[int, Field(ge=1, le=MAX_STAGES)] | None = Field(
        default=None,
        description="The number of a listed stage, from 1. `at` is then counted from the begin of its hold, and has "
        "to be within the hold. `drop-claims` needs it.",
    )
    at: Seconds = Field(
        default=0.0,
        description="When the fault happens, counted from the begin of the run or of the stage's hold.",
    )
    undo_after: Seconds | None = Field(
        default=None,
        description="How long after it the fault is undone: `start` undoes `kill`, `continue` undoes `stop`, "
        "`heal` undoes `partition`, `free-disk` undoes `slow-disk`, `mend-fencing` undoes `fail-fencing`, and "
        "`free-quota` undoes `fill-quota`.",
    )

    @model_validator(mode="after")
    def _member(self) -> Fault:
        if (self.member is None) != (self.do == "drop-claims"):
            raise ValueError(
                f"member: missing: expected a lab member's name for {self.do}"
                if self.member is None
                else f"member: {self.member!r}: expected none for drop-claims"
            )
        if (self.daemon is None) == (self.do == "kill-daemon"):
            raise ValueError(
                f"daemon: {self.daemon!r}: expected "
                + ("the name of a daemon" if self.do == "kill-daemon" else f"none for {self.do}")
            )
        if self.do == "drop-claims" and self.stage is None:
            raise ValueError("stage: missing: expected the number of a listed stage, which drop-claims needs")
        if self.undo_after is not None and self.do not in UNDONE_BY:
            raise ValueError(f"undo_after: expected only with {', '.join(UNDONE_BY)}, not {self.do}")
        return self


class BaseStage(Section, frozen=True):
    """What every stage answers about its load. The answers here are those of a stage that makes nothing which stays."""

    @property
    def size(self) -> int:
        """The number of things, or units, that exist in the stage and stay until they are removed."""
        return sum(self.amounts.values())

    @property
    def amounts(self) -> Mapping[str, int]:
        """The number of each kind that stays. The kind that decides which of two stages has more comes first."""
        return {}

    def on_top(self, before: BaseStage) -> Self:
        """Return a stage that makes what this one does, on top of what the stage before made."""
        return self


class BasePlan(Section, frozen=True):
    """The fields that every plan has, and what it answers about its load. The answers here are the usual ones."""

    if TYPE_CHECKING:  # each plan has this field, in the place that its JSON needs
        stages: Sequence[BaseStage]

    is_held: ClassVar[bool] = False
    """Whether the load is on the target only while it is held: leases, or operations on keys. All other loads consist
    of what is made, and are on the target from the beginning of a stage."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")] = Field(
        description="The plan's name, which the ids of its runs contain: small letters, digits, `.`, `_` and `-`."
    )
    description: str = Field(default="", description="What the plan does, for people.")
    thresholds: list[Threshold] = Field(
        default=[], description="The limits that decide the verdict. A plan with `find` needs at least one."
    )
    faults: list[Fault] = Field(default=[], description="What goes wrong on purpose during the run.")
    workers: Annotated[int, Field(ge=1, le=256, json_schema_extra=in_units("processes"))] | None = Field(
        default=None,
        description="How many processes generate the load. Left out, it is as many as the load needs, at most one for "
        "each core.",
    )
    lab: Path | None = Field(
        default=None, description="The control socket of the lab on whose members faults act."
    )

    @property
    def lab_for(self) -> str:
        """What in the plan, besides its faults, needs a lab, in a few words; empty if nothing does."""
        return ""

    @property
    @abstractmethod
    def load(self) -> str:
        """Which load the plan varies."""

    @property
    def cycles(self) -> bool:
        """Whether each thing is removed as soon as it is made, so that nothing stays in the target."""
        return False

    @property
    def accumulates(self) -> bool:
        """Whether the things of one load stay when the next load makes its own."""
        return False

    @property
    def observe_every(self) -> float:
        """Seconds between two observations of what the load consists of; 0 without any."""
        return 0.0

    @property
    def most_workers(self) -> int | None:
        """The most workers that have anything to do; None for any number."""
        return None

    @property
    def to_remove(self) -> int:
        """The most leases or things that exist at once, and may have to be removed at the end."""
        return 0

    @property
    def loads(self) -> list[tuple[StageKind, float]]:
        """The kind and the load of each listed stage.

        A stage that removes something is of the kind `destroy`. Its load is that of the stage before, because a stage
        that removes everything would have a load of 0.
        """
        found: list[tuple[StageKind, float]] = []
        before = None
        for stage in self.stages:
            destroys = before is not None and self.removes(before, stage)
            found.append(("destroy" if destroys else "ramp", self.load_of(before if destroys else stage)))
            before = stage
        return found

    def removes(self, before: BaseStage, stage: BaseStage) -> bool:
        """Whether a stage removes something: the first of the amounts that change decreases."""
        return not self.cycles and [*stage.amounts.values()] < [*before.amounts.values()]

    @abstractmethod
    def load_of(self, stage: Any, load: str = "") -> float:
        """Return the load of a stage of such a plan, counted in `load` or in what the plan varies."""

    def load_in(self, stage: int, load: str) -> float:
        """Return the load of a part of a plan in a listed stage (from 1). The whole plan varies `load`."""
        return self.load_of(self.stages[stage - 1], load)

    def leases(self, stage: BaseStage) -> tuple[int, float] | None:
        """Return how many leases a stage of such a plan holds, and the seconds between two renewals of each; None
        for a plan without leases."""
        return None

    def goal(self, stage: BaseStage) -> tuple[int, str] | None:
        """Return how many things exist once a stage of such a plan is up, whatever its load is counted in, and the word
        for them; None if only its load defines that."""
        return None

    @abstractmethod
    def part(self, index: int, of: int) -> Self:
        """Return the part of the plan for the unit with this index out of this many, at least two.

        UserError, for every index, when this many units cannot share the plan.
        """

    def begins_after(self, stage: int, index: int) -> float:
        """Return how many seconds after the beginning of a listed stage (from 1) the unit with this index begins.

        These delays spread the operations of all units as evenly as those of one unit; otherwise all would send at the
        same moments.
        """
        return 0.0

    def to_yaml(self) -> str:
        """The plan as YAML that `parse_plan` reads back to an equal plan."""
        document = self.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        # The load comes before thresholds and faults.
        first = ("name", "description", "target", "workload", "stages", "find")
        document = {name: document[name] for name in (*first, *document) if name in document}
        return dump_yaml(document)


def share_of(count: int, index: int, of: int) -> int:
    """One unit's share of `count` things; if they do not divide evenly, the first units have one more."""
    return len(range(index, count, of)) if index < of else 0


def check_operations(
    thresholds: Sequence[Threshold], operations: Sequence[str], field: str = "thresholds"
) -> None:
    for number, threshold in enumerate(thresholds):
        if not threshold.figure and threshold.operation not in operations:
            raise ValueError(
                f"{field}.{number}.operation: {threshold.operation}: expected one of "
                f"{', '.join(operations)}{nearest(threshold.operation, operations)}"
            )
        if threshold.lost_rate is not None and threshold.operation != "extend":
            raise ValueError(
                f"{field}.{number}.lost_rate: {threshold.lost_rate}: expected only with operation extend"
            )


def check_fault_times(faults: Sequence[Fault], holds: Sequence[float]) -> None:
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


def check_things_faults(faults: Sequence[Fault], holds: Sequence[float]) -> None:
    """Check the faults of a plan that makes things; ValueError for one of another workload or outside its stage."""
    for number, fault in enumerate(faults):
        if fault.do == "drop-claims":
            raise ValueError(
                f"faults.{number}.do: drop-claims: expected kill, stop, continue, start, partition or heal, for spawn"
            )
    check_fault_times(faults, holds)
