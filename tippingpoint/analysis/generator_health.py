"""Finds results that the generator's own lateness may have caused and that are inconclusive about the target."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tippingpoint.analysis.asked import leases_of
from tippingpoint.analysis.latency import costs, freed_costs
from tippingpoint.plan.claim import ClaimPlan, ClaimWorkload
from tippingpoint.plan.read import Plan
from tippingpoint.rundir.curves import Curve
from tippingpoint.rundir.journal import count_of
from tippingpoint.rundir.recorder import rank_of
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.rundir.standstills import LEAST, Cause, Stall
from tippingpoint.rundir.tags import DELAYED, LOOP_LAG, SCHEDULE_LAG, tag
from tippingpoint.util.durations import show_moment
from tippingpoint.util.numbers import show_share, show_us
from tippingpoint.util.text import show_size

BUSY_CORES = 0.9
"""The largest healthy CPU use of a worker, which is one process on one core. Above it, a worker also measures its own
queue."""
LATE_US = 100_000
"""The largest healthy lateness of the generator at the 99th percentile. Above it, every latency includes its delay."""
EXPLAINS = 4
"""The generator's delay explains a wait of at most this many times the delay."""
_STOOD_STILL: dict[Cause, str] = {
    "stopped": "stopped for",
    "busy": "busy with its own work for",
    "processor": "waiting for a free processor for",
    "steal": "without a processor (taken by the hypervisor) for",
    "suspend": "suspended with its machine for",
    "unknown": "stalled for",
}
_TOLD_WITHIN = 2.0
"""Seconds within which a worker has reported a write that was undone: it collects such writes for one second."""
OF_MARGIN = 0.1
"""The least delay that can cost a lease, as a share of the time between a renewal and the end of its claim."""


@dataclass(frozen=True)
class OwnLosses:
    """Leases lost in one stage for which the generator may be to blame."""

    count: int
    of: int
    """The number of all leases lost in that stage."""
    why: str
    """What went wrong in the generator, in a few words."""


def stage_saturated(stage: StageResult) -> str | None:
    """Return why the generator was the bottleneck in a stage, in one line; None if it was not."""
    if not has_free_core(stage):
        return f"a worker used {show_share(stage.gauges['cpu'])} of its core (tolerated: {show_share(BUSY_CORES)})"
    for name, what in ((SCHEDULE_LAG, "operations were sent"), (LOOP_LAG, "the event loop ran")):
        late = _p99(stage, name)
        if late > LATE_US:
            return f"{what} {show_us(late)} late at the 99th percentile (tolerated: {show_us(LATE_US)})"
    return None


def has_free_core(stage: StageResult) -> bool:
    """Return whether the busiest worker had CPU time to spare. Otherwise the cause of a delay is unknown."""
    return stage.gauges.get("cpu", 0.0) <= BUSY_CORES


def own_delay(stage: StageResult) -> int:
    """Return the generator's own part of the stage's latencies, at its 99th percentile, in microseconds."""
    return _p99(stage, SCHEDULE_LAG) + _p99(stage, LOOP_LAG)


def explained(
    run: RunData,
    stage: StageResult,
    stalls: Sequence[Stall],
    operation: str,
    percentile: float,
    limit: float,
) -> str | None:
    """Return why the generator's own delay alone may have put a percentile above its limit, in a few words.

    None if the target itself was too slow. `percentile` is in 0..100, `limit` in microseconds; `stalls` are the
    stage's. The delay is recorded for each operation. In runs without this record, the generator's lateness at the same
    rank is used.
    """
    observed = costs(stage, operation).percentile(percentile)
    if _knows_own_delays(run):
        freed = freed_costs(stage, operation).percentile(percentile)
        # A delay too short to be a stall is not included in any operation's own delay.
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
    """Return the longest stall; None without any."""
    return max(stalls, key=lambda stall: stall.seconds, default=None)


def show_stall(stall: Stall) -> str:
    """Say what a worker was doing during a stall, for how long, and when."""
    return f"{show_state(stall)} at {show_moment(stall.begin)}"


def show_worker(run: RunData, stall: Stall) -> str:
    """Name the worker that stalled."""
    return stall.worker if run.units else f"worker {stall.worker}"


def show_state(stall: Stall) -> str:
    """Say what a worker was doing during a stall, and for how long."""
    return f"{_STOOD_STILL[stall.cause]} {show_us(stall.seconds * 1e6)}"


def _knows_own_delays(run: RunData) -> bool:
    """Return whether the run recorded which operations the generator delayed. If so, some delays are at least 1 ms."""
    return any(name.endswith(DELAYED) for stage in run.stages for name in stage.histograms)


def _at_rank(stage: StageResult, operation: str, percentile: float) -> int:
    """Return the generator's lateness at the rank of an operation's percentile, in microseconds."""
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
    """Return the stage's lost leases whose loss the generator itself may have caused; None if there are none.

    `stalls` are those of the whole run. A loss that the target is known to have caused, by undoing a write that it had
    acknowledged, is not attributed to the generator.

    All of them count if the generator was strained throughout the stage, unless the losses took more than EXPLAINS
    times its delay. Otherwise, losses count if the generator was late before them, for example because its process was
    stopped. That delay must be at least OF_MARGIN of the time available for a renewal, and must explain the wait
    (EXPLAINS).
    """
    lost = stage.count("extend", "lost") - _undone(run, stage)
    if lost <= 0:
        return None
    strained = stage_saturated(stage)
    waited = stage.response("extend", "lost").percentile(50)
    if strained and not (has_free_core(stage) and waited > EXPLAINS * own_delay(stage)):
        return OwnLosses(lost, lost, strained)
    late, worst = _lost_after_a_delay(run, plan, stalls, stage)
    late = min(late, lost)
    if not late:
        return None
    why = (
        f"the generator itself was {show_us(worst)} late before {show_size(late)} of {show_size(lost)} losses"
    )
    return OwnLosses(late, lost, why)


def _undone(run: RunData, stage: StageResult) -> int:
    """Count a stage's losses caused by acknowledged writes that the target undid. They are reported some time later."""
    end = stage.end + _TOLD_WITHIN if stage.end is not None else np.inf
    told = (event for event in run.events if event["event"] == "undone")
    return sum(count_of(event) for event in told if stage.begin <= float(event["t"]) < end)


def _lost_after_a_delay(
    run: RunData, plan: Plan | None, stalls: Sequence[Stall], stage: StageResult
) -> tuple[int, float]:
    """Count the leases lost shortly after a delay of the generator, and return the longest such delay."""
    curve = run.curves.get(tag("extend", "lost"))
    if curve is None or run.manifest.timeline == "order":
        return 0, 0.0
    workload = plan.workload if isinstance(plan, ClaimPlan) else ClaimWorkload()  # an imported run has none
    asked = leases_of(run, plan, stage)
    renew_time = workload.renew_time if asked is None else asked[1]
    least = OF_MARGIN * max(0.0, workload.claim_time - renew_time) * 1e6
    end = stage.end if stage.end is not None else np.inf
    count, worst = 0, 0.0
    for t, lost, waited in zip(curve.t, curve.count, curve.p50, strict=True):
        if not stage.begin < t + run.bin_seconds or t >= end:
            continue
        since = t - max(workload.claim_time, renew_time + waited / 1e6)
        delay = sum(
            _longest(run.curves.get(name), since - run.bin_seconds, t) for name in (SCHEDULE_LAG, LOOP_LAG)
        )
        # A suspended machine is not late by its own clock.
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
