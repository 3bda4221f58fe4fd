"""The claim workload in a plan: leases that are claimed, renewed and fought over."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tippingpoint.plan.base import MAX_STAGES, BasePlan, check_fault_times, check_operations
from tippingpoint.plan.fields import Seconds, Section, StageKind
from tippingpoint.plan.kinds import ByKind, TargetSection, default_target, said_default
from tippingpoint.util.durations import format_duration

MAX_LEASES = 10_000_000
CLAIM_OPERATIONS = ("connect", "claim", "extend")
"""What the claim workload times; `connect` only where every unit has a connection of its own."""

Leases = Annotated[int, Field(ge=1, le=MAX_LEASES, strict=True)]


class ClaimWorkload(Section, frozen=True):
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


class Stage(Section, frozen=True):
    """One step of load: this many leases in all, brought up over a time, then held for a time."""

    leases: Leases
    hold: Seconds = Field(default=30.0, description="how long the load is held once it is up")
    over: Seconds = Field(default=5.0, description="new claims are spread over this; 0s claims all at once")


class Find(Section, frozen=True):
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


class ClaimPlan(BasePlan, frozen=True):
    """A plan of the claim workload."""

    target: Annotated[TargetSection, ByKind("claim")] = Field(
        default_factory=default_target, json_schema_extra=said_default
    )
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
        check_operations(
            self.thresholds,
            CLAIM_OPERATIONS
            if self.target.own_connections
            else [op for op in CLAIM_OPERATIONS if op != "connect"],
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
        check_fault_times(self.faults, [stage.hold for stage in self.stages])
        self.target.check(self)
        return self
