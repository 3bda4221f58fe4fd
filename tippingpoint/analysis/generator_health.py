"""What the generator's own lateness may have caused, and so says nothing about the target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tippingpoint.analysis.latency import costs, freed_costs
from tippingpoint.plan.claim import ClaimPlan, ClaimWorkload
from tippingpoint.plan.read import Plan
from tippingpoint.rundir.curves import Curve
from tippingpoint.rundir.histogram import rank_of
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.rundir.standstills import LEAST, Cause, Stall
from tippingpoint.rundir.tags import DELAYED, LOOP_LAG, SCHEDULE_LAG, tag
from tippingpoint.util.durations import show_moment, show_us
from tippingpoint.util.text import show_size

BUSY_CORES = 0.9
"""A worker is one process on one core: above this share of it, what it measures is also its own queue."""
LATE_US = 100_000
"""The generator must be on time to this at the 99th percentile, or its own delay is part of every latency."""
EXPLAINS = 4
"""A wait of more than so many times the generator's delay is not explained by that delay."""
_STOOD_STILL: dict[Cause, str] = {
    "stopped": "stopped for",
    "busy": "busy with its own work for",
    "processor": "waiting for a free processor for",
    "steal": "without a processor (taken by the hypervisor) for",
    "suspend": "suspended with its machine for",
    "unknown": "stalled for",
}
OF_MARGIN = 0.1
"""The least share of the time between a renewal and the end of its claim that can cost a lease."""


@dataclass(frozen=True)
class OwnLosses:
    """Leases lost in one stage for which the generator may be to blame."""

    count: int
    of: int
    """All leases lost in that stage."""
    why: str
    """What the generator did, in a few words."""


def stage_saturated(stage: StageResult) -> str | None:
    """Why the generator, not the target, was the bottleneck in a stage, in one line; None when it was not."""
    if not has_free_core(stage):
        return f"a worker used {stage.gauges['cpu']:.2f} of its core (limit {BUSY_CORES})"
    for name, what in ((SCHEDULE_LAG, "operations were sent"), (LOOP_LAG, "the event loop ran")):
        late = _p99(stage, name)
        if late > LATE_US:
            return f"{what} {show_us(late)} late at the 99th percentile (limit {show_us(LATE_US)})"
    return None


def has_free_core(stage: StageResult) -> bool:
    """Whether the busiest worker had time to spare; without it nothing is known of what caused a delay."""
    return stage.gauges.get("cpu", 0.0) <= BUSY_CORES


def own_delay(stage: StageResult) -> int:
    """The generator's own part in a latency of the stage, at its 99th percentile, in microseconds."""
    return _p99(stage, SCHEDULE_LAG) + _p99(stage, LOOP_LAG)


def explained(
    run: RunData,
    stage: StageResult,
    stalls: Sequence[Stall],
    operation: str,
    percentile: float,
    limit: float,
) -> str | None:
    """Why the generator's own delay may be all that a percentile in 0..100 is above a limit (in microseconds) by, in a
    few words; None when the target was too slow besides.

    That delay is known for each operation; of runs that do not have it on record, by what the generator was late at
    that rank. `stalls` are the stage's.
    """
    observed = costs(stage, operation).percentile(percentile)
    if _knows_own_delays(run):
        freed = freed_costs(stage, operation).percentile(percentile)
        # What was no standstill yet is in no operation's own delay.
        if freed > limit + min(_p99(stage, LOOP_LAG), LEAST * 1e6):
            return None
        longest = longest_stall(stalls)
        what = show_stall(longest) if longest is not None else "late"
        return f"the generator itself was {what}: without its own delay it is {show_us(freed)}"
    delay = max(own_delay(stage), _at_rank(stage, operation, percentile))
    if observed > limit + delay:
        return None
    return stage_saturated(stage) or f"the miss is within the generator's own delay ({show_us(delay)})"


def longest_stall(stalls: Iterable[Stall]) -> Stall | None:
    """The longest time that a worker stood still for; None when none did."""
    return max(stalls, key=lambda stall: stall.seconds, default=None)


def show_stall(stall: Stall) -> str:
    """What a worker was, for how long, and when."""
    return f"{show_state(stall)} at {show_moment(stall.begin)}"


