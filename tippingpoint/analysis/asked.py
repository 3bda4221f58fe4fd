"""What the plan asked for in a stage: of the whole run, or of one unit's share of it."""

from __future__ import annotations

from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.read import AnyStage, Plan
from tippingpoint.plan.share import part_of
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult


def asked_of(run: RunData, plan: Plan | None, stage: StageResult) -> AnyStage | None:
    """Return the plan's stage that this stage executed; None without a plan, or if the plan has no such stage.

    The stages of a search, and lower loads after the last stage, are derived from their load. The directory of a single
    unit has that unit's share of a listed stage.
    """
    if plan is None:
        return None
    if not isinstance(plan, CtsPlan) and (stage.kind == "recover" or plan.find is not None):
        return plan.stage_at(stage.size)
    # A storm is a separate stage in the journals, but part of a stage in the plan.
    before = sum(each.kind not in ("storm", "recover") for each in run.stages if each.number <= stage.number)
    place = run.manifest.first_stage - 1 + before - 1
    if not 0 <= place < len(plan.stages):
        return None
    share = _share_in(run, stage)
    return (plan if share is None else part_of(plan, *share)).stages[place]


def _share_in(run: RunData, stage: StageResult) -> tuple[int, int] | None:
    """Return the unit's share when a stage began; None if the directory has the whole run."""
    taken = [
        (int(event["index"]), int(event["of"]))
        for event in run.events
        if event["event"] == "share" and float(event["t"]) <= stage.begin
    ]
    return taken[-1] if taken else run.manifest.share


def leases_of(run: RunData, plan: Plan | None, stage: StageResult) -> tuple[float, float] | None:
    """Return how many leases a stage of the claim workload holds, and the seconds between two renewals of each."""
    asked = asked_of(run, plan, stage)
    return plan.leases(asked) if plan is not None and asked is not None else None
