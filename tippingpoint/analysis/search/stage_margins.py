"""Computes how far a stage was from each threshold, with the error of sampling within the stage.

A probe of a search is judged by its hold. What belongs to its ramp, such as the backlog of the load before, stays out,
but for operations that only happen in a ramp.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import ceil, floor, inf, isfinite, log, pi, sqrt

import numpy as np

from tippingpoint.analysis.confidence import percentile_interval
from tippingpoint.analysis.latency import costs
from tippingpoint.analysis.search.early_end import Tally
from tippingpoint.analysis.search.probes import Margin
from tippingpoint.plan.base import Threshold
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.grow import GrowPlan
from tippingpoint.plan.read import Plan
from tippingpoint.plan.spawn import PACES, SpawnPlan
from tippingpoint.rundir.histogram import FloatArray, Histogram, highest_values, slots_of
from tippingpoint.rundir.operations import BRINGING_UP
from tippingpoint.rundir.stages import StageResult
from tippingpoint.rundir.tags import FAILURES, tag
from tippingpoint.util.durations import format_duration

PERCENTILES = {"p50": 50.0, "p90": 90.0, "p95": 95.0, "p99": 99.0, "p999": 99.9, "max": 100.0}
"""The limits of a threshold on latency, and the percentile that each is for."""
RATES: dict[str, tuple[str, ...]] = {"error_rate": ("error", "timeout"), "lost_rate": ("lost",)}
"""The limits of a threshold on a share of the attempts, and the outcomes that it counts."""
LIMITS = (*PERCENTILES, *RATES, "throughput")
"""All limits of a threshold, in the order in which they are judged."""

RAMPED = (*BRINGING_UP, "claim")
"""Operations that bring a load up: a probe is judged by those of its ramp too."""
_ONE_SIGMA = 0.6827
"""The share of a normal distribution within one standard deviation."""
_FEWEST_SECONDS = 4
"""With fewer seconds than that, it is not known how much they differ."""
_FEWEST = 10
"""With fewer samples than that, nothing is known of the tail."""
_SLOT = 5e-4
"""A value is known to the width of a histogram's slot, on the log scale."""

_LEAST = 1e-3
"""A figure of less than a thousandth of its limit is as far from it as that."""

Second = Mapping[str, Histogram]
"""The histograms of one second of a hold, by tag."""


def ramped(plan: Plan | None) -> Collection[str] | None:
    """Return the operations that bring up the loads of a plan's search; None if all do, as the ramp is the load."""
    if isinstance(plan, SpawnPlan) and (plan.load in PACES or plan.workload.cycle):
        return None
    if isinstance(plan, GrowPlan) and plan.load == "batch":
        return None
    if isinstance(plan, ClaimPlan) and plan.load == "arrivals":
        return None
    return BRINGING_UP if isinstance(plan, ClaimPlan) and plan.load == "claims" else RAMPED


def judged(
    stage: StageResult,
    unanswered: Mapping[str, Sequence[float]] | None = None,
    plan: Plan | None = None,
) -> StageResult:
    """Return the part of a probe that is judged: its hold, and of operations that bring the load up also its ramp.

    Other stages are judged as a whole. `unanswered` has, by operation, the ages in seconds of the calls that had no
    answer long after the hold: they timed out as far as this probe is concerned.
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
    """Return the names of the margins for these thresholds, in order.

    Thresholds of `also` name their limit, as there may be several of one kind: `extend p99 250ms`.
    """
    names: list[str] = []
    for threshold in thresholds:
        if threshold.figure:
            names.append(figure_margin_name(threshold, also=also))
        names += [
            margin_name(threshold.operation, limit, getattr(threshold, limit), also=also)
            for limit in LIMITS
            if getattr(threshold, limit) is not None
        ]
    return names


def figure_margin_name(threshold: Threshold, *, also: bool = False) -> str:
    """Return the name of a figure's margin: etcd-memory of the leader."""
    return f"{threshold.subject} {threshold.at_most}" if also else threshold.subject


