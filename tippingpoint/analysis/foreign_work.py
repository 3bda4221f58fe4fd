"""Finds out what other programs, and the hypervisor, took of the target's processors, and whether that explains a miss.

A p99 is about waiting: whoever divides a load by what was left of the processors does not get the load that they would
hold alone (docs/explanation/how-it-measures.md). So what was missed beside foreign work is no result, and is tried
again. What held beside it would hold without it too.
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

if TYPE_CHECKING:  # a run that judges nothing needs no numpy, and looks at its machine all the same
    from tippingpoint.rundir.results import RunData
    from tippingpoint.rundir.stages import StageResult

EXPLAINS = 0.05
"""The share of the target's processors from which on foreign work could explain a miss
(tests/benchmarks/bench_others.py)."""
HYPERVISOR = "the hypervisor"
"""Who withheld processors, at the beginning of `ForeignWork.words`."""
_KNOWN = 0.5
"""The least part of a time of which it has to be known who ran."""


@dataclass(frozen=True)
class ForeignWork:
    """What was taken of the target's processors in some time, as shares of them."""

    others: float
    """By other programs of the machine."""
    steal: float
    """By the hypervisor."""
    cpus: int
    """The number of the target's processors."""
    waited: float
    """How many seconds the target's threads waited for a processor, all together; infinite if that is not known. For
    want of a processor no call is later than that."""

    @property
    def explains(self) -> bool:
        """Whether it could explain that a load was missed."""
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
        """Say it as the reason why a miss says nothing."""
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
    """Return what was taken between two moments of a run; None if that is not known of most of the time."""
    inside = during(run.machine, begin, end)
    known = sum(used.seconds for used in inside if used.others is not None)
    last = min(end, max((used.t for used in inside), default=begin))
    return foreign_work(inside) if known and known >= _KNOWN * (last - begin) else None


def span_of(stage: StageResult) -> tuple[float, float]:
    """Return from when to when a stage was held, or brought up if it never was; it may not have ended."""
    begin = stage.begin if stage.hold_begin is None else stage.hold_begin
    return begin, inf if stage.end is None else stage.end


def beside(run: RunData, stage: StageResult) -> ForeignWork | None:
    """Return what was taken during `span_of` a stage; None if that is not known."""
    return foreign_work_in(run, *span_of(stage))


def could_explain(run: RunData, stage: StageResult) -> ForeignWork | None:
    """Return what was taken beside a stage if that could explain a miss; None if it could not, or if it is not known.

    A miss with a fault is the fault's doing.
    """
    if any(stage.overlaps(fault.begin, fault.until) for fault in fault_spans(run.events)):
        return None
    found = beside(run, stage)
    return found if found is not None and found.explains else None


def _rounded(share: float) -> str:
    return show_share(round(share, 2))
