"""Finds how much of the target's processors other programs and the hypervisor took, and whether that explains a miss.

A p99 is about waiting: dividing a load by the remaining share of the processors does not give the load that the target
would hold alone (docs/explanation/how-it-measures.md). So a miss during foreign work is not a result, and the load is
tried again. A load that held during foreign work would hold without it too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from tippingpoint.analysis.fault_spans import fault_spans
from tippingpoint.rundir.machine import Used, during
from tippingpoint.util.numbers import show_share
from tippingpoint.util.text import choose

if TYPE_CHECKING:  # a run that judges nothing needs no numpy, but still monitors its machine
    from tippingpoint.rundir.results import RunData
    from tippingpoint.rundir.stages import StageResult

EXPLAINS = 0.05
"""The least share of the target's processors with which foreign work could explain a miss
(tests/benchmarks/bench_others.py)."""
HYPERVISOR = "the hypervisor"
"""The name for what withheld processors, at the start of `ForeignWork.words`."""
_KNOWN = 0.5
"""The minimum part of a time span for which it must be known what ran."""


@dataclass(frozen=True)
class ForeignWork:
    """The shares of the target's processors that were taken during some time."""

    others: float
    """By other programs on the machine."""
    steal: float
    """By the hypervisor."""
    cpus: int
    """The number of the target's processors."""
    waited: float
    """The total seconds that the target's threads waited for a processor; infinite if unknown. A lack of processors
    delays no call by more than this."""

    @property
    def explains(self) -> bool:
        """Whether it could explain a missed load."""
        return self.others + self.steal >= EXPLAINS

    @property
    def words(self) -> str:
        """Say it in a few words: other programs used 43 % of the target's processors."""
        of = f"of the target's {choose(self.cpus, 'processor', 'processors')}"
        if self.others >= self.steal:
            return f"other programs used {_rounded(self.others)} {of}"
        return f"{HYPERVISOR} withheld {_rounded(self.steal)} {of}"

    @property
    def reason(self) -> str:
        """Give it as the reason why a miss is inconclusive."""
        return f"{self.words} meanwhile"


def foreign_work(seconds: Iterable[Used]) -> ForeignWork | None:
    """Return what was taken in these seconds; None if they do not show it."""
    told = [(used, used.others) for used in seconds]
    whole = sum(used.seconds * used.cpus for used, others in told if others is not None)
    if not whole:
        return None
    return ForeignWork(
        others=max(0.0, sum(others for _, others in told if others is not None)) / whole,
        steal=sum(used.steal for used, others in told if others is not None) / whole,
        cpus=max(used.cpus for used, _ in told),
        waited=sum(inf if used.waited is None else used.waited for used, _ in told),
    )


def foreign_work_in(run: RunData, begin: float, end: float) -> ForeignWork | None:
    """Return what was taken between two moments of a run; None if that is unknown for most of the time."""
    inside = during(run.machine, begin, end)
    known = sum(used.seconds for used in inside if used.others is not None)
    last = min(end, max((used.t for used in inside), default=begin))
    return foreign_work(inside) if known and known >= _KNOWN * (last - begin) else None


def span_of(stage: StageResult) -> tuple[float, float]:
    """Return the times of a stage's hold, or of bringing it up if it was never held; it may not have ended."""
    begin = stage.begin if stage.hold_begin is None else stage.hold_begin
    return begin, inf if stage.end is None else stage.end


def beside(run: RunData, stage: StageResult) -> ForeignWork | None:
    """Return what was taken during a stage's `span_of`; None if that is unknown."""
    return foreign_work_in(run, *span_of(stage))


def could_explain(run: RunData, stage: StageResult) -> ForeignWork | None:
    """Return what was taken during a stage if that could explain a miss; None if it could not, or if it is unknown.

    A miss during a fault is attributed to the fault.
    """
    if any(stage.overlaps(fault.begin, fault.until) for fault in fault_spans(run.events)):
        return None
    found = beside(run, stage)
    return found if found is not None and found.explains else None


def _rounded(share: float) -> str:
    return show_share(round(share, 2))