def margin_name(operation: str, limit: str, allowed: float, *, also: bool = False) -> str:
    """Return the name of one margin; `allowed` is the limit as the plan has it."""
    if not also:
        return f"{operation} {limit}"
    said = format_duration(allowed) if limit in PERCENTILES else f"{allowed:g}"
    return f"{operation} {limit} {said}"


def stage_margins(
    stage: StageResult,
    thresholds: Sequence[Threshold],
    *,
    seconds: Sequence[Second] = (),
    also: bool = False,
) -> list[Margin]:
    """Return a stage's margin from each limit of these thresholds; a limit of which nothing was measured has none.

    `stage` is what `judged` returned, or a part of it. `seconds` are the seconds of its hold: what goes wrong in bursts
    is known less well than its count says, and the errors grow with the spread of the seconds (W. G. Cochran, Sampling
    Techniques, 1977, 9.2: clusters of a sample).
    """
    found: list[Margin] = []
    for threshold in thresholds:
        if threshold.figure:
            of_figure = _of_figure(stage, threshold)
            found += [Margin(figure_margin_name(threshold, also=also), *of_figure)] if of_figure else []
        operation = threshold.operation
        for limit in LIMITS:
            allowed = getattr(threshold, limit)
            if allowed is None:
                continue
            name = margin_name(operation, limit, allowed, also=also)
            if limit in PERCENTILES:
                margin = _of_percentile(stage, operation, PERCENTILES[limit], allowed * 1e6, seconds)
            elif limit == "throughput":
                margin = _of_throughput(stage, operation, allowed, seconds)
            else:
                margin = _of_rate(stage, operation, RATES[limit], allowed, seconds)
            if margin is not None:
                found.append(Margin(name, *margin))
    return found


def tallies(stage: StageResult, thresholds: Sequence[Threshold], seconds: Sequence[Second]) -> list[Tally]:
    """Return how many calls were beyond each limit in each of the `seconds` of a hold, for limits that count calls.

    Operations that bring a load up have none: what they showed is known when the hold begins.
    """
    found: list[Tally] = []
    for threshold in thresholds:
        operation = threshold.operation
        if not operation or 2 * sum(_attempts_in(second, operation) for second in seconds) < stage.attempts(
            operation
        ):
            continue
        for limit in LIMITS:
            allowed = getattr(threshold, limit)
            if allowed is None or limit == "throughput":
                continue
            name = margin_name(operation, limit, allowed)
            if limit in RATES:
                counts = [
                    sum(_count(second, operation, outcome) for outcome in RATES[limit]) for second in seconds
                ]
                tries = [_attempts_in(second, operation) for second in seconds]
                found.append(Tally(name, float(allowed), tuple(tries), tuple(counts), tuple(counts)))
                continue
            share = 1 - PERCENTILES[limit] / 100
            at, half = (int(slot) for slot in slots_of([allowed * 1e6, allowed * 1e6 / 2]))
            waits = [_costs_in(stage, second, operation) for second in seconds]
            found.append(
                Tally(
                    name,
                    share,
                    tuple(each.total for each in waits),
                    tuple(int(each.counts[at + 1 :].sum()) for each in waits),
                    tuple(int(each.counts[half + 1 :].sum()) for each in waits),
                    largest=limit == "max",
                )
            )
    return [tally for tally in found if sum(tally.tries)]


def _of_figure(stage: StageResult, threshold: Threshold) -> tuple[float, float] | None:
    """Return the margin of a figure; none if it met its limit only as far as it is known."""
    found, allowed = stage.figures.get(threshold.subject), threshold.quantity.value
    if found is None or found.value is None or (found.why and found.value <= allowed):
        return None
    error = inf if found.error is None else max(found.error, _SLOT)
    return log(max(found.value / allowed, _LEAST)), error


