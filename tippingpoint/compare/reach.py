"""How far each of several runs came: where it tips, and at which loads it may be held against another."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.plan.fields import StageKind

Judgement = Literal["worse", "better", "same", "unsure"]


@dataclass(frozen=True)
class Reach:
    """How far a run came: the loads around where it tips, or the largest that it held."""

    held: int | None
    """The largest load that was held before it tips; None without any."""
    broken: int | None
    """The load from which it is beyond; None when it did not tip."""
    doubt: str
    """Why that says little of the target; empty when it does say something."""
    by: str = ""
    """What shows it: knee, cliff or threshold; empty when it did not tip."""
    evidence: str = ""
    """What was seen there, in a few words; empty when it did not tip."""
    loads: tuple[int, ...] = ()
    """The loads that it held below its cliff, ascending: only there a figure of it is judged."""
    unjudged: int | None = None
    """The smallest load at which a threshold is neither met nor missed, as the generator itself was late; else None."""
    cliff: int | None = None
    """The load from which it breaks without a fault; None when it does not."""

    def words(self, unit: str) -> str:
        """Where it tips: beyond 16,000 leases, at 2,000 to 4,000; empty when nothing is known."""
        unit = f" {unit}" if unit else ""
        if self.broken is None:
            return f"beyond {self.held:,}{unit}" if self.held is not None else ""
        where = (
            f"{self.held:,} to {self.broken:,}{unit}"
            if self.held is not None
            else f"{self.broken:,}{unit} or less"
        )
        return f"at {where}" + (f" ({self.doubt})" if self.doubt else "")

    @property
    def order(self) -> tuple[float, float]:
        """Larger for a run that came further."""
        return (inf if self.broken is None else self.broken), (-1 if self.held is None else self.held)

    def beyond(self, kind: StageKind, size: int) -> str:
        """Why nothing is judged at a load (past the cliff of, not held by) this run; empty where something is."""
        if self.cliff is not None and size >= self.cliff:
            return "past the cliff of"
        # A storm and a removal are no loads that are held.
        return "" if kind in ("storm", "destroy") or size in self.loads else "not held by"


def reach_of(analysis: Analysis) -> Reach:
    """How far a run came."""
    cliff, point = analysis.tipping.cliff, analysis.tipping.point
    breaks = cliff.first_broken if cliff is not None and not cliff.during_fault else None
    held = analysis.findings.loads_held
    loads = tuple(size for size in held if breaks is None or size < breaks)
    unjudged = min(
        (
            check.size
            for check in analysis.verdict.checks
            if check.met is None and check.observed is not None and check.size is not None
        ),
        default=None,
    )
    if point is None:
        return Reach(max(held, default=None), None, "", loads=loads, unjudged=unjudged)
    return Reach(
        point.last_held,
        point.first_beyond,
        point.doubt,
        point.by,
        point.evidence,
        loads=loads,
        unjudged=unjudged,
        cliff=breaks,
    )


def tips_against(base: Reach, other: Reach, *, same_thresholds: bool = True) -> Judgement:
    """Whether a run tips at a lower load than the base (worse), or a higher one, as far as the loads tried tell.

    Each tips somewhere between two loads: what overlaps is unsure, and the same where it is the same two. So is what
    one run's thresholds say when the other's are not the same, or were not judged.
    """
    if not same_thresholds and "threshold" in (base.by, other.by):
        return "unsure"
    if not_judged(base, other) is not None:
        return "unsure"
    if base.doubt or other.doubt or not (_known(base) and _known(other)):
        return "unsure"
    if (base.held, base.broken) == (other.held, other.broken):
        return "same"
    if other.broken is not None and other.broken <= (base.held or 0):
        return "worse"
    if base.broken is not None and base.broken <= (other.held or 0):
        return "better"
    return "unsure"


def not_judged(base: Reach, other: Reach) -> Reach | None:
    """Of two runs the one whose thresholds were not judged where the other missed one; None where that is neither."""
    if _may_have_missed(base, other):
        return other
    return base if _may_have_missed(other, base) else None


def _may_have_missed(one: Reach, other: Reach) -> bool:
    """Whether the one misses a threshold at a load up to which nobody knows whether the other meets its own."""
    return (
        one.by == "threshold"
        and one.broken is not None
        and other.unjudged is not None
        and other.unjudged <= one.broken
    )


def _known(reach: Reach) -> bool:
    return reach.held is not None or reach.broken is not None
