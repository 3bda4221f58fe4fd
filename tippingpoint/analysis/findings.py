"""Examines each stage of a run once, before thresholds are checked.

The verdict, the tipping point, costs, searches and comparisons all use these findings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from tippingpoint.analysis.foreign_work import ForeignWork, could_explain
from tippingpoint.analysis.generator_health import OwnLosses, own_losses, stage_saturated
from tippingpoint.analysis.held_loads import (
    MOST,
    behind,
    cut_short,
    failed_to_hold,
    late_by_us,
    load_missing,
    not_made,
)
from tippingpoint.analysis.leaders import leader_changed
from tippingpoint.analysis.violations import violated
from tippingpoint.errors import UserError
from tippingpoint.plan.read import Plan, recorded_plan
from tippingpoint.rundir.damage import Damage
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.rundir.standstills import Stall


@dataclass(frozen=True)
class StageFindings:
    """The findings on one stage. Texts are empty if there is nothing to say."""

    stage: StageResult
    strained: str | None
    """Why the generator itself was the bottleneck, in one line; None if it was not."""
    own_losses: OwnLosses | None
    """The leases whose loss the generator itself may have caused."""
    stalls: list[Stall]
    """When workers stalled."""
    damage: list[Damage]
    """The missing parts of the stage's journals."""
    load_missing: str
    """Whose share of the load was missing before the stage's end."""
    not_made: str
    """How many of its things were given up, with the reason, or were missing."""
    cut_short: str
    """Why the stage cannot show whether its load holds."""
    late: str
    """The evidence that most of the load was answered too late."""
    leader_changed: str
    """The evidence that its leader changed without a fault, if that is a cliff."""
    violated: str
    """The evidence that a store violated its guarantees."""
    failed_to_hold: str
    """Why the target did not hold the load for the whole stage."""
    late_by_us: str
    """Why the generator itself may be the cause of that."""
    foreign: ForeignWork | None
    """How much of the target's processors other programs took, if that could explain a miss; None if it could not, or
    if it is unknown."""

    @property
    def not_its_doing(self) -> str:
        """Why something other than the target may be the reason that the load was not held; empty if nothing is.

        Other programs can make the target late. They do not make it answer with errors or change its leader.
        """
        if self.violated:
            return ""
        return self.late_by_us or (self.foreign.reason if self.foreign is not None and self.late else "")

    @property
    def why_not_held(self) -> str:
        """Why the load was not held; empty if it was."""
        return self.cut_short or self.failed_to_hold


@dataclass(frozen=True)
class Findings:
    """The findings on all stages of a run."""

    run: RunData
    plan: Plan | None
    """The run's plan; None for an imported run."""
    stages: list[StageFindings]
    """The findings on each stage, in the run's order, without those of `recovering`."""
    loads_held: list[float]
    """The sizes of load that were held, ascending, without storms and removals.

    A size that was tried several times counts as held if most of the tries that were not cut short were held.
    """

    recovering: list[StageFindings]
    """The findings on the lower loads after the last one (`after: recover`), which the verdict does not count."""

    def of(self, number: int) -> StageFindings:
        """Return the findings on the stage with that number. Raises KeyError if there is none."""
        return {found.stage.number: found for found in self.stages}[number]


def examine(run: RunData) -> Findings:
    """Examine every stage of a run.

    Raises UserError if this version cannot read the plan in its manifest.
    """
    plan = plan_of(run)
    stalls = run.stalls
    found = [_examined(run, plan, stalls, stage) for stage in run.stages]
    stages = [each for each in found if each.stage.kind != "recover"]
    recovering = [each for each in found if each.stage.kind == "recover"]
    return Findings(run, plan, stages, _loads_held(stages), recovering)


def examine_stage(run: RunData, plan: Plan | None, stage: StageResult) -> StageFindings:
    """Examine one stage of a run, which may still be running."""
    return _examined(run, plan, run.stalls, stage)


def _examined(run: RunData, plan: Plan | None, stalls: Sequence[Stall], stage: StageResult) -> StageFindings:
    stood_still = [stall for stall in stalls if stage.overlaps(stall.begin, stall.end)]
    damage = [found for found in run.damage if stage.overlaps(found.begin, found.end)]
    strained = stage_saturated(stage)
    own = own_losses(run, plan, stalls, stage)
    missing = load_missing(run, stage)
    unmade = not_made(run, plan, stage)
    late = behind(run, plan, stage, stood_still)
    changed = leader_changed(run, stage)
    wrong = violated(run, stage)
    return StageFindings(
        stage=stage,
        strained=strained,
        own_losses=own,
        stalls=stood_still,
        damage=damage,
        load_missing=missing,
        not_made=unmade,
        cut_short=cut_short(run, plan, stage, missing, unmade, damage),
        late=late,
        leader_changed=changed,
        violated=wrong,
        failed_to_hold=failed_to_hold(run, plan, stage, stood_still, late, changed, unmade, wrong),
        late_by_us=late_by_us(stage, own, strained, late),
        foreign=could_explain(run, stage),
    )


def _loads_held(stages: Iterable[StageFindings]) -> list[float]:
    tries: dict[float, list[bool]] = {}
    for found in stages:
        if found.stage.is_step and not found.cut_short:
            tries.setdefault(found.stage.size, []).append(not found.failed_to_hold)
    return sorted(size for size, held in tries.items() if sum(held) > MOST * len(held))


def plan_of(run: RunData) -> Plan | None:
    """Return a run's plan; None for an imported run. Raises UserError if this version cannot read it."""
    try:
        return recorded_plan(run.manifest.plan) if run.manifest.plan is not None else None
    except ValidationError:
        raise UserError("run", str(run.directory), "a manifest with a plan that this version reads") from None
