"""The part of a plan that this runner plays: all of it, or a unit's share in a run of many units."""

from __future__ import annotations

from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.read import AnyStage, Plan
from tippingpoint.plan.share import part_of, probe_part, size_of


class PlanShare:
    """A plan and our part of it. Our share (its index, of how many) may change between stages."""

    def __init__(self, whole: Plan, share: tuple[int, int]) -> None:
        self.whole = whole
        self.share = share
        self.plan = whole
        """Our part of the plan: all of it until `take`."""
        self.of_load = 1.0
        """Our share of the load in the present stage, from 0 to 1."""

    def take(self, share: tuple[int, int]) -> None:
        """Play this share from now on; raises UserError if the plan cannot be shared among this many."""
        self.plan = part_of(self.whole, *share)
        self.share = share

    def size(self, stage: int) -> float:
        """Return our load in a listed stage (from 1)."""
        return size_of(self.whole, self.plan, stage)

    def spec(self, stage: int) -> AnyStage:
        """Return our part of a listed stage (from 1)."""
        return self.plan.stages[stage - 1]

    def probe(self, load: float) -> tuple[AnyStage, float, float]:
        """Return our part of the stage in which a search tries a load: with our load, and how many seconds after the
        stage begins our part begins."""
        assert not isinstance(self.whole, CtsPlan)
        return probe_part(self.whole, load, *self.share)

    def begins_after(self, stage: int) -> float:
        """Return how many seconds after a stage begins our part of it begins."""
        return self.whole.begins_after(stage, self.share[0])
