"""Describes how far a run got: where it tips, and at which loads it may be compared with another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from tippingpoint.analysis.analyse import Analysis
from tippingpoint.analysis.fault_spans import fault_spans
from tippingpoint.plan.fields import StageKind
from tippingpoint.util.text import show_amount, show_size

Judgement = Literal["worse", "better", "same", "unsure"]

APART = 5.0
"""With one run each, the loads at which they tip must differ by this factor before one is called worse. No two of 23
runs of one release on a busy machine did, but some differed by a factor of 4
(docs/explanation/how-releases-are-compared.md)."""


@dataclass(frozen=True)
class Reach:
    """How far a run got: the loads around its tipping point, or the largest that it held."""

    held: float | None
    """The largest load that was held before the run tips; None if there is none."""
    broken: float | None
    """The first load past the tipping point; None if the run did not tip."""
    doubt: str
    """Why the tipping point says little about the target; empty if there is no doubt."""
    by: str = ""
    """The sign of tipping: knee, cliff or threshold; empty if the run did not tip."""
    evidence: str = ""
    """The evidence in a few words; empty if the run did not tip."""
    loads: tuple[float, ...] = ()
    """The loads that it held below its cliff, ascending. Figures are judged only at these loads."""
    unjudged: float | None = None
    """The smallest load with a threshold that was not judged, because the generator itself was late; else None."""
    cliff: float | None = None
    """The load from which it breaks without a fault; None if it does not break."""
    extent: str = "the largest tried"
    """What `held` is if the run did not tip: the largest load tried, the largest held, or what all repeats held."""
    faults: tuple[tuple[StageKind, float, tuple[str, ...]], ...] = ()
    """The stages of the run during which a fault was injected: kind, size, and the kinds of faults."""

    def words(self, unit: str) -> str:
        """Say where it tips: at 2,000 to 4,000 leases; or how far it was tested: held 16,000 leases, the largest tried.

        Empty if unknown. A load that was held is a lower bound of the tipping point, not a measurement.
        """
        if self.broken is None:
            return f"passed {_amount(self.held, unit)}, {self.extent}" if self.held is not None else ""
        where = (
            f"{show_size(self.held)} to {_amount(self.broken, unit)}"
            if self.held is not None
            else f"{_amount(self.broken, unit)} or less"
        )
        return f"at {where}" + (f" ({self.doubt})" if self.doubt else "")

    def said(self, unit: str, *, several: bool = False) -> str:
        """Say the same with its verb: tips at 2,000 to 4,000 leases; empty if unknown."""
        words = self.words(unit)
        return f"{'tip' if several else 'tips'} {words}" if self.broken is not None else words

    @property
    def order(self) -> tuple[float, float]:
        """A sort key, larger for a run that got further."""
        return (inf if self.broken is None else self.broken), (-1 if self.held is None else self.held)

    @property
    def bounded(self) -> bool:
        """Whether only a bound of its tipping point is known: it held everything that was tried, or nothing."""
        return self.held is None or self.broken is None

    def holds(self, load: float) -> bool | None:
        """Return whether it tips beyond a load; None if unknown."""
        if self.held is not None and load <= self.held:
            return True
        return False if self.broken is not None and load >= self.broken else None

    def faults_at(self, kind: StageKind, size: float) -> tuple[str, ...]:
        """Return the kinds of faults that were injected at a load."""
        return next((of for at, load, of in self.faults if (at, load) == (kind, size)), ())

    def beyond(self, kind: StageKind, size: float) -> str:
        """Say why this run is not judged at a load: "past the cliff of" or "not sustained by"; empty if it is."""
        if self.cliff is not None and size >= self.cliff:
            return "past the cliff of"
        # Storms and removals are not held.
        return "" if kind in ("storm", "destroy") or size in self.loads else "not sustained by"


def reach_of(analysis: Analysis) -> Reach:
    """Return how far a run got."""
    cliff, point = analysis.tipping.cliff, analysis.tipping.point
    breaks = cliff.first_broken if cliff is not None and not cliff.during_fault else None
    if point is not None and point.by == "limit":
        breaks = point.first_beyond
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
    faults = _faults_of(analysis)
    if point is None:
        largest, tried = max(held, default=None), _tried(analysis)
        extent = "the largest tried" if len(tried) > 1 else "the only load tried"
        if largest != max(tried, default=None):
            extent = "the largest that was sustained"
        return Reach(largest, None, "", loads=loads, unjudged=unjudged, extent=extent, faults=faults)
    return Reach(
        point.last_held,
        point.first_beyond,
        point.doubt,
        point.by,
        point.evidence,
        loads=loads,
        unjudged=unjudged,
        cliff=breaks,
        faults=faults,
    )


def _tried(analysis: Analysis) -> set[float]:
    return {found.stage.size for found in analysis.findings.stages if found.stage.is_step}


def _faults_of(analysis: Analysis) -> tuple[tuple[StageKind, float, tuple[str, ...]], ...]:
    """Return what was injected during the stages of each kind and size, if every such stage had a fault."""
    found: dict[tuple[StageKind, float], list[tuple[str, ...]]] = {}
    injected = fault_spans(analysis.run.events)
    for stage in analysis.run.stages:
        kinds = {fault.do for fault in injected if stage.overlaps(fault.begin, fault.until)}
        key: tuple[StageKind, float] = ("ramp" if stage.is_step else stage.kind, stage.size)
        found.setdefault(key, []).append(tuple(sorted(kinds)))
    return tuple(
        (kind, size, tuple(sorted({do for kinds in of for do in kinds})))
        for (kind, size), of in found.items()
        if all(of)
    )


def reach_together(reaches: Sequence[Reach]) -> Reach:
    """Return how far repeats of one release got: all tip within its loads, and all held its `loads`.

    If one run did not tip, it is open where the release tips; the others only show the load from which it may.
    """
    first, *others = reaches
    if not others:
        return first
    helds = [reach.held for reach in reaches]
    brokens = [reach.broken for reach in reaches if reach.broken is not None]
    held = min((held for held in helds if held is not None), default=None) if None not in helds else None
    of_first = min(reaches, key=lambda reach: reach.order)
    extents = {reach.extent if (reach.held, reach.broken) == (held, None) else "" for reach in reaches}
    return replace(
        of_first,
        held=held,
        broken=max(brokens) if len(brokens) == len(reaches) or (held is None and brokens) else None,
        doubt=next((reach.doubt for reach in reaches if reach.doubt), ""),
        loads=tuple(size for size in first.loads if all(size in reach.loads for reach in others)),
        unjudged=min((reach.unjudged for reach in reaches if reach.unjudged is not None), default=None),
        cliff=min((reach.cliff for reach in reaches if reach.cliff is not None), default=None),
        extent=extents.pop() if len(extents) == 1 else "the largest that all sustained",
        faults=tuple(dict.fromkeys(fault for reach in reaches for fault in reach.faults)),
    )


def comparable_tips(base: Reach, other: Reach, *, same_thresholds: bool = True) -> bool:
    """Return whether it is known without doubt, and by the same thresholds, where both runs tip."""
    if not same_thresholds and {"threshold", "limit"} & {base.by, other.by}:
        return False
    if not_judged(base, other) is not None:
        return False
    return not (base.doubt or other.doubt) and _known(base) and _known(other)


def tips_against(base: Reach, other: Reach, *, same_thresholds: bool = True) -> Judgement:
    """Judge whether one run tips at a lower load than one run of the base (worse) or at a higher one (better).

    Each tips somewhere between two loads; in a search, these are the 95 % interval of its limit. Nothing shows how
    repeats scatter, so the larger load must be APART times the smaller one. Equal pairs of loads are the same;
    everything else is unsure. A missed threshold is also unsure if the other run's thresholds differ, or were not
    judged.
    """
    if not comparable_tips(base, other, same_thresholds=same_thresholds):
        return "unsure"
    if (base.held, base.broken) == (other.held, other.broken):
        return "same"
    if other.broken is not None and APART * other.broken <= (base.held or 0):
        return "worse"
    if base.broken is not None and APART * base.broken <= (other.held or 0):
        return "better"
    return "unsure"


def not_judged(base: Reach, other: Reach) -> Reach | None:
    """Return the run whose thresholds were not judged where the other run missed one; None if there is none."""
    if _may_have_missed(base, other):
        return other
    return base if _may_have_missed(other, base) else None


def _may_have_missed(one: Reach, other: Reach) -> bool:
    """Return whether one run misses a threshold at a load up to which the other's thresholds were not judged."""
    return (
        one.by == "threshold"
        and one.broken is not None
        and other.unjudged is not None
        and other.unjudged <= one.broken
    )


def _known(reach: Reach) -> bool:
    return reach.held is not None or reach.broken is not None


def _amount(size: float, unit: str) -> str:
    return show_amount(size, unit) if unit else show_size(size)
