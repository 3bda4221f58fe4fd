"""Concludes a run's search: its answer, rebuilt from plan and probes, and the sentences that tell it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from tippingpoint.analysis.search.answer import Answer
from tippingpoint.analysis.search.rebuilt import searcher_of
from tippingpoint.analysis.search.stage_margins import LIMITS, PERCENTILES, margin_name
from tippingpoint.plan.base import BasePlan, Threshold
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.rundir.probe_events import ProbeEvent, probe_events
from tippingpoint.rundir.results import RunData
from tippingpoint.util.text import show_amount, show_count, show_share, show_size

_ENDED = {
    "within": "Its time was over",
    "generator": "The generator was the limit of larger loads",
    "no narrower": "Further probes would not narrow it",
}
"""What a reader has to know of the end of a search that found a limit."""


@dataclass(frozen=True)
class Search:
    """What a run's search found, as far as it went."""

    answer: Answer
    probes: tuple[ProbeEvent, ...]
    """Its probes in the order in which they were made, with those of the runs that this one resumed."""
    unit: str
    """The unit of its loads, in the plural."""
    largest: float
    """The largest load that it may try."""
    limits: str
    """What binds at the limit, with its threshold: extend p99 over 100 ms; empty if nothing is known to."""
    so_far: bool
    """Whether it was ended from outside."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return max((probe.began + probe.seconds for probe in self.probes), default=0.0)

    @property
    def short(self) -> str:
        """Where the target tips, with the interval: tips at 4100 leases (95 %: 3700 to 4600); empty without a limit."""
        answer = self.answer
        if answer.limit is None:
            return ""
        low, high = (
            show_size(answer.low),
            show_size(answer.high) if isfinite(answer.high) else "no upper bound",
        )
        so_far = ", so far" if self.so_far else ""
        return f"tips at {show_amount(_whole(answer.limit), self.unit)} (95 %: {low} to {high}{so_far})"

    @property
    def sentence(self) -> str:
        """The answer in a sentence, with what limits its trust."""
        answer, probes = self.answer, show_count(len(self.probes), "probe")
        took = f"in {_show_time(self.seconds)} by {probes}"
        if answer.limit is None:
            parts = [self._no_limit()]
            parts += [f"Searched {took}."] if self.probes else []
            return " ".join(parts)
        binds = f": {self.limits} is what binds" if self.limits else ""
        where = f"{self.short[0].upper()}{self.short[1:]}{binds}."
        return " ".join([where, f"Found {took}.", *self._edge(), *self._doubts()])

    def _no_limit(self) -> str:
        answer = self.answer
        if answer.ended == "limit":
            return f"Holds {show_amount(self.largest, self.unit)}, the largest load that the search tries."
        if answer.ended == "broken at start":
            over = f": {self.limits} is what binds" if self.limits else ""
            return f"Not even {show_amount(_whole(answer.high), self.unit)} held{over}."
        held = f"; {show_amount(_whole(answer.low), self.unit)} held" if answer.low else ""
        broke = f"; {show_amount(_whole(answer.high), self.unit)} broke" if isfinite(answer.high) else ""
        so_far = " so far" if self.so_far else ""
        return f"No limit is known{so_far}: {answer.withheld or 'the search has no answer'}{held}{broke}."

    def _edge(self) -> list[str]:
        """Say how sharp the edge is."""
        if self.answer.shape == "cliff":
            return ["It is a cliff: all holds below, nothing above."]
        if self.answer.shape == "smooth":
            surely = [point.load for point in self.answer.curve if point.chance >= 0.9]
            hardly = [point.load for point in self.answer.curve if point.chance <= 0.1]
            if surely and hardly:
                between = f"{show_size(_whole(surely[-1]))} to {show_size(_whole(hardly[0]))} {self.unit}"
                return [f"The edge is smooth: the chance to hold falls from 90 % to 10 % over {between}."]
            return ["The edge is smooth: loads near the limit hold at one time and break at another."]
        return []

    def _doubts(self) -> list[str]:
        answer = self.answer
        words = [_ENDED[answer.ended]] if answer.ended in _ENDED else []
        for doubt in (answer.drifts, answer.stays_hurt):
            words += [f"{doubt[0].upper()}{doubt[1:]}"] if doubt else []
        return [f"{each}." for each in words]


def conclude(run: RunData, plan: BasePlan | None) -> Search | None:
    """Conclude a run's search as far as it went; None for a run without probes, or one that searched differently."""
    probes = probe_events(run.events)
    if not isinstance(plan, ClaimPlan) or plan.find is None or not probes:
        return None
    answer = searcher_of(plan, plan.find, run.events).answer
    return Search(
        answer=answer,
        probes=tuple(probes),
        unit=run.manifest.load_unit,
        largest=plan.find.limit,
        limits=_limit_words(answer.binds, plan.thresholds),
        so_far=answer.ended == "going on",
    )


def _limit_words(binds: str, thresholds: list[Threshold]) -> str:
    """Write a margin with its threshold: extend p99 over 100 ms."""
    for threshold in thresholds:
        for limit in LIMITS:
            allowed = getattr(threshold, limit)
            if allowed is None or margin_name(threshold.operation, limit, allowed) != binds:
                continue
            name = "p99.9" if limit == "p999" else limit.replace("_", " ")
            if limit in PERCENTILES:
                said = f"{allowed * 1000:g} ms" if allowed < 1 else f"{allowed:g} s"
            else:
                said = f"{allowed:g}/s" if limit == "throughput" else show_share(allowed)
            return f"{threshold.operation} {name} {'below' if limit == 'throughput' else 'over'} {said}"
    return binds.replace("_", " ")


def _whole(load: float) -> float:
    """Round a load as estimates are shown: to a whole number, if it is large enough."""
    return round(load) if load >= 10 else load


def _show_time(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes"
