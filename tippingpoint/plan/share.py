"""One unit's part of a plan that many units run together. Sizes and pace are divided, and add up to the plan's.

Each unit makes things of its own (keys, projects, a model), so that parts never meet in the target. The load is
divided: leases; the groups of a fill, or the things of each group where any stage has fewer groups than units; a
model's applications (or the units of each), machines and relations. Rates are divided evenly.

A limit on simultaneous work (`concurrency`, `batch`) cannot be divided among more units than it counts. The first units
have a share then, and the others have no load. The first unit alone observes, as often as `observe_every` says.
"""

from __future__ import annotations

from typing import TypeVar

from tippingpoint.errors import UserError
from tippingpoint.plan.base import Threshold
from tippingpoint.plan.claim import ClaimPlan, Stage
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.fields import as_amount
from tippingpoint.plan.grow import GrowPlan, GrowStage, GrowWorkload
from tippingpoint.plan.read import Plan, SearchPlan
from tippingpoint.plan.spawn import SpawnPlan, SpawnStage, SpawnWorkload, paces_of

W = TypeVar("W", SpawnWorkload, GrowWorkload)
AnyStage = Stage | SpawnStage | GrowStage


def part_of(plan: Plan, index: int, of: int) -> Plan:
    """The part of a plan for the unit with this index, of this many units. For one unit it is the plan itself.

    UserError, for every index, when this many units cannot share the plan. A part may have stages without leases, which
    a written plan may not.
    """
    if not 0 <= index < of:
        raise ValueError(f"share {index} of {of}")
    if of == 1:
        return plan
    if isinstance(plan, CtsPlan):
        raise UserError("workload.kind", "cts", f"one unit, as its tests follow each other ({of} units)")
    if plan.find is not None:
        return _search_part(plan, index, of)
    if isinstance(plan, ClaimPlan):
        return plan.model_copy(
            update={"stages": [_claim_stage(plan, stage, index, of) for stage in plan.stages]}
        )
    if isinstance(plan, SpawnPlan):
        return _fill_part(plan, index, of)
    return _model_part(plan, index, of)


def threshold_part(threshold: Threshold, of_load: float) -> Threshold:
    """Return a threshold for a share of the load, from 0 to 1: a throughput is limited by that share of its limit."""
    if threshold.throughput is None or of_load >= 1:
        return threshold
    return threshold.model_copy(update={"throughput": threshold.throughput * of_load})


def stage_part(plan: SearchPlan, stage: AnyStage, index: int, of: int) -> SearchPlan:
    """The part of a plan that has only this stage, which may be a search's, for the unit with this index, of this many.

    UserError, as for `part_of`.
    """
    whole = plan.model_copy(update={"stages": [stage], "find": None})
    part = part_of(whole, index, of)
    assert not isinstance(part, CtsPlan)
    return part


def probe_part(plan: SearchPlan, load: float, index: int, of: int) -> tuple[AnyStage, float, float]:
    """The stage of a load that is in no list, as the unit with this index has it, of this many: with its share of the
    load, and the seconds after the stage's begin at which the unit begins.

    UserError, as for `part_of`.
    """
    if isinstance(plan, GrowPlan) and not load:
        return _without_load(plan, index, of), 0, 0.0
    whole = plan.stage_at(load)
    part = stage_part(plan, whole, index, of)
    asked = part.stages[0]
    size = _load_of(plan, asked)
    listed = plan.model_copy(update={"stages": [whole], "find": None})
    return asked, size, begins_after(listed, 1, index, of)


def _without_load(plan: GrowPlan, index: int, of: int) -> GrowStage:
    """The stage without a model's load: all units keep their shares of the rest, such as machines."""
    if of == 1:
        return plan.stage_at(0)
    like = plan.stages[-1] if plan.find is None else plan.stage_at(plan.find.limit)
    part = stage_part(plan, like, index, of)
    assert isinstance(part, GrowPlan)
    return part.stages[0].model_copy(update={plan.load: 0})


def _load_of(plan: SearchPlan, asked: AnyStage) -> float:
    if isinstance(plan, SpawnPlan):
        assert isinstance(asked, SpawnStage)
        return plan.load_of(asked) if asked.size else 0
    if isinstance(plan, GrowPlan):
        assert isinstance(asked, GrowStage)
        return plan.load_of(asked)
    assert isinstance(asked, Stage)
    return plan.load_of(asked)


def size_of(plan: Plan, part: Plan, stage: int) -> float:
    """The load of a part of this plan in a listed stage (from 1), as the plan's `loads` count it. A stage that destroys
    has the load of the stage before."""
    destroys = plan.loads[stage - 1][0] == "destroy"
    place = stage - 2 if destroys else stage - 1
    if isinstance(part, CtsPlan):
        return part.loads[stage - 1][1]
    if isinstance(part, ClaimPlan):
        assert isinstance(plan, ClaimPlan)
        return plan.load_of(part.stages[place])
    if isinstance(part, SpawnPlan):
        assert isinstance(plan, SpawnPlan)
        if plan.load_unit == "members":
            return part.stages[stage - 1].members or 0
        fill = part.stages[place]
        if plan.load in ("rate", "concurrency", "batch"):
            return as_amount(paces_of(part.workload.at(fill))[plan.load]) if fill.size else 0
        return fill.size
    assert isinstance(plan, GrowPlan)
    return plan.load_of(part.stages[place])


