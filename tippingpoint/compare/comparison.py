"""What a comparison of releases found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.compare.baselines import Baseline
from tippingpoint.compare.costs import CostComparison
from tippingpoint.compare.operation_costs import OperationCosts
from tippingpoint.compare.pair import Against
from tippingpoint.compare.published import PublishedRow
from tippingpoint.compare.reach import Judgement, Reach
from tippingpoint.compare.recovery import Back
from tippingpoint.compare.repeats import Change, Release
from tippingpoint.compare.resources import ResourceComparison
from tippingpoint.plan.fields import StageKind
from tippingpoint.rundir.results import RunData

ALL_CALLS, TYPICAL = "all calls", "typical time"
"""Operation and measure of the figure of all calls; see typical.py."""
SERVED = "most a second"
"""The measure of the served load; see served.py."""
Outcome = Literal["worse", "better", "withheld", "none", "single", "apart", "published"]


@dataclass(frozen=True)
class Row:
    """One figure of one operation at one stage size, in every release; the first one is the baseline."""

    operation: str
    size: float
    storm: bool
    """Whether the stages are storms, which are only compared with storms."""
    measure: str
    """p50 p90 p95 p99 (microseconds), error_rate or lost_rate (shares in 0..1)."""
    values: list[float | None]
    """One value per release; None if a run did not measure it.

    It is the mean of its runs, geometric for percentiles; a control's runs are the first release's too.
    """
    counts: list[int]
    """The number of operations in each value."""
    against: list[Against]
    """One comparison per release after the first."""
    destroy: bool = False
    """Whether the stages are removals, which are only compared with removals."""


@dataclass(frozen=True)
class Overall:
    """One figure of one operation over all loads that all runs sustained: the mean of its changes.

    The typical time of all calls (ALL_CALLS, TYPICAL) covers these loads too. The most successes per second (SERVED)
    may be at any load of the ramp; higher is better.
    """

    operation: str
    kind: StageKind
    """ramp, storm or destroy"""
    measure: str
    against: list[Against]
    """One comparison per release after the first."""


@dataclass(frozen=True)
class Recovery:
    """How long each release took to recover from one kind of fault."""

    what: str
    """The kind of fault, such as kill; if a run has several, the longest recovery counts."""
    values: list[list[Back | None]]
    """For each release, one value per run; None if a run does not show it. The first release includes the control."""
    against: list[Against]
    """One comparison per release after the first; `change` is the ratio of the times."""


@dataclass(frozen=True)
class OperationCost:
    """What one operation costs in every release, and how that compares with the first release."""

    costs: OperationCosts
    against: list[Against]
    """One comparison per release after the first; `change` is a ratio."""


@dataclass(frozen=True)
class Comparison:
    """Releases compared with the first of them, and published results compared with the first of those."""

    releases: list[Release]
    control: Release | None
    """Runs of the first release that stand in for another one, to show what a comparison finds if nothing differs."""
    beside: list[Baseline]
    beside_names: list[str]
    """One name per published result; if it has a run, that run's name."""
    load_unit: str
    """The unit of loads; empty without runs."""
    tolerance: float
    main: str
    """The workload's main operation: claim, launch, boot_server, add-unit; empty if none was measured."""
    rows: list[Row]
    overall: list[Overall]
    """Figures over all loads; empty with one run each, because these cannot be judged."""
    recovery: list[Recovery]
    """How long releases took to recover from faults that the first and another one had; empty without such faults."""
    tips: list[Judgement]
    """For each release after the first, whether it tips at a lower load than the first (worse) or a higher one."""
    tip_changes: list[Change | None]
    """For each release after the first, the ratio of the loads at which it tips; None without repeats, or unknown."""
    outcome: Outcome
    """The outcome of the worst release: by its tipping point, or by figures if that is not known to differ.

    none: repeats explain every difference. withheld: the control shows the difference too, or other programs may have
    caused it. single: one run each, and repeats could explain every difference. apart: no load was sustained by both.
    published: there are fewer than two releases.
    """
    worse: list[str]
    better: list[str]
    """One line for a tipping point and for each figure that changed significantly, the largest change first."""
    withheld: list[str]
    """One line for each change that is not judged because the control shows as much."""
    not_comparable: list[str]
    """Stage sizes, storms and operations that only some releases have."""
    differs: list[str]
    """The settings in which the runs' plans differ, if all have plans."""
    resources: list[ResourceComparison]
    costs: list[CostComparison]
    operation_costs: list[OperationCost]
    """What one operation cost the targets, if all runs know it; the CPU of the whole target first."""
    published: list[PublishedRow]
    """Figures that several results in `beside` give."""
    sentence: str
    """The tipping points and costs in words."""
    control_words: str
    """What the first release's control shows; empty without a control."""
    changes: str
    """How many figures changed, and which ones changed most."""

    @property
    def runs(self) -> list[RunData]:
        """The first run of each release."""
        return [release.runs[0] for release in self.releases]

    @property
    def names(self) -> list[str]:
        """One name per release, as short as possible: the version if the versions differ."""
        return [release.name for release in self.releases]

    @property
    def analyses(self) -> list[Analysis]:
        """The analysis of each release's first run."""
        return [release.analyses[0] for release in self.releases]

    @property
    def reaches(self) -> list[Reach]:
        """How far each release got."""
        return [release.reach for release in self.releases]

    @property
    def repeated(self) -> bool:
        """Whether a release has several runs, which show how much runs scatter."""
        return any(len(release.runs) > 1 for release in self.releases) or self.control is not None

    @property
    def regressed(self) -> bool:
        """Whether a release tips at a lower load or, if that is not known to differ, has a worse figure.

        The command then ends with exit code 1.
        """
        return self.outcome == "worse"
