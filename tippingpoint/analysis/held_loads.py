"""Whether a load was held: to the end of its hold, with all of the load there, and answered in time.

What is found here of each stage is kept in findings.py, where all who want to know it read it. Whether thresholds were
met is another question (verdict.py): a load may be held and miss them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from tippingpoint.analysis.generator_health import (
    EXPLAINS,
    OwnLosses,
    has_free_core,
    own_delay,
)
from tippingpoint.analysis.latency import freed_costs
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.read import Plan
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.rundir.damage import Damage
from tippingpoint.rundir.journal import count_of
from tippingpoint.rundir.operations import LAUNCHES, MAKING
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.rundir.standstills import Stall
from tippingpoint.rundir.tags import FAILURES, tag
from tippingpoint.util.durations import format_duration, show_us
from tippingpoint.util.text import show_list, show_size

MOST = 0.5
"""A larger share than this is most."""
THERE = 0.9
"""The least share of a load that has to be there while it is held: a lease that was lost is soon claimed again."""
_LATE_MARKS = 1.0
"""Seconds that a hold may seem shorter than it was: workers hear of its begin and end one after the other."""
_AT_ITS_END = 0.1
"""The last share of a hold: a target that succeeds in nothing in it, and fails, has not come to the end of the hold."""
_QUICKEST = 10
"""The percentile of the times of things that tells how long one takes by itself."""
_FEW = 3
"""So few failures say little of how a hold ended."""


def cut_short(
    run: RunData, plan: Plan | None, stage: StageResult, missing: str, unmade: str, damage: Sequence[Damage]
) -> str:
    """Why a stage tells nothing of whether its load can be held: it was ended early, or load was missing.

    `missing` and `unmade` are what load_missing and not_made say of it, `damage` is that of its journals.
    """
    if run.manifest.timeline == "order":  # nobody knows when a load was brought up
        return ""
    if stage.hold_begin is None:
        return "it was ended before its load was up"
    if missing:
        return missing
    if stage.end is None or _ended_early(run, plan, stage):
        return "it was ended before its hold was over"
    return unmade or next((found.sentence for found in damage), "")


def gave_way(run: RunData, stage: StageResult, stalls: Iterable[Stall], late: str) -> str:
    """Why the target did not hold a load; empty when it did, or as far as the stage went.

    `stalls` are the stage's, and `late` is what `behind` says of it.
    """
    composite = [name for name in LAUNCHES if stage.attempts(name)]
    own = composite or run.own_load
    attempts = sum(stage.attempts(name) for name in own)
    failures = sum(stage.failures(name) for name in own)
    if failures > MOST * attempts:
        return f"most of its operations failed ({show_size(failures)} of {show_size(attempts)})"
    silent = _silent_at_its_end(run, stage, stalls)
    if silent:
        return silent
    if late:
        return (
            "most of its extends were answered after the next one was due"
            if run.manifest.workload == "claim"
            else f"most {run.things} were created later than they were due"
        )
    there = stage.gauges.get("held")
    counted = not run.instances
    if counted and stage.is_step and there is not None and there < THERE * stage.size:
        return f"only {show_size(there)} of {show_size(stage.size)} {run.manifest.load_unit} were there"
    return ""


def load_missing(run: RunData, stage: StageResult) -> str:
    """Whose share of the load was not there to a stage's end, in a few words; empty when all of it was."""
    end = stage.end if stage.end is not None else inf
    units = {unit.name for unit in run.units}
    gone = list(
        dict.fromkeys(
            str(event.get("worker"))
            for event in run.events
            if event["event"] == "worker-cut" and float(event["t"]) < end
        )
    )
    if not gone:
        return ""
    several = len(gone) > 1
    if units.issuperset(gone):
        return f"the load of {show_list(gone)} was missing"
    return f"{'workers' if several else 'worker'} {show_list(gone)} {'were' if several else 'was'} cut"


