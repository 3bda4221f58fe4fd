"""What a run's search found, in words and figures: its answer, and those of the same probes for further thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, inf, isfinite, log10
from typing import get_args

from tippingpoint.analysis.foreign_work import HYPERVISOR
from tippingpoint.analysis.search.answer import Answer, Ended
from tippingpoint.analysis.search.probes import Probe, generator_words
from tippingpoint.analysis.search.rebuilt import aim_of, probe_of, searcher_of
from tippingpoint.analysis.search.searcher import searcher_for
from tippingpoint.analysis.search.stage_margins import margin_name, margin_names
from tippingpoint.analysis.thresholds import Limit, limits_of
from tippingpoint.plan.base import Threshold
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.read import Plan, SearchPlan
from tippingpoint.rundir.probe_events import FOUND, ProbeEvent, probe_events
from tippingpoint.rundir.results import RunData
from tippingpoint.util.text import is_counted, show_amount, show_count, show_names, show_size

_FINE = 20
"""A limit is rounded to a twentieth of its interval's width."""


@dataclass(frozen=True)
class Further:
    """The result of the same probes for one more threshold."""

    threshold: str
    """The threshold in words: extend p99 at most 50 ms."""
    answer: Answer
    sentence: str


@dataclass(frozen=True)
class Found:
    """A run's search, as far as it went."""

    answer: Answer
    probes: list[ProbeEvent]
    """The loads that were tried, in order."""
    seconds: float
    """How long the search has taken so far."""
    sentence: str
    """The answer in words."""
    binds: str
    """What limits the load, in words: extend p99 over 60 ms; empty if unknown."""
    further: list[Further]
    """The limits of `find.also`, in the plan's order."""

    @property
    def held(self) -> float | None:
        """The load that holds: the lower bound of the limit's interval, or the largest load that held without one."""
        return self.answer.low or None

    @property
    def broken(self) -> float | None:
        """The load that breaks: the upper bound of the limit's interval; None if none broke."""
        return self.answer.high if isfinite(self.answer.high) else None

    @property
    def at_largest(self) -> tuple[int, int]:
        """In how many probes the largest judged load held, and how many probes of it there were."""
        judged = [probe for probe in self.probes if probe.held is not None]
        top = max((probe.size for probe in judged), default=0.0)
        there = [probe.held for probe in judged if probe.size == top]
        return there.count(True), len(there)

    def outcomes(self, name: str) -> tuple[list[float], int]:
        """Return the loads of the probes that missed the threshold `name`, and how many probes did not judge it."""
        missed: list[float] = []
        unjudged = 0
        for probe in self.probes:
            value = next((value for margin, value, _ in probe.margins if margin == name), None)
            if probe.held is False and (name in probe.broken or (value is not None and value > 0)):
                missed.append(probe.size)
            elif probe.held is None or value is None:
                unjudged += 1
        return missed, unjudged


def found_of(run: RunData, plan: Plan | None) -> Found | None:
    """Return what a run's search found; None for a run without any probe of a search."""
    probes = probe_events(run.events)
    if plan is None or isinstance(plan, CtsPlan) or plan.find is None or not probes:
        return None
    searcher = searcher_of(plan, plan.find, run.events)
    answer = searcher.answer
    if _ended_by(run) == "foreign" and any(
        probe.foreign for probe in probes
    ):  # it waited for that, and not in a probe
        answer = searcher.beside_foreign_work()
    elif answer.ended == "going on":  # today's model would request a different load than the one at that time
        ended = _ended_by(run) or answer.ended
        # The probes decide which loads could not be judged, and why, not the conclusion drawn at that time.
        answer = replace(answer, ended="unjudged" if ended in ("generator", "unmeasured") else ended)
    seconds = max(probe.began + probe.seconds for probe in probes)
    tried = [probe_of(probe) for probe in probes]
    return Found(
        answer=answer,
        probes=probes,
        seconds=seconds,
        sentence=" ".join(
            [
                _answered(answer, run.manifest.load_unit, plan.thresholds),
                _effort(answer, probes, seconds),
                *_doubts(answer),
                *_lost(run),
            ]
        ),
        binds=_binding_words(answer.binds, plan.thresholds),
        further=[_further(run, plan, tried, threshold, answer.ended) for threshold in plan.find.also],
    )


def _ended_by(run: RunData) -> Ended | None:
    """Return the reason that a run's search recorded for its end; None if it was ended from outside."""
    said = [event.get("ended") for event in run.events if event.get("event") == FOUND]
    return next((ended for ended in get_args(Ended) if said and ended == said[-1]), None)


def limit_words(answer: Answer, unit: str) -> str:
    """Say where an answer's limit is: 4,100 leases (95 %: 3,700 to 4,600). The answer must have one."""
    assert answer.limit is not None
    limit, (low, high) = show_amount(told(answer.limit, answer), unit), _bounds(answer, unit)
    if not isfinite(high):
        return f"{limit} (95 %: at least {show_size(low)})"
    if low <= 0:
        return f"{limit} (95 %: at most {show_size(high)})"
    first, last = show_size(low), show_size(high)
    return f"about {limit}" if first == last else f"{limit} (95 %: {first} to {last})"


def bounds_words(answer: Answer, unit: str) -> str:
    """Say between which loads an answer's limit is: between 3,700 and 4,600 leases."""
    low, high = _bounds(answer, unit)
    if not isfinite(high):
        return f"at least {show_amount(low, unit)}"
    if low <= 0:
        return f"at most {show_amount(high, unit)}"
    first, last = show_size(low), show_amount(high, unit)
    return f"about {last}" if low == high else f"between {first} and {last}"


