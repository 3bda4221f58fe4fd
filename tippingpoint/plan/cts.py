"""The cts workload in a plan: a cluster's own tests, one after the other, and on how many nodes."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, cast, get_args

from pydantic import Field, model_validator

from tippingpoint.errors import UserError
from tippingpoint.plan.base import MAX_STAGES, BasePlan, BaseStage, check_operations, check_things_faults
from tippingpoint.plan.fields import Seconds, Section, in_units
from tippingpoint.plan.kinds import ByKind, TargetSection
from tippingpoint.util.durations import format_duration

CtsTest = Literal[
    "Flip",
    "Restart",
    "StartOnebyOne",
    "SimulStart",
    "SimulStop",
    "StandbyNodes",
    "Reattach",
    "MaintenanceMode",
    "ResourceRecover",
    "ComponentFail",
    "SplitBrain",
    "NearQuorumPoint",
    "PartialStart",
    "ResyncCIB",
    "Crash",
]
CTS_TESTS: tuple[CtsTest, ...] = get_args(CtsTest)
"""The tests by their names in Pacemaker's own suite (CTS). `Crash` is ours."""
SEED_TESTS: tuple[CtsTest, ...] = CTS_TESTS[:-1]
"""The tests of a plan that names none."""
WITHOUT_LAB: tuple[CtsTest, ...] = ("StandbyNodes", "Reattach", "MaintenanceMode")
"""The tests that need no lab, because they change only the cluster's configuration."""
CTS_STEPS = ("form", "recover", "idle", "update")
"""What is timed in every test, and alongside the tests."""
CTS_OPERATIONS = ("test", *CTS_TESTS, *CTS_STEPS)
"""The operations of the cts workload. `test` is every test, whatever its name."""


class CtsWorkload(Section, frozen=True):
    """Tests of a cluster, one after the other. Each checks what it changed, and leaves a whole cluster."""

    kind: Literal["cts"] = Field(description="The workload: `cts`.")
    tests: Annotated[list[CtsTest], Field(min_length=1, max_length=1000)] = Field(
        default=list(SEED_TESTS),
        description="The tests, by their names in Pacemaker's CTS. `Crash` is ours: a node is killed. "
        f"{', '.join(WITHOUT_LAB)} need no lab; all others do.",
    )
    times: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1, description="How often each test is done in a stage."
    )
    order: Literal["random", "listed"] = Field(
        default="random", description="`random` shuffles the tests of each stage, as CTS does."
    )
    seed: Annotated[int, Field(ge=0, le=2**31)] = Field(
        default=1,
        description="What a random order, and each test's choice of nodes, follow from. The same seed gives the same "
        "ones.",
    )
    idle: Seconds = Field(
        default=120.0,
        description="The most time that a cluster may take to become idle after what a test did: all operations are "
        "over, and every resource is active exactly once.",
    )
    timeout: Seconds = Field(
        default=600.0,
        description="The most time that a test may take in all, and then the same for the repair of the cluster after "
        "a test that failed; at least 1s.",
    )
    update_every: Seconds = Field(
        default=5.0,
        description="How often a ticket in the CIB is updated during the tests, to time what the cluster's users feel; "
        "0s never.",
    )
    sample_every: Seconds = Field(
        default=5.0,
        description="How often the load of each node is asked for, of a lab that tells it; 0s never.",
    )

    @model_validator(mode="after")
    def _times(self) -> CtsWorkload:
        if self.timeout < 1:
            raise ValueError(f"timeout: {format_duration(self.timeout)}: expected at least 1s")
        if not 0 < self.idle <= self.timeout:
            raise ValueError(
                f"idle: {format_duration(self.idle)}: expected more than 0s, and at most timeout "
                f"({format_duration(self.timeout)})"
            )
        return self


class CtsStage(BaseStage, frozen=True):
    """All tests once over, on a cluster of some size."""

    nodes: Annotated[int, Field(ge=1, le=64, strict=True, json_schema_extra=in_units("nodes"))] | None = (
        Field(
            default=None,
            description="How many nodes the cluster has. A lab begins a new cluster of so many. Left out, the cluster "
            "is tested as it is.",
        )
    )
    hold: Seconds = Field(default=0.0, description="How long the idle cluster is observed after the tests.")

    @property
    def over(self) -> float:
        """Seconds over which the tests are spread: 0, because they follow each other at once."""
        return 0.0


class CtsPlan(BasePlan, frozen=True):
    """A plan of the cts workload."""

    target: Annotated[TargetSection, ByKind("cts")] = Field(
        description="The system under test. `kind` says which fields it has."
    )
    workload: CtsWorkload = Field(description="What is done to the target.")
    stages: Annotated[list[CtsStage], Field(min_length=1, max_length=MAX_STAGES)] = Field(
        default=[CtsStage()], description="The sizes of the cluster, in order."
    )

    @property
    def load(self) -> Literal["nodes", "tests"]:
        """Which load the plan varies: nodes if the stages set their number, else tests."""
        return "tests" if self.stages[0].nodes is None else "nodes"

    @property
    def load_unit(self) -> Literal["nodes", "tests"]:
        """The unit of the plan's loads."""
        return self.load

    def load_of(self, stage: CtsStage, load: str = "") -> float:
        """Return a stage's load in the plan's unit."""
        return stage.nodes or len(self.workload.tests) * self.workload.times

    @property
    def most_workers(self) -> int:
        """One: the tests follow each other."""
        return 1

    def part(self, index: int, of: int) -> Self:
        """Raise UserError: the tests follow each other."""
        raise UserError("workload.kind", "cts", f"one unit, as its tests follow each other ({of} units)")

    @property
    def patience(self) -> float:
        """Seconds without progress after which waiting for the tests ends. The beginning of a stage, a test, its
        repair, and killing all nodes after a failed repair may each take the time of a test. One more such time is for
        the looks between them."""
        return 5 * self.workload.timeout

    @property
    def planned(self) -> list[CtsStage]:
        """The listed stages."""
        return self.stages

    @property
    def find(self) -> None:
        """No search: a cluster's tests have no load that could be searched."""
        return None

    @property
    def after(self) -> None:
        """Nothing: tests leave no load that could go down."""
        return None

    @property
    def lab_for(self) -> str:
        """Why the plan needs a lab, in a few words; empty if it needs none."""
        if self.load_unit == "nodes":
            return "stages that name a number of `nodes`"
        needing = [test for test in dict.fromkeys(self.workload.tests) if test not in WITHOUT_LAB]
        return ", ".join(needing)

    @model_validator(mode="before")
    @classmethod
    def _no_search(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and "find" in fields:
            raise ValueError("find: given: expected stages, as tests of a cluster have no load to search")
        return cast("Any", fields)

    @model_validator(mode="after")
    def _whole(self) -> CtsPlan:
        self.target.check(self)
        check_operations(self.thresholds, CTS_OPERATIONS)
        check_things_faults(self.faults, [stage.hold for stage in self.stages])
        for number, stage in enumerate(self.stages):
            if (stage.nodes is None) != (self.stages[0].nodes is None):
                raise ValueError(f"stages.{number}.nodes: {stage.nodes}: expected in every stage, or in none")
        return self