def show_worker(run: RunData, stall: Stall) -> str:
    """Which worker it was."""
    return stall.worker if run.units else f"worker {stall.worker}"


def show_state(stall: Stall) -> str:
    """What a worker was, and for how long."""
    return f"{_STOOD_STILL[stall.cause]} {show_us(stall.seconds * 1e6)}"


def _knows_own_delays(run: RunData) -> bool:
    """Whether it is on record which operations the generator delayed: then some were, if only by a millisecond."""
    return any(name.endswith(DELAYED) for stage in run.stages for name in stage.histograms)


def _at_rank(stage: StageResult, operation: str, percentile: float) -> int:
    """How late the generator was as often as an operation is beyond a percentile, in microseconds."""
    total = costs(stage, operation).total
    beyond = total - rank_of(percentile, total) if total else 0
    lag, loop = (stage.histograms.get(name) for name in (SCHEDULE_LAG, LOOP_LAG))
    sent = (
        lag.percentile(100.0 * (lag.total - beyond) / lag.total)
        if lag is not None and lag.total > beyond
        else 0
    )
    return sent + (loop.percentile(percentile) if loop is not None else 0)


def own_losses(
    run: RunData, plan: Plan | None, stalls: Sequence[Stall], stage: StageResult
) -> OwnLosses | None:
    """The stage's lost leases that the generator may have lost itself; None when there are none.

    `stalls` are those of the whole run.

    All of them, where it was strained throughout the stage and they were not lost after EXPLAINS times its
    delay; else those before which it was late for a while, as when its process was stopped: for at least
    OF_MARGIN of the time that a renewal has, and again not for much less than the loss took to come out.
    """
    lost = stage.count("extend", "lost")
    if not lost:
        return None
    strained = stage_saturated(stage)
    waited = stage.response("extend", "lost").percentile(50)
    if strained and not (has_free_core(stage) and waited > EXPLAINS * own_delay(stage)):
        return OwnLosses(lost, lost, strained)
    late, worst = _lost_after_a_delay(run, plan, stalls, stage)
    if not late:
        return None
    why = (
        f"the generator itself was {show_us(worst)} late before {show_size(late)} of {show_size(lost)} losses"
    )
    return OwnLosses(late, lost, why)


def _lost_after_a_delay(
    run: RunData, plan: Plan | None, stalls: Sequence[Stall], stage: StageResult
) -> tuple[int, float]:
    """How many leases were lost in seconds that a delay of the generator goes before, and the longest such delay."""
    curve = run.curves.get(tag("extend", "lost"))
    if curve is None or run.manifest.timeline == "order":
        return 0, 0.0
    workload = plan.workload if isinstance(plan, ClaimPlan) else ClaimWorkload()  # an imported run has none
    least = OF_MARGIN * max(0.0, workload.claim_time - workload.renew_time) * 1e6
    end = stage.end if stage.end is not None else np.inf
    count, worst = 0, 0.0
    for t, lost, waited in zip(curve.t, curve.count, curve.p50, strict=True):
        if not stage.begin < t + run.bin_seconds or t >= end:
            continue
        since = t - max(workload.claim_time, workload.renew_time + waited / 1e6)
        delay = sum(
            _longest(run.curves.get(name), since - run.bin_seconds, t) for name in (SCHEDULE_LAG, LOOP_LAG)
        )
        # A machine that was suspended was not late by its own clock.
        slept = sum(
            stall.seconds
            for stall in stalls
            if stall.cause == "suspend" and since - run.bin_seconds <= stall.begin <= t + run.bin_seconds
        )
        delay += slept * 1e6
        waited += slept * 1e6
        if delay > LATE_US and delay >= least and waited <= EXPLAINS * delay:
            count += int(lost)
            worst = max(worst, delay)
    return min(count, stage.count("extend", "lost")), worst


def _longest(curve: Curve | None, since: float, until: float) -> float:
    if curve is None:
        return 0.0
    return float(curve.max[(curve.t >= since) & (curve.t <= until)].max(initial=0))


def _p99(stage: StageResult, name: str) -> int:
    found = stage.histograms.get(name)
    return found.percentile(99) if found is not None else 0
