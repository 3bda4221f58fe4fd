"""One unit's part of a plan that many units run together. Sizes and pace are divided, and add up to the plan's.

Each unit makes things of its own (keys, projects, a model), so that parts never meet in the target. The load is
divided: leases; the groups of a fill, or the things of each group if any stage has fewer groups than units; a model's
applications (or the units of each), machines and relations. Rates are divided evenly.

A limit on simultaneous work (`concurrency`, `batch`) cannot be divided among more units than it counts. Then the first
units have a share, and the others have no load. Only the first unit observes, as often as `observe_every` says.
"""

from __future__ import annotations

from typing import TypeVar

from tippingpoint.plan.base import BasePlan, Threshold
from tippingpoint.plan.grow import GrowPlan, GrowStage
from tippingpoint.plan.read import AnyStage, Plan, SearchPlan

P = TypeVar("P", bound=BasePlan)


def part_of(plan: P, index: int, of: int) -> P:
    """The part of a plan for the unit with this index out of this many units. For one unit it is the plan itself.

    UserError, for every index, when this many units cannot share the plan. A part may have stages without leases, which
    a written plan may not.
    """
    if not 0 <= index < of:
        raise ValueError(f"share {index} of {of}")
    return plan if of == 1 else plan.part(index, of)


def threshold_part(threshold: Threshold, of_load: float) -> Threshold:
    """Return a threshold for a share of the load, from 0 to 1: a limit on throughput is multiplied by it."""
    if threshold.throughput is None or of_load >= 1:
        return threshold
    return threshold.model_copy(update={"throughput": threshold.throughput * of_load})


def probe_part(plan: SearchPlan, load: float, index: int, of: int) -> tuple[AnyStage, float, float]:
    """The stage for an unlisted load, of the unit with this index out of this many; its share of the load; and how many
    seconds after the stage's beginning the unit begins.

    UserError, as for `part_of`.
    """
    if isinstance(plan, GrowPlan) and not load:  # only a model has more than its load
        return _without_load(plan, index, of), 0, 0.0
    whole = plan.only(plan.stage_at(load))
    part = part_of(whole, index, of)
    return part.stages[0], part.load_in(1, plan.load), whole.begins_after(1, index)


def _without_load(plan: GrowPlan, index: int, of: int) -> GrowStage:
    """The stage without a model's load: all units keep their shares of the rest, such as machines."""
    if of == 1:
        return plan.stage_at(0)
    like = plan.stages[-1] if plan.find is None else plan.stage_at(plan.find.limit)
    return part_of(plan.only(like), index, of).stages[0].model_copy(update={plan.load: 0})


def size_of(plan: Plan, part: Plan, stage: int) -> float:
    """The load of a part of this plan in a listed stage (from 1), as the plan's `loads` count it. A stage of the kind
    `destroy` has the load of the stage before."""
    destroys = plan.loads[stage - 1][0] == "destroy"
    return part.load_in(stage - 1 if destroys else stage, plan.load)
