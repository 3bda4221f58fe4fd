"""Computes how far a stage was from each threshold, and the sampling error within the stage.

A probe of a search is judged by its hold. Its ramp, including any backlog of the load before, is excluded, except for
operations that only happen in a ramp.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil, inf, isfinite, log, pi, sqrt

import numpy as np

from tippingpoint.analysis.confidence import percentile_interval
from tippingpoint.analysis.latency import costs
from tippingpoint.analysis.search.early_end import Tally
from tippingpoint.analysis.search.probes import Margin
from tippingpoint.analysis.thresholds import Check, Limit, limits_of, stage_checks
from tippingpoint.plan.base import Threshold
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.read import Plan, SearchPlan
from tippingpoint.rundir.histogram import FloatArray, Histogram, highest_values, slots_of
from tippingpoint.rundir.operations import BRINGING_UP
from tippingpoint.rundir.stages import StageResult
from tippingpoint.rundir.tags import FAILURES, tag

RAMPED = (*BRINGING_UP, "claim")
"""Operations that bring a load up: for these, the ramp of a probe is judged too."""
_ONE_SIGMA = 0.6827
"""The share of a normal distribution within one standard deviation."""
_FEWEST_SECONDS = 4
"""With fewer seconds than this, it is unknown how much they differ."""
_FEWEST = 10
"""With fewer samples than this, nothing is known about the tail."""
_SLOT = 5e-4
"""The precision of a value: the width of a histogram's slot, on the log scale."""

Second = Mapping[str, Histogram]
"""The histograms of one second of a hold, by tag."""


def ramped(plan: Plan | None) -> Collection[str] | None:
    """Return the operations that bring up the loads of a plan's search; None if all do because the ramp is the load."""
    if plan is not None and (plan.accumulates or plan.cycles):
        return None
    if isinstance(plan, ClaimPlan) and plan.load == "arrivals":
        return None
    return BRINGING_UP if isinstance(plan, ClaimPlan) and plan.load == "claims" else RAMPED


def each_from_nothing(plan: SearchPlan) -> bool:
    """Whether each load must come up from nothing: a threshold is about bringing it up, or the ramp is the load."""
    if plan.cycles:
        return False  # nothing stays
    in_ramp = ramped(plan)
    return in_ramp is None or any(threshold.operation in in_ramp for threshold in plan.thresholds)


def judged(
    stage: StageResult,
    unanswered: Mapping[str, Sequence[float]] | None = None,
    plan: Plan | None = None,
) -> StageResult:
    """Return the part of a probe that is judged: its hold, and for operations that bring the load up also its ramp.

    Other stages are judged as a whole. `unanswered` has, by operation, the ages in seconds of the calls that still had
    no answer long after the hold: for this probe, they count as timed out.
    """
    if stage.kind != "find":
        return stage
    operations = ramped(plan)
    in_ramp = {
        name: found
        for name, found in stage.histograms.items()
        if operations is None or name.partition(".")[0] in operations
    }
    parts = {**stage.held, **in_ramp}
    for operation, ages in (unanswered or {}).items():
        name = tag(operation, "timeout")
        late = Histogram.of(np.asarray(ages) * 1e6)
        parts[name] = Histogram.merged([late, *([parts[name]] if name in parts else [])])
    return replace(stage, histograms=parts)


def margin_names(thresholds: Sequence[Threshold], *, also: bool = False) -> list[str]:
    """Return the names of the margins for these thresholds, in order; `also` is as in `margin_name`."""
    return [margin_name(limit, also=also) for threshold in thresholds for limit in limits_of(threshold)]


def margin_name(limit: Limit, *, also: bool = False) -> str:
    """Return the name of one margin: extend p99, etcd-memory of the leader.

    The names of `also` limits include their value, because there may be several of one kind: `extend p99 250ms`.
    """
    return f"{limit.name} {limit.written}" if also else limit.name


def stage_margins(
    stage: StageResult,
    thresholds: Sequence[Threshold],
    *,
    seconds: Sequence[Second] = (),
    also: bool = False,
) -> list[Margin]:
    """Return a stage's margin from each limit of these thresholds; a limit without any measurement has none.

    `stage` is what `judged` returned, or a part of it. `seconds` are the seconds of its hold: if failures come in
    bursts, they are known less well than their count suggests, so the errors grow with the spread between seconds (W.
    G. Cochran, Sampling Techniques, 1977, 9.2: clusters of a sample). `also` is as in `margin_name`.
    """
    return [
        Margin(margin_name(check, also=also), check.margin, _error(stage, check, seconds))
        for check in stage_checks(stage, thresholds)
        if check.margin is not None
    ]


def tallies(stage: StageResult, thresholds: Sequence[Threshold], seconds: Sequence[Second]) -> list[Tally]:
    """Return how many calls were beyond each limit in each of the `seconds` of a hold, for limits that count calls.

    Operations that bring a load up have none: their result is known when the hold begins.
    """
    found: list[Tally] = []
    for threshold in thresholds:
        operation = threshold.operation
        tries = tuple(_attempts_in(second, operation) for second in seconds)
        if not operation or 2 * sum(tries) < stage.attempts(operation):
            continue
        outcomes = stage.waited(operation)
        for limit in limits_of(threshold):
            if limit.outcomes:
                counts = tuple(_count(second, operation, limit.outcomes) for second in seconds)
                found.append(Tally(limit.name, limit.allowed, tries, counts, counts))
            elif limit.percentile is not None:
                at, half = (int(slot) for slot in slots_of([limit.allowed, limit.allowed / 2]))
                waits = [_costs_in(second, operation, outcomes) for second in seconds]
                found.append(
                    Tally(
                        limit.name,
                        1 - limit.percentile / 100,
                        tuple(each.total for each in waits),
                        tuple(int(each.counts[at + 1 :].sum()) for each in waits),
                        tuple(int(each.counts[half + 1 :].sum()) for each in waits),
                        largest=limit.limit == "max",
                    )
                )
    return [tally for tally in found if sum(tally.tries)]