def not_made(run: RunData, stage: StageResult) -> str:
    """How many things of a stage were given up and why, or were just not there; empty when its load was whole."""
    end = stage.end if stage.end is not None else inf
    given_up = [
        event
        for event in run.events
        if event["event"] == "gave-up"
        and event.get("operation") in MAKING
        and stage.begin <= float(event["t"]) <= end
    ]
    if given_up:
        count = sum(count_of(event) for event in given_up)
        why = f"{given_up[-1].get('operation')}: {given_up[-1].get('error')}"
        return f"{show_size(count)} {run.things} of stage {stage.number} were given up ({why})"
    if (
        run.counts_things
        and stage.kind == "ramp"
        and stage.hold_begin is not None
        and (there := stage.gauges.get("held", stage.size)) < stage.size
    ):
        return (
            f"{show_size(stage.size - there)} of the {show_size(stage.size)} {run.things} of stage "
            f"{stage.number} were not there while it was held"
        )
    return ""


def behind(run: RunData, plan: Plan | None, stage: StageResult) -> str:
    """What was seen of a load that most was answered too late for, so that a queue grows; empty where none did.

    A lease is due to be extended once in each `renew_time`, and a thing is due to be made `rate` times a second.
    """
    if plan is None or run.manifest.timeline == "order" or not stage.is_step:
        return ""
    if isinstance(plan, ClaimPlan):
        renew_time = plan.workload.renew_time
        return "" if _caught_up(run, stage, renew_time) else _extended_too_late(stage, renew_time)
    if isinstance(plan, SpawnPlan) and plan.workload.rate is not None:
        return _made_too_late(run, stage, plan.workload.rate)
    return ""


def late_by_us(stage: StageResult, own: OwnLosses | None, strained: str | None, late: str) -> str:
    """Why a stage that was not held may be the generator's own doing: it lost the leases, or the queue was its own.

    Of the stage, `own` is what own_losses says, `strained` what stage_saturated says, and `late` what `behind` does.
    """
    if own is not None:
        return own.why
    if strained is None or not late:
        return ""
    waited = max(stage.response(name).percentile(50) for name in ("extend", *LAUNCHES, "create"))
    return "" if has_free_core(stage) and waited > EXPLAINS * own_delay(stage) else strained


def _caught_up(run: RunData, stage: StageResult, renew_time: float) -> bool:
    """Whether extends were answered in time when a hold ended: a queue that a pause made is gone, and does not grow."""
    begin, end, curve = stage.hold_begin, stage.end, run.curves.get(tag("extend"))
    if begin is None or end is None or curve is None:
        return False
    last = (curve.t + run.bin_seconds > end - _at_its_end(run, begin, end)) & (
        curve.t + run.bin_seconds <= end
    )
    answered = int(curve.count[last & (curve.p50 <= renew_time * 1e6)].sum())
    seconds = int(last.sum()) * run.bin_seconds
    due = stage.gauges.get("held", float(stage.size)) / renew_time * seconds
    return answered > MOST * max(due, int(curve.count[last].sum()))


def _at_its_end(run: RunData, begin: float, end: float) -> float:
    """Seconds before the end of a hold that tell how it ended."""
    return max(_AT_ITS_END * (end - begin), 2 * run.bin_seconds)


def _extended_too_late(stage: StageResult, renew_time: float) -> str:
    rate = stage.throughput("extend")
    there = stage.gauges.get("held", float(stage.size))
    due = there / renew_time
    waited = freed_costs(stage, "extend")
    typical = waited.percentile(50) if waited.total else 0
    too_late = typical > renew_time * 1e6
    if rate is not None and stage.hold_begin is not None and stage.end is not None:
        seconds = stage.end - stage.hold_begin
        periods = seconds // renew_time  # in each of them every lease is due once
        starved = periods > 1 and rate * seconds < MOST * there * periods
        if starved or (too_late and rate < THERE * due):
            return f"throughput below what is due: {show_size(rate)} of {show_size(due)} extends a second"
    if too_late:
        return (
            f"half of the extends took {show_us(typical)} or more, and each is due again after "
            f"{format_duration(renew_time)}"
        )
    return ""