def _bounds(answer: Answer, unit: str) -> tuple[float, float]:
    """Return the interval as it is shown. A count has no fractions, so its interval is rounded outwards."""
    low, high = told_low(answer), told_high(answer)
    if is_counted(unit):
        low, high = floor(low), ceil(high) if isfinite(high) else high
    return low, high


def told(load: float, answer: Answer) -> float:
    """Return a load with as many digits as its interval justifies."""
    step = _step(answer)
    return round(load / step) * step if step and isfinite(load) else load


def told_low(answer: Answer) -> float:
    """Return the lower bound of the interval, rounded down to the same number of digits."""
    step = _step(answer)
    return floor(answer.low / step) * step if step else answer.low


def told_high(answer: Answer) -> float:
    """Return the upper bound, rounded up to the same number of digits."""
    step = _step(answer)
    return ceil(answer.high / step) * step if step and isfinite(answer.high) else answer.high


def _step(answer: Answer) -> int:
    """Return the step to which an answer's loads are rounded; 0 for no rounding."""
    width = (answer.high if isfinite(answer.high) else 2 * answer.low) - answer.low
    return 10 ** floor(log10(width / _FINE)) if width > _FINE else 0


def _answered(answer: Answer, unit: str, thresholds: list[Threshold]) -> str:
    if answer.limit is not None:
        binds = _binding_words(answer.binds, thresholds)
        shape = {"cliff": ", with a sharp edge", "smooth": "", "": ""}[answer.shape]
        return f"Tips at {limit_words(answer, unit)}{shape}" + (f": limited by {binds}." if binds else ".")
    if answer.ended == "limit":
        return f"Passes at {show_amount(answer.low, unit)}, the largest load that the plan allows."
    if answer.ended == "broken at start":
        binds = _binding_words(answer.binds, thresholds)
        why = f": limited by {binds}" if binds else ""
        return f"Not even {show_amount(answer.high, unit)} passed{why}."
    known = f": {show_amount(answer.low, unit)} passed" if answer.low else ""
    known = known or (f": {show_amount(answer.high, unit)} failed" if answer.high < inf else "")
    return f"No limit was found because {answer.withheld or 'the search has no answer'}{known}."


def _effort(answer: Answer, probes: Sequence[ProbeEvent], seconds: float) -> str:
    by = f"in {_time(seconds)} by {show_count(len(probes), 'probe')}"
    mute = sum(probe.held is None for probe in probes)
    early = {
        "within": "; its time ran out before the interval was as narrow as requested",
        "generator": f"; {_beyond(probes)}",
        "unmeasured": "; a figure could not be measured at larger loads",
        "unjudged": f"; {mute} of them could not be judged",
        "no narrower": "; narrowing the interval further would have taken too many probes",
        "foreign": f"; {_foreign_words(probes)}",
        "going on": "; the search had not ended",
    }.get(answer.ended, "")
    if answer.limit is not None:
        return f"Found {by}{early}."
    if answer.ended in ("unjudged", "foreign") and (answer.low or isfinite(answer.high)):
        return f"Tried {by}{early}."
    return f"Tried {by}."  # why no load could be judged is said already


def _foreign_words(probes: Sequence[ProbeEvent]) -> str:
    """Say who did not leave the target's processors: the hypervisor, if the probes name nobody else."""
    named = [probe.foreign for probe in probes if probe.foreign]
    if named and all(words.startswith(HYPERVISOR) for words in named):
        return f"{HYPERVISOR} kept withholding the target's processors"
    return "other programs did not leave the target's processors"


def _beyond(probes: Sequence[ProbeEvent]) -> str:
    """Say in how many probes above all judged loads the generator was the bottleneck."""
    judged = max((probe.size for probe in probes if probe.held is not None), default=0.0)
    beyond = [probe for probe in probes if probe.held is None and probe.size > judged]
    strained = sum(not (probe.unmeasured or probe.cut or probe.foreign) for probe in beyond)
    return generator_words(strained, len(beyond), larger=True)


def _doubts(answer: Answer) -> list[str]:
    doubts = [answer.drifts, answer.stays_hurt]
    return [f"{doubt[0].upper()}{doubt[1:]}." for doubt in doubts if doubt]


def _lost(run: RunData) -> list[str]:
    """Say which units were lost during the search."""
    lost = [unit.name for unit in run.units if unit.status in ("cut", "missing")]
    if not lost:
        return []
    return [f"{show_names(lost, 'unit')} dropped out during the search; the other units took over the load."]


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return show_count(round(seconds / 60), "minute")


def _binding_words(name: str, thresholds: list[Threshold]) -> str:
    """Return a margin's name with its limit: extend p99 over 100 ms."""
    for limit in (limit for threshold in thresholds for limit in limits_of(threshold)):
        if name in (margin_name(limit), margin_name(limit, also=True)):
            return _beyond_words(limit)
    return name.replace("_", " ")


def _beyond_words(limit: Limit) -> str:
    """Describe what breaks a limit: extend p99 over 100 ms."""
    return f"{limit.title} {'under' if limit.is_least else 'over'} {limit.show(limit.allowed)}"


def _further(
    run: RunData, plan: SearchPlan, probes: list[Probe], threshold: Threshold, ended: Ended
) -> Further:
    assert plan.find is not None
    searcher = searcher_for(aim_of(plan.find), probes, margin_names([threshold], also=True))
    answer = searcher.beside_foreign_work() if ended == "foreign" else searcher.answer
    return Further(
        " or ".join(_beyond_words(limit) for limit in limits_of(threshold)),
        answer,
        _answered(answer, run.manifest.load_unit, [threshold]),
    )
