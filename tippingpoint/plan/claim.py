"""The claim workload in a plan: units contend for leases, and holders renew them."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tippingpoint.plan.after import After, check_after
from tippingpoint.plan.base import MAX_STAGES, BaseStage, check_fault_times, check_operations, share_of
from tippingpoint.plan.fields import PerSecond, Seconds, Section, as_amount, in_units
from tippingpoint.plan.find import BaseSearchPlan, Find, check_find
from tippingpoint.plan.kinds import ByKind, TargetSection, default_target, said_default
from tippingpoint.util.durations import format_duration

MAX_LEASES = 10_000_000
CLAIM_OPERATIONS = ("connect", "claim", "extend", "release-claim", "visible")
"""The operations of the claim workload.

`connect` is timed only where every unit has its own connection, `release-claim` only where a stage has `claims`, and
`visible` only where members answer reads for themselves: it times a sample of renewals until all members show them.
"""

Leases = Annotated[int, Field(le=MAX_LEASES, strict=True, json_schema_extra=in_units("leases"))]
LEAST_RENEW_TIME = 0.01
"""The minimum seconds between two renewals of a lease."""


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
        if self.renew_time < LEAST_RENEW_TIME:
            raise ValueError(f"renew_time: {format_duration(self.renew_time)}: expected at least 10ms")
        if self.timeout < 0.01:
            raise ValueError(f"timeout: {format_duration(self.timeout)}: expected at least 10ms")
        if self.renew_time >= self.claim_time:
            raise ValueError(
                f"renew_time: {format_duration(self.renew_time)}: expected less than claim_time "
                f"({format_duration(self.claim_time)}), or every lease is lost before it is renewed"
            )
        return self


class Stage(BaseStage, frozen=True):
    """One step of load, brought up over a time, then held for a time. It has at least one of `leases`, `renewals` and
    `claims`."""

    leases: Annotated[Leases, Field(ge=0)] | None = Field(
        default=None,
        description="How many leases are held in all. Without it, `renewals` are made by as many leases as "
        "`workload.renew_time` needs.",
    )
    renewals: Annotated[PerSecond, Field(json_schema_extra=in_units("renewals per second"))] | None = Field(
        default=None,
        description="How many renewals are due per second in all. With `leases`, each of these is renewed more or "
        "less often than `workload.renew_time` says.",
    )
    claims: Annotated[PerSecond, Field(json_schema_extra=in_units("claims per second"))] | None = Field(
        default=None,
        description="Open loop: how many further leases are claimed per second, each by one unit, and released a "
        "moment later. The leases that are held stay so.",
    )
    hold: Seconds = Field(default=30.0, description="How long the load is held once it is up.")
    over: Seconds = Field(
        default=5.0, description="The time over which new claims are spread; 0s claims all at once."
    )

    def held(self, renew_time: float) -> int:
        """Return how many leases are held; `renew_time` is the workload's, in seconds."""
        if self.leases is not None:
            return self.leases
        return ceil(self.renewals * renew_time) if self.renewals is not None else 0

    def renewed_every(self, renew_time: float) -> float:
        """Return the seconds between two renewals of a lease; `renew_time` is the workload's."""
        held = self.held(renew_time)
        return held / self.renewals if self.renewals is not None and held else renew_time


ClaimLoad = Literal["leases", "renewals", "claims", "arrivals"]
_UNITS: dict[ClaimLoad, str] = {
    "leases": "leases",
    "renewals": "renewals/s",
    "claims": "claims/s",
    "arrivals": "arrivals/s",
}


class ClaimFind(Find, frozen=True):
    """A search over leases, or over a rate of renewals, claims or arrivals."""

    rates = frozenset({"renewals", "claims", "arrivals"})

    load: ClaimLoad = Field(
        default="leases",
        description="Which load is searched: `leases` held, `renewals` per second, `claims` per second (leases that "
        "are claimed, and released a moment later), or `arrivals` per second: units that come to claim, until "
        "`find.leases` are held. Each load of arrivals begins from nothing.",
    )
    leases: Annotated[Leases, Field(ge=1)] | None = Field(
        default=None,
        description="How many leases every probe holds, where `load` is a rate. Without it, `renewals` are made by as "
        "many leases as `workload.renew_time` needs, and `claims` come alone; `arrivals` need it.",
    )
    over: Seconds = Field(
        default=5.0,
        description="The time over which the claims of a load are spread that comes up from nothing; 0s claims all at "
        "once. A smaller change takes less, but at least one `renew_time`.",
    )

    @model_validator(mode="after")
    def _leases(self) -> ClaimFind:
        if self.leases is not None and self.load == "leases":
            raise ValueError(f"leases: {self.leases}: expected none, as find looks for the number of leases")
        if self.load == "arrivals":
            if self.leases is None:
                raise ValueError(
                    "leases: missing: expected how many come to be held at each rate of arrivals"
                )
            if self.over != type(self).model_fields["over"].default:
                raise ValueError(
                    f"over: {format_duration(self.over)}: expected none, as find looks for how fast units arrive"
                )
        return self


