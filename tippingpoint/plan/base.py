"""What every plan has: a name, what would be good enough, and what goes wrong on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, model_validator

from tippingpoint.plan.explain import nearest
from tippingpoint.plan.fields import Seconds, Section
from tippingpoint.util.durations import format_duration

MAX_STAGES = 1000

Rate = Annotated[float, Field(ge=0, le=1)]


class Threshold(Section, frozen=True):
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


class Fault(Section, frozen=True):
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


class BasePlan(Section, frozen=True):
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


def check_operations(thresholds: Sequence[Threshold], operations: Sequence[str]) -> None:
    for number, threshold in enumerate(thresholds):
        if threshold.operation not in operations:
            raise ValueError(
                f"thresholds.{number}.operation: {threshold.operation}: expected one of "
                f"{', '.join(operations)}{nearest(threshold.operation, operations)}"
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
    """ValueError where faults are not those of a plan that makes things, or are at no time of its stages."""
    for number, fault in enumerate(faults):
        if fault.do == "drop-claims":
            raise ValueError(
                f"faults.{number}.do: drop-claims: expected kill, stop, continue, start, partition or heal, for spawn"
            )
    check_fault_times(faults, holds)