def _of_percentile(
    stage: StageResult, operation: str, percentile: float, allowed: float, seconds: Sequence[Second]
) -> tuple[float, float] | None:
    waited = costs(stage, operation)
    if not waited.total:
        return None
    if percentile == 100.0:
        observed, error = float(waited.max), max(_tail(waited) * pi / sqrt(6), _SLOT)
    else:
        interval = percentile_interval(waited, percentile, _ONE_SIGMA)
        observed = interval.estimate
        sides = [abs(log(max(side, 1.0) / max(observed, 1.0))) for side in (interval.low, interval.high)]
        if not isfinite(interval.high):
            # The largest values of a sample vary by pi / sqrt(6) of the tail's slope (E. J. Gumbel, Statistics of
            # Extremes, 1958, 5.2.1), and more than those below them.
            sides = [max(sides[0], _tail(waited) * pi / sqrt(6))]
        error = max(sum(sides) / len(sides), _SLOT)
        above = int(slots_of([observed])[0])
        hits = [
            (int(found.counts[above + 1 :].sum()), found.total)
            for second in seconds
            if (found := _costs_in(stage, second, operation)).total
        ]
        error *= sqrt(_spread(hits))
    return log(max(observed, 1.0) / max(allowed, 1.0)), error


def _of_rate(
    stage: StageResult, operation: str, outcomes: Sequence[str], allowed: float, seconds: Sequence[Second]
) -> tuple[float, float] | None:
    """Return the margin of a share.

    A count of events is smoothed by half an event (Jeffreys). What is allowed is the least count that is too many, so
    that the margin is negative just when the share is within the limit. Where one event is too many, none is far from
    it: the attempts could not show more.
    """
    attempts = stage.attempts(operation)
    if not attempts:
        return None
    events = sum(stage.count(operation, outcome) for outcome in outcomes)
    least = floor(allowed * attempts * (1 + 1e-12)) + 1
    too_many = attempts if least == 1 and not events else least
    hits = [
        (sum(_count(second, operation, outcome) for outcome in outcomes), tries)
        for second in seconds
        if (tries := _attempts_in(second, operation))
    ]
    # A count of zero and half an event is at most twice as much, in one standard deviation; others are as their
    # logarithm is (Gamma(n + 1/2)).
    error = sqrt(_trigamma(events + 0.5)) if events else log(2)
    return log((events + 0.5) / too_many), error * sqrt(_spread(hits))


def _of_throughput(
    stage: StageResult, operation: str, allowed: float, seconds: Sequence[Second]
) -> tuple[float, float] | None:
    observed = stage.throughput(operation)
    if observed is None or not stage.attempts(operation):
        return None
    counts = [_count(second, operation, "ok") for second in seconds]
    done = sum(counts) or stage.count(operation)
    error = 1 / sqrt(done + 0.5)
    if operation not in BRINGING_UP and len(counts) >= _FEWEST_SECONDS and done:
        error = max(float(np.std(counts, ddof=1)) / (done / len(counts)) / sqrt(len(counts)), 1e-3)
    if not observed:
        assert stage.hold_begin is not None
        until = stage.end if stage.end is not None else stage.hold_begin + 1
        return log(allowed * max(until - stage.hold_begin, 1.0) / 0.5), inf
    return log(allowed / observed), error


def _tail(waited: Histogram) -> float:
    """Return the slope of the upper tail on the log scale (B. M. Hill, The Annals of Statistics 3 (1975) 1163)."""
    slots, counts = waited.filled()
    total = int(counts.sum())
    if total < _FEWEST:
        return inf
    known = np.maximum(highest_values(slots), 1)  # a call that took less than a microsecond took one
    values: FloatArray = np.log(np.repeat(known, np.minimum(counts, ceil(sqrt(total)) + 1)))
    top = values[-(ceil(sqrt(total)) + 1) :]
    return float((top[1:] - top[0]).sum()) / (top.size - 1)


def _spread(hits: Sequence[tuple[int, int]]) -> float:
    """Return by how much the variance of a share exceeds that of independent events, at least 1.

    `hits` has for each second how many of how many.
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


def _costs_in(stage: StageResult, second: Second, operation: str) -> Histogram:
    outcomes = stage.waited(operation)
    return Histogram.merged(
        second[name] for outcome in outcomes if (name := tag(operation, outcome)) in second
    )


def _count(second: Second, operation: str, outcome: str) -> int:
    found = second.get(tag(operation, outcome))
    return found.total if found is not None else 0


def _attempts_in(second: Second, operation: str) -> int:
    return sum(_count(second, operation, outcome) for outcome in ("ok", *FAILURES))