def claim_operations(target: TargetSection | type[TargetSection]) -> list[str]:
    """Return the operations of the claim workload on such a target."""
    lacking = {
        "connect": not target.own_connections,
        "visible": not target.read_back,
        "release-claim": not target.releases,
    }
    return [name for name in CLAIM_OPERATIONS if not lacking.get(name)]


class ClaimPlan(BaseSearchPlan, frozen=True):
    """A plan of the claim workload."""

    is_held: ClassVar[bool] = True

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
    find: ClaimFind | None = Field(
        default=None,
        description="A search for the largest load that meets the thresholds, instead of `stages`.",
    )

    after: After = None

    @property
    def load(self) -> ClaimLoad:
        """Which load the plan varies: the searched one, or a rate of its stages unless only the leases differ."""
        if self.find is not None:
            return self.find.load
        leases = {stage.leases for stage in self.stages}
        rates: tuple[Literal["claims", "renewals"], ...] = ("claims", "renewals")
        for rate in rates:
            given = {getattr(stage, rate) for stage in self.stages}
            if None not in given and (len(given) > 1 or len(leases) == 1):
                return rate
        return "leases"

    @property
    def load_unit(self) -> str:
        """The unit of the plan's loads."""
        return _UNITS[self.load]

    def load_of(self, stage: Stage, load: str = "") -> float:
        """Return a stage's load, counted in `load` or in what the plan varies."""
        load = load or self.load
        if load == "leases":
            return stage.held(self.workload.renew_time)
        if load == "arrivals":
            units = stage.held(self.workload.renew_time) * self.workload.units
            return round(units / stage.over, 6) if units else 0.0
        return as_amount(getattr(stage, load) or 0)

    def leases(self, stage: BaseStage) -> tuple[int, float]:
        """Return how many leases a stage holds, and the seconds between two renewals of each."""
        assert isinstance(stage, Stage)
        renew_time = self.workload.renew_time
        return stage.held(renew_time), stage.renewed_every(renew_time)

    def goal(self, stage: BaseStage) -> tuple[int, str]:
        """Return how many leases a stage holds, and the word for them."""
        return self.leases(stage)[0], "leases"

    @property
    def to_remove(self) -> int:
        """The most leases that are held."""
        return max(stage.held(self.workload.renew_time) for stage in self.planned)

    def stage_at(self, load: float) -> Stage:
        """Return the stage with this load: a stage of the search, or one otherwise like the last listed stage."""
        find = self.find
        like = self.stages[-1] if find is None else Stage.model_construct(hold=find.hold, over=find.over)
        if not load:
            return like.model_copy(update={"leases": 0, "renewals": None, "claims": None})
        if find is None:
            amount = round(load) if self.load == "leases" else load
            return like.model_copy(update={self.load: amount})
        if find.load == "leases":
            return like.model_copy(update={"leases": round(load)})
        leases = find.leases
        if leases is not None and find.load == "arrivals":
            return like.model_copy(update={"leases": leases, "over": leases * self.workload.units / load})
        if find.load == "renewals" and leases is not None:
            # So few renewals would let this many leases lapse, so there are fewer leases.
            every = (self.workload.renew_time + self.workload.claim_time) / 2
            leases = min(leases, max(1, floor(load * every)))
        return like.model_copy(update={"leases": leases, find.load: load})

    def listed_part(self, index: int, of: int) -> Self:
        """Return the part of a plan with stages for the unit with this index out of this many: its share of leases."""
        return self.model_copy(
            update={"stages": [self._stage_part(stage, index, of) for stage in self.stages]}
        )

    def _stage_part(self, stage: Stage, index: int, of: int) -> Stage:
        held = stage.held(self.workload.renew_time)
        own = share_of(held, index, of)
        # A unit without leases renews none.
        renewals = stage.renewals * own / held if stage.renewals is not None and own else None
        claims = stage.claims / of if stage.claims is not None else None
        return stage.model_copy(update={"leases": own, "renewals": renewals, "claims": claims})

    def begins_after(self, stage: int, index: int) -> float:
        """Return how many seconds after a stage's beginning a unit begins: claims are spread over all units."""
        asked = self.stages[stage - 1]
        held = asked.held(self.workload.renew_time)
        if held:
            return asked.over * min(index, held) / held
        return index / asked.claims if asked.claims is not None else 0.0

    @property
    def patience(self) -> float:
        """Seconds without progress after which waiting for a load ends: the time limit of an operation."""
        return self.workload.timeout

    @property
    def planned(self) -> Sequence[Stage]:
        """The listed stages, or those of a search's first and largest load."""
        if self.find is None:
            return self.stages
        return [self.stage_at(self.find.start), self.stage_at(self.find.limit)]

    @property
    def operations(self) -> list[str]:
        """The operations that thresholds may name."""
        churns = any(stage.claims is not None for stage in self.planned)
        return [name for name in claim_operations(self.target) if name != "release-claim" or churns]

    @model_validator(mode="after")
    def _whole(self) -> ClaimPlan:
        check_find(self.stages, self.find, self.thresholds, self.faults)
        check_operations(self.thresholds, self.operations)
        check_operations(self.find.also if self.find is not None else [], self.operations, field="find.also")
        check_after(self.after, self.thresholds, self.operations, "")
        if self.after is not None and self.load == "arrivals":
            raise ValueError(
                "after: recover: expected a load that can go down; arrivals are over once all are there"
            )
        self._check_stages()
        renews = any(threshold.operation == "extend" for threshold in self.thresholds)
        if self.find is not None and renews and self.find.hold < self.workload.renew_time:
            raise ValueError(
                f"find.hold: {format_duration(self.find.hold)}: expected at least workload.renew_time "
                f"({format_duration(self.workload.renew_time)}), or no renewal is measured"
            )
        check_fault_times(self.faults, [stage.hold for stage in self.stages])
        self.target.check(self)
        return self

    def _check_stages(self) -> None:
        """Check that each stage has a load, the same kinds of load as the others, and leases that last."""
        for number, stage in enumerate(self.stages):
            place = f"stages.{number}"
            if stage.claims is None and not stage.held(self.workload.renew_time):
                found = "missing" if stage.leases is None else stage.leases
                raise ValueError(f"{place}.leases: {found}: expected at least 1, or renewals or claims")
            for rate in ("renewals", "claims"):
                if (getattr(stage, rate) is None) != (getattr(self.stages[0], rate) is None):
                    raise ValueError(
                        f"{place}.{rate}: {getattr(stage, rate)}: expected in every stage, or in none"
                    )
            self._check_renewals(f"{place}.renewals", stage)
        if self.find is not None:
            self._check_renewals("find.start", self.stage_at(self.find.start))
            self._check_renewals("find.limit", self.stage_at(self.find.limit))
        if self.target.releases:
            return
        for number, stage in enumerate(self.planned):
            if stage.claims is not None:
                place = f"stages.{number}.claims" if self.find is None else "find.load"
                value = as_amount(stage.claims) if self.find is None else "claims"
                raise ValueError(
                    f"{place}: {value}: expected leases or renewals, as {self.target.kind} has no call that releases "
                    "a lease"
                )

    def _check_renewals(self, field: str, stage: Stage) -> None:
        if stage.renewals is None:
            return
        held, claim_time = stage.held(self.workload.renew_time), self.workload.claim_time
        if held > MAX_LEASES:
            raise ValueError(
                f"{field}: {as_amount(stage.renewals)}: expected at most {MAX_LEASES / self.workload.renew_time:g}, as "
                f"no more than {MAX_LEASES} leases are held"
            )
        least, most = held / claim_time, held / LEAST_RENEW_TIME
        if not held or stage.renewals > most:
            raise ValueError(
                f"{field}: {as_amount(stage.renewals)}: expected at most {most:g}, as each of {held} leases is "
                f"extended every {format_duration(LEAST_RENEW_TIME)} at most"
            )
        if stage.renewals <= least:
            raise ValueError(
                f"{field}: {as_amount(stage.renewals)}: expected more than {least:g}, or each of {held} leases is lost "
                f"before it is extended: workload.claim_time is {format_duration(claim_time)}"
            )