def _error(stage: StageResult, check: Check, seconds: Sequence[Second]) -> float:
    """Return the standard error of a check's margin from sampling within the stage; infinite if it is unknown."""
    if check.is_figure:
        error = stage.figures[check.operation].error
        return inf if error is None else max(error, _SLOT)
    if check.percentile is not None:
        return _error_of_percentile(stage, check.operation, check.percentile, seconds)
    if check.outcomes:
        return _error_of_share(stage, check, seconds)
    return _error_of_throughput(stage, check.operation, seconds) if check.observed else inf


def _error_of_percentile(
    stage: StageResult, operation: str, percentile: float, seconds: Sequence[Second]
) -> float:
    waited = costs(stage, operation)
    if percentile == 100.0:
        return max(_tail(waited) * pi / sqrt(6), _SLOT)
    interval = percentile_interval(waited, percentile, _ONE_SIGMA)
    observed = interval.estimate
    sides = [abs(log(max(side, 1.0) / max(observed, 1.0))) for side in (interval.low, interval.high)]
    if not isfinite(interval.high):
        # The largest values of a sample vary by pi / sqrt(6) of the tail's slope (E. J. Gumbel, Statistics of
        # Extremes, 1958, 5.2.1), which is more than lower values do.
        sides = [max(sides[0], _tail(waited) * pi / sqrt(6))]
    above, outcomes = int(slots_of([observed])[0]), stage.waited(operation)
    hits = [
        (int(found.counts[above + 1 :].sum()), found.total)
        for second in seconds
        if (found := _costs_in(second, operation, outcomes)).total
    ]
    return max(sum(sides) / len(sides), _SLOT) * sqrt(_spread(hits))


def _error_of_share(stage: StageResult, check: Check, seconds: Sequence[Second]) -> float:
    hits = [
        (_count(second, check.operation, check.outcomes), tries)
        for second in seconds
        if (tries := _attempts_in(second, check.operation))
    ]
    events = sum(stage.count(check.operation, outcome) for outcome in check.outcomes)
    # A count of zero plus half an event is at most doubled by one standard deviation; other counts vary as
    # their logarithm does (Gamma(n + 1/2)).
    error = sqrt(_trigamma(events + 0.5)) if events else log(2)
    return error * sqrt(_spread(hits))


def _error_of_throughput(stage: StageResult, operation: str, seconds: Sequence[Second]) -> float:
    counts = [_count(second, operation, ["ok"]) for second in seconds]
    done = sum(counts) or stage.count(operation)
    if operation not in BRINGING_UP and len(counts) >= _FEWEST_SECONDS and done:
        return max(float(np.std(counts, ddof=1)) / (done / len(counts)) / sqrt(len(counts)), 1e-3)
    return 1 / sqrt(done + 0.5)


def _tail(waited: Histogram) -> float:
    """Return the slope of the upper tail on the log scale (B. M. Hill, The Annals of Statistics 3 (1975) 1163)."""
    slots, counts = waited.filled()
    total = int(counts.sum())
    if total < _FEWEST:
        return inf
    known = np.maximum(highest_values(slots), 1)  # a call of less than a microsecond counts as one
    values: FloatArray = np.log(np.repeat(known, np.minimum(counts, ceil(sqrt(total)) + 1)))
    top = values[-(ceil(sqrt(total)) + 1) :]
    return float((top[1:] - top[0]).sum()) / (top.size - 1)


def _spread(hits: Sequence[tuple[int, int]]) -> float:
    """Return by how much the variance of a share exceeds that of independent events, at least 1.

    `hits` has the hits and the tries of each second.
    """
    counted, tried = (sum(column) for column in zip(*hits, strict=True)) if hits else (0, 0)
    if len(hits) < _FEWEST_SECONDS or not counted or counted == tried:
        return 1.0
    share = counted / tried
    between = sum((count - share * tries) ** 2 for count, tries in hits) * len(hits) / (len(hits) - 1)
    return max(1.0, between / (tried * share * (1 - share)))


def _trigamma(x: float) -> float:
    """Return the second derivative of ln Gamma (Abramowitz and Stegun, 6.4.6 and 6.4.12)."""
    found = 0.0
    while x < 10:
        found += 1 / x**2
        x += 1
    return found + 1 / x + 1 / (2 * x**2) + 1 / (6 * x**3) - 1 / (30 * x**5)


def _costs_in(second: Second, operation: str, outcomes: Iterable[str]) -> Histogram:
    found = [second[name] for outcome in outcomes if (name := tag(operation, outcome)) in second]
    return found[0] if len(found) == 1 else Histogram.merged(found)


def _count(second: Second, operation: str, outcomes: Iterable[str]) -> int:
    names = (tag(operation, outcome) for outcome in outcomes)
    return sum(second[name].total for name in names if name in second)


def _attempts_in(second: Second, operation: str) -> int:
    return _count(second, operation, ("ok", *FAILURES))
