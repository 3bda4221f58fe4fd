"""What our share of a load shows while it is held, in a search; on one machine our share is the whole load."""

from __future__ import annotations

from tippingpoint.analysis.search.early_end import EarlyEnds, Tally
from tippingpoint.analysis.search.probes import Margin
from tippingpoint.analysis.search.stage_margins import judged, margin_names, stage_margins, tallies
from tippingpoint.conduct.search_messages import HOLDS
from tippingpoint.plan.find import Find
from tippingpoint.plan.read import SearchPlan
from tippingpoint.plan.share import threshold_part
from tippingpoint.play.live_stage import LiveStage


class EarlyEndVote:
    """What this unit has reported about one hold.

    It reports that its share is clear, and withdraws that at most once if the share is no longer clear. After that it
    reports nothing. So a hold costs each unit at most two words.
    """

    def __init__(self) -> None:
        self._said = ""
        self.is_final = False
        """Whether nothing more will be reported about this hold."""

    def news(self, shown: str) -> str | None:
        """Return what to report, now that the share shows this; None for nothing new."""
        if shown == self._said or self.is_final:
            return None
        self.is_final = bool(self._said)
        self._said = "" if self._said else shown
        return self._said


class ShareSoFar:
    """Judges our share of each load while it is held: a hold may end early when the answer is clear."""

    def __init__(self, plan: SearchPlan, find: Find) -> None:
        self._plan = plan
        self._names = frozenset(margin_names(plan.thresholds))
        self._figures = frozenset(margin_names([each for each in plan.thresholds if each.figure]))
        self._early = EarlyEnds(find.hold)

    def shows(self, load: float, of_load: float, so_far: LiveStage, hold: float | None = None) -> str:
        """Return what is clear about a load, of which we have the share `of_load` (from 0 to 1).

        It is HOLDS, the first threshold that is clearly missed, or an empty text. A share in which a threshold measured
        nothing shows nothing: the other units' shares may miss that threshold. Nor does a whole load hold before its
        figures are known. `hold` is how many seconds it is held, if not as long as every load. May be called on another
        thread than the one that delivers ticks.
        """
        if of_load <= 0:
            return ""
        margins, counted = self._shown(of_load, so_far)
        for margin in margins:
            if self._early.clear(load, [margin], counted, so_far.held_for, hold) is False:
                return margin.name
        known = {margin.name for margin in margins}
        whole = known >= (self._names if of_load < 1 else self._figures)
        return HOLDS if whole and self._early.clear(load, margins, counted, so_far.held_for, hold) else ""

    def remember(self, load: float, of_load: float, so_far: LiveStage) -> None:
        """Take a finished hold into account: early ends of later ones depend on it. May be called on any thread."""
        if of_load > 0:
            self._early.remember(load, *self._shown(of_load, so_far), so_far.held_for)

    def _shown(self, of_load: float, so_far: LiveStage) -> tuple[list[Margin], list[Tally]]:
        so_far.read()
        stage = judged(so_far.stage, plan=self._plan)
        shares = [threshold_part(threshold, of_load) for threshold in self._plan.thresholds]
        return (
            stage_margins(stage, shares, seconds=so_far.parts),
            tallies(stage, shares, so_far.parts),
        )