def begins_after(plan: Plan, stage: int, index: int, of: int) -> float:
    """Seconds after a stage's begin at which a unit begins. They spread the claims of all units (or their turns, in an
    open loop) as evenly as those of one unit; otherwise all units would send at the same moments."""
    if isinstance(plan, ClaimPlan):
        asked = plan.stages[stage - 1]
        held = asked.held(plan.workload.renew_time)
        if held:
            return asked.over * min(index, held) / held
        return index / asked.claims if asked.claims is not None else 0.0
    if isinstance(plan, SpawnPlan):
        rate = plan.workload.at(plan.stages[stage - 1]).rate
        return index / rate if rate is not None else 0.0
    return 0.0


def _search_part(plan: SearchPlan, index: int, of: int) -> SearchPlan:
    """A search's plan at the pace of one unit, with its share of the first and of the largest load."""
    assert plan.find is not None
    for stage in (plan.stage_at(plan.find.start), plan.stage_at(plan.find.limit)):
        try:
            part = stage_part(plan, stage, index, of)
        except UserError as refused:
            raise UserError(
                refused.field.replace("stages.0", "find"), refused.value, refused.accepted
            ) from None
    find = plan.find
    loads: dict[str, float] = {
        name: max(1, _share(round(value), index, of)) if find.whole else value / of
        for name, value in (("start", find.start), ("limit", find.limit))
    }
    return plan.model_copy(update={"find": find.model_copy(update=loads), "workload": part.workload})


def _claim_stage(plan: ClaimPlan, stage: Stage, index: int, of: int) -> Stage:
    held = stage.held(plan.workload.renew_time)
    own = _share(held, index, of)
    # A unit without leases renews none.
    renewals = stage.renewals * own / held if stage.renewals is not None and own else None
    claims = stage.claims / of if stage.claims is not None else None
    return stage.model_copy(update={"leases": own, "renewals": renewals, "claims": claims})


def _share(count: int, index: int, of: int) -> int:
    """One unit's number of `count` things; the first units have one more where they do not divide evenly."""
    return len(range(index, count, of)) if index < of else 0


def _fill_part(plan: SpawnPlan, index: int, of: int) -> SpawnPlan:
    sharing = min(of, plan.shared_by or of)
    by_group = all(stage.groups >= sharing for stage in plan.stages if stage.size)
    changes = [
        {"groups": _share(stage.groups, index, sharing)}
        if by_group or index >= sharing
        else {"instances": _share(stage.instances, index, sharing)}
        for stage in plan.stages
    ]
    return plan.model_copy(
        update={
            "workload": _paced(plan.workload, index, sharing),
            "stages": [
                stage.model_copy(update=change | _own_pace(stage, index, sharing))
                for stage, change in zip(plan.stages, changes, strict=True)
            ],
        }
    )


def _model_part(plan: GrowPlan, index: int, of: int) -> GrowPlan:
    sharing = min(of, plan.workload.concurrency or of)
    in_units = any(stage.size for stage in plan.stages)
    by_application = not in_units or all(
        stage.applications >= sharing for stage in plan.stages if stage.applications
    )
    most = max(
        stage.units if in_units and not by_application else stage.amounts[plan.counted]
        for stage in plan.stages
    )
    # A unit without any load has no share of the rest either, but keeps it when the load is taken away.
    if most:
        sharing = min(sharing, most)
    for number, stage in enumerate(plan.stages):
        _check_fit(number, stage, sharing, by_application)
    stages = [_model_stage(stage, index, sharing, by_application) for stage in plan.stages]
    return plan.model_copy(update={"workload": _paced(plan.workload, index, sharing), "stages": stages})


def _model_stage(stage: GrowStage, index: int, of: int, by_application: bool) -> GrowStage:
    applications, units = stage.applications, stage.units
    if by_application or index >= of:
        applications = _share(applications, index, of)
    else:
        units = _share(units, index, of)
    return stage.model_copy(
        update={
            "machines": _share(stage.machines, index, of),
            "applications": applications,
            "units": units,
            "relations": _share(stage.relations, index, of),
        }
    )


def _check_fit(number: int, stage: GrowStage, of: int, by_application: bool) -> None:
    """Refuse a stage of which a part would have units and no machine, or more relations than pairs."""
    having = (of if by_application else min(of, stage.units)) if stage.size else 0
    if stage.machines < having:
        raise UserError(
            f"stages.{number}.machines",
            stage.machines,
            f"at least {having}, one for each unit of the generator that has a share (each has a model of its own)",
        )
    # The parts with the most relations, and the first of those with the fewest applications.
    for index in {0, stage.applications % of if by_application else 0}:
        part = _model_stage(stage, index, of, by_application)
        most = part.applications * (part.applications - 1) // 2
        if part.relations > most:
            raise UserError(
                f"stages.{number}.relations",
                stage.relations,
                f"fewer, or fewer units of the generator: {of} have a model of their own each, with "
                f"{part.applications} applications, which have at most {most} relations",
            )


def _paced(workload: W, index: int, of: int) -> W:
    """A workload at the pace of one unit of this many; a unit without a share keeps a pace that it does not use."""
    changes: dict[str, float] = {}
    if isinstance(workload, SpawnWorkload):
        changes |= _own_pace(workload, index, of)
    elif workload.concurrency is not None:  # a model's batch is how large a call is
        changes["concurrency"] = max(1, _share(workload.concurrency, index, of))
    if index:
        changes["observe_every"] = 0.0
    return workload.model_copy(update=changes)


def _own_pace(paced: SpawnWorkload | SpawnStage, index: int, of: int) -> dict[str, float]:
    """What a unit has of the pace of a workload or a stage."""
    return {
        name: value / of if name == "rate" else max(1, _share(round(value), index, of))
        for name, value in paces_of(paced).items()
    }
