"""The claim workload in a plan: units contend for leases, and holders renew them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tippingpoint.plan.base import MAX_STAGES, BasePlan, Threshold, check_fault_times, check_operations
from tippingpoint.plan.fields import Seconds, Section, StageKind, in_units
from tippingpoint.plan.kinds import ByKind, TargetSection, default_target, said_default
from tippingpoint.util.durations import format_duration

MAX_LEASES = 10_000_000
CLAIM_OPERATIONS = ("connect", "claim", "extend", "visible")
"""The operations of the claim workload. `connect` is timed only where every unit has its own connection, `visible` only
where members answer reads for themselves: it is a sample of extensions, until all members show them."""

Leases = Annotated[int, Field(ge=1, le=MAX_LEASES, strict=True, json_schema_extra=in_units("leases"))]


class ClaimWorkload(Section, frozen=True):
    """Units contend for leases. The holder of a lease extends it until the run ends."""

    kind: Literal["claim"] = Field(default="claim", description="The workload: `claim`.")
    units: Annotated[int, Field(ge=1, le=1000, json_schema_extra=in_units("units"))] = Field(
        default=3, description="How many units contend for each lease."
    )
    claim_time: Seconds = Field(
        default=60.0, description="How long a claim lasts unless it is extended; at least 1s."
    )
    renew_time: Seconds = Field(
        default=30.0,
        description="How often a holder extends its claim; at least 10ms and less than `claim_time`.",
    )
    timeout: Seconds = Field(
        default=60.0, description="An operation that takes longer counts as a timeout; at least 10ms."
    )

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


class Stage(Section, frozen=True):
    """One step of load: a number of leases, brought up over a time, then held for a time."""

    leases: Leases = Field(description="How many leases are held in all.")
    hold: Seconds = Field(default=30.0, description="How long the load is held once it is up.")
    over: Seconds = Field(
        default=5.0, description="The time over which new claims are spread; 0s claims all at once."
    )


class Find(Section, frozen=True):
    """A search for the load at which the thresholds are met in half of all holds. It ends when the 95 % interval of
    that load is as narrow as `resolution`, or after `within`."""

    start: Leases = Field(default=100, description="The first load.")
    limit: Leases = Field(default=100_000, description="The largest load that is tried; at least `start`.")
    hold: Seconds = Field(
        default=30.0,
        description="How long each load is held at most, once it is up. A hold whose answer is clear ends earlier.",
    )
    over: Seconds = Field(
        default=5.0,
        description="The time over which the claims of a load are spread that comes up from nothing; 0s claims all at "
        "once. A smaller change takes less, but at least one `renew_time`.",
    )
    resolution: Annotated[float, Field(gt=0, le=1, json_schema_extra=in_units("share"))] = Field(
        default=0.2,
        description="The search ends when its 95 % interval is at most this share of the answer wide.",
    )
    within: Seconds | None = Field(
        default=None, description="After this time no further load is tried; without it there is no limit."
    )
    also: list[Threshold] = Field(
        default=[],
        max_length=20,
        description="Thresholds whose limits are reported too. They do not steer the search.",
    )

    @model_validator(mode="after")
    def _order(self) -> Find:
        if self.within is not None and self.within < self.hold:
            raise ValueError(
                f"within: {format_duration(self.within)}: expected at least hold ({format_duration(self.hold)})"
            )
        if self.limit < self.start:
            raise ValueError(f"limit: {self.limit}: expected at least start ({self.start})")
        return self


class ClaimPlan(BasePlan, frozen=True):
    """A plan of the claim workload."""

    target: Annotated[TargetSection, ByKind("claim")] = Field(
        default_factory=default_target,
        json_schema_extra=said_default,
        description="The system under test. `kind` says which fields it has.",
    )
    workload: ClaimWorkload = Field(default=ClaimWorkload(), description="What is done to the target.")
    stages: list[Stage] = Field(
        default=[],
        max_length=MAX_STAGES,
        description="The steps of load, in order. A plan has `stages` or `find`.",
    )
    find: Find | None = Field(
        default=None,
        description="A search for the largest load that meets the thresholds, instead of `stages`.",
    )

    after: Literal["recover"] | None = Field(
        default=None,
        description="`recover`: if the last load breaks a threshold, the load goes down in steps until all thresholds "
        "hold again. Each step lasts as long as the last hold at most. The verdict does not count these steps.",
    )

    @property
    def load_unit(self) -> str:
        """The unit of the plan's loads."""
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
            raise ValueError(
                "thresholds: none: expected at least one, as find looks for the load that misses one"
            )
        if self.after is not None and not self.thresholds:
            raise ValueError("after: recover: expected thresholds, as it waits until they hold again")
        operations = [
            operation
            for operation in CLAIM_OPERATIONS
            if (operation != "connect" or self.target.own_connections)
            and (operation != "visible" or self.target.read_back)
        ]
        check_operations(self.thresholds, operations)
        check_operations(self.find.also if self.find is not None else [], operations, field="find.also")
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
        check_fault_times(self.faults, [stage.hold for stage in self.stages])
        self.target.check(self)
        return self