def _made_too_late(run: RunData, stage: StageResult, rate: float) -> str:
    """Half of them were there later than twice the time in which half were due, their own time left out.

    A thing takes as long as it takes, as the quickest show: so few that all are due within that time say nothing of
    a queue, and one that takes long alone is not most.
    """
    name = next((name for name in LAUNCHES if stage.attempts(name)), "create")
    made = stage.count(name)
    if not made:
        return ""
    own = freed_costs(stage, name).percentile(_QUICKEST) / 1e6
    half, due = _when_made(stage, made / 2), made / 2 / rate
    if made / rate <= own or half is None or half - own <= due / MOST:
        return ""
    return f"throughput below what is due: {show_size(made / 2 / half)} of {rate:g} {run.things} a second"


def _when_made(stage: StageResult, count: float) -> float | None:
    """After how many seconds of a stage so many things were there that had not been; None when nobody knows."""
    if not stage.growth:
        return None
    begin, before = stage.growth[0]
    since = 0.0
    there = before
    for t, now in stage.growth[1:]:
        if now - before >= count:
            share = (before + count - there) / (now - there)
            return since + share * (t - begin - since)
        since, there = t - begin, now
    return None


def _silent_at_its_end(run: RunData, stage: StageResult, stalls: Iterable[Stall]) -> str:
    """What is said of a target that was gone for good before a hold was over, and did not come back in it."""
    begin, end = stage.hold_begin, stage.end
    if begin is None or end is None or not any(tag(name) in run.curves for name in run.own_load):
        return ""
    last = max((_last(run, tag(name), begin, end) for name in run.own_load), default=begin)
    silent = end - last - _stood_still(stalls, last, end)
    if silent < _at_its_end(run, begin, end):
        return ""
    following = min((other.begin for other in run.stages if other.begin >= end), default=inf)
    failures = 0
    for name in run.own_load:
        for outcome in FAILURES:
            curve = run.curves.get(tag(name, outcome))
            if curve is not None:  # what has no answer when the load ends is counted after that
                failures += int(curve.count[(curve.t >= last) & (curve.t < max(end, following))].sum())
    return f"nothing succeeded in its last {format_duration(round(silent))}" if failures >= _FEW else ""


def _stood_still(stalls: Iterable[Stall], begin: float, end: float) -> float:
    """For how many seconds the worker that stood still longest did so: it asked for nothing, and heard no answers.

    Workers stand still at the same time where their machine does, so their times do not add up.
    """
    of_workers: dict[str, float] = {}
    for stall in stalls:
        still = max(0.0, min(stall.end, end) - max(stall.begin, begin))
        of_workers[stall.worker] = of_workers.get(stall.worker, 0.0) + still
    return max(of_workers.values(), default=0.0)


def _last(run: RunData, name: str, begin: float, end: float) -> float:
    """When something was last seen in a span of time; its begin when it was not."""
    curve = run.curves.get(name)
    if curve is None:
        return begin
    seen = curve.t[(curve.t < end) & (curve.count > 0)]
    return max(begin, min(end, float(seen[-1]) + run.bin_seconds)) if seen.size else begin


def _ended_early(run: RunData, plan: Plan | None, stage: StageResult) -> bool:
    """Whether the run ended in mid-hold: only its last stage can have been cut so."""
    status = run.manifest.status
    if status == "complete" or stage.number != max(each.number for each in run.stages):
        return False
    assert stage.hold_begin is not None
    assert stage.end is not None
    if any(event["event"] == "interrupted" and float(event["t"]) < stage.end for event in run.events):
        return True
    # Of a run that goes on, a stage has ended when it was time, as another begins or a search goes by it.
    planned = _planned_hold(run, plan, stage) if status != "running" else None
    return planned is not None and stage.end - stage.hold_begin < planned - _LATE_MARKS


def _planned_hold(run: RunData, plan: Plan | None, stage: StageResult) -> float | None:
    """How long the plan holds a stage; None when there is no plan, or the stage is none of its."""
    if plan is None:
        return None
    if isinstance(plan, ClaimPlan) and plan.find is not None:
        return plan.find.hold
    # A storm is a stage of its own in the journals, and a part of one in the plan.
    before = sum(each.kind != "storm" for each in run.stages if each.number <= stage.number)
    listed: Sequence[float] = [each.hold for each in plan.stages]
    place = run.manifest.first_stage - 1 + before - 1
    return listed[place] if 0 <= place < len(listed) else None
