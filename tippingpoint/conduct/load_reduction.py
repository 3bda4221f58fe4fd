"""Chooses what follows a broken load: the same again, lower ones, none, or the end.

The choice depends only on the loads tried. So any unit that becomes the leader of a run by many units can go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from tippingpoint.analysis.findings import StageFindings
from tippingpoint.analysis.recovery.comeback import says_nothing
from tippingpoint.analysis.search.stage_margins import each_from_nothing, judged
from tippingpoint.analysis.thresholds import stage_checks
from tippingpoint.plan.read import SearchPlan
from tippingpoint.plan.spawn import PACES

SHARES = (0.9, 0.75, 0.5, 0.25)
"""The lower loads, as shares of the one that broke. The largest load that held before is tried too."""
TRIES = 3
"""How often a load is tried if its result says nothing about the target because the generator was late. On a busy
machine it is late in bursts. A failure that sustains itself is still present at the next try."""
MOST_BROKEN = 3
"""How many of the loads that broke in a search are tried. At a soft edge, the smallest often holds the next time."""

Tried = tuple[float, bool | None]
"""A load, and whether it held; None if that is unknown."""


def possible(plan: SearchPlan, load: float) -> float:
    """Return the nearest load that can be applied: a whole number of units."""
    if plan.load in ("renewals", "claims", "rate"):
        return round(load, 3)
    return plan.load_at(round(load))


def judged_whole(plan: SearchPlan) -> bool:
    """Whether a lower load is judged once all its instances exist, because the load is the rate of their creation."""
    return plan.load in PACES


def is_none(plan: SearchPlan, load: float) -> bool:
    """Whether no load is applied to the target: no load at a pace has no stage."""
    return not load and judged_whole(plan)


def lower_loads(plan: SearchPlan, broken: float, held: float | None) -> list[float]:
    """Return the lower loads, in order; the last ones are no load at all, and once more what held before."""
    before = [held] if held is not None else []
    lower = {*(possible(plan, share * broken) for share in SHARES), *before}
    return [*sorted((size for size in lower if 0 < size < broken), reverse=True), 0, *before]


@dataclass(frozen=True)
class Following:
    """The load that comes next."""

    load: float
    fresh: bool
    """Whether it begins from nothing."""
    lowers: bool
    """Whether it is a lower load; otherwise it is meant to break the target once more."""


@dataclass(frozen=True)
class LoadOutcome:
    """What a load showed. Texts are empty if there is nothing to say."""

    held: bool | None
    """Whether it held, or for a lower load, whether thresholds were met again; None if it says nothing, or was no
    load."""
    nothing: str = ""
    """Why it says nothing about the target."""
    missing: str = ""
    """Why it was never applied."""


def showed(plan: SearchPlan, found: StageFindings) -> LoadOutcome:
    """Return whether a stage met all thresholds and was held, from the findings on it."""
    stage = found.stage
    if plan.find is not None:  # a load of a search is judged as its probes were
        stage = judged(replace(stage, kind="find"), plan=plan)
    checks = stage_checks(stage, plan.thresholds)
    nothing = says_nothing(found)
    if found.failed_to_hold or any(check.met is False for check in checks):
        return LoadOutcome(None if nothing else False, nothing)
    return LoadOutcome(None if found.load_missing else True, nothing)


class LoadReduction:
    """The loads of `after: recover`: `ask` returns the next one, and `tell` records its result."""

    def __init__(
        self, plan: SearchPlan, tried: Sequence[Tried], *, aborted: float = inf, surely: float = inf
    ) -> None:
        """`tried` are the loads of the stages or of the search, in order. Those from `aborted` on are not tried again.

        In a search, a load that held counts only up to `surely`, the lower end of the interval of its answer. Within
        the interval, a load that held once may break the next time, and nothing stays broken.
        """
        self._plan = plan
        self._tried = [*tried]
        self._surely = surely
        self._again: list[float] = []
        self._lower: list[float] = []
        self._tries = 0
        self.broken: float | None = None
        """The load that broke; None before any did."""
        self.before: float | None = None
        """The largest load that held before; None if none did."""
        self.skipped = ""
        """Why no lower loads are tried; empty if they are, or if that is not known yet."""
        if plan.find is None:
            self._after_stages()
        else:
            self._after_search(aborted)

    def ask(self) -> Following | None:
        """Return the load that comes next; None at the end."""
        if self._again:
            searched = self._plan.find is not None
            fresh = searched and (not self._tries or each_from_nothing(self._plan))
            return Following(self._again[0], fresh, lowers=False)
        return Following(self._lower[0], fresh=False, lowers=True) if self._lower else None

    def tell(self, showed: LoadOutcome) -> None:
        """Take the result of the load that `ask` named."""
        self._tries += 1
        if self._again:
            self._told_again(self._again.pop(0), showed)
        elif showed.held or showed.missing:
            self._lower.clear()
        elif not self._lower[0] or not showed.nothing or self._tries == TRIES:
            self._lower.pop(0)
            self._tries = 0

    def _after_stages(self) -> None:
        size, held = self._tried[-1] if self._tried else (0.0, True)
        if held is False:
            self._broke(size)
        elif held:
            self.skipped = "the last load passed"
        else:
            self._again = [size] * (TRIES - 1)

    def _after_search(self, aborted: float) -> None:
        broken = sorted({size for size, held in self._tried if held is False})
        again = [size for size in broken if size < aborted]
        if not again:
            self.skipped = (
                "the load that failed was aborted, and is not put on the target again"
                if broken
                else "no load failed"
            )
        self._again = [size for size in again[:MOST_BROKEN] for _ in range(TRIES)]

    def _told_again(self, size: float, showed: LoadOutcome) -> None:
        self._tried.append((size, showed.held))
        if showed.missing:
            self._again.clear()
            self.skipped = showed.missing
        elif showed.held is False:
            self._broke(size)
        elif showed.held:
            self._again = [each for each in self._again if each != size]
            searched = self._plan.find is not None
            why = "no load that failed in the search failed again" if searched else "the last load passed"
            self.skipped = "" if self._again else why
        elif not self._again:
            self.skipped = f"the generator itself was the bottleneck: {showed.nothing}"

    def _broke(self, size: float) -> None:
        held = (each for each, held in self._tried if held and each < size and each <= self._surely)
        self.broken, self.before = size, max(held, default=None)
        self._again.clear()
        self._lower = lower_loads(self._plan, size, self.before)
        self._tries = 0
