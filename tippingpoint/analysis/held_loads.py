"""Decides whether a load was held: fully present and answered in time until the end of its hold.

The module findings keeps the results for each stage, and all other modules read them there. Whether thresholds were met
is a separate question (verdict.py): a load may be held and still miss them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

from tippingpoint.analysis.asked import asked_of
from tippingpoint.analysis.generator_health import (
    EXPLAINS,
    OwnLosses,
    has_free_core,
    own_delay,
)
from tippingpoint.analysis.latency import freed_costs
from tippingpoint.plan.claim import ClaimPlan, Stage
from tippingpoint.plan.operate import OperatePlan, OperateStage
from tippingpoint.plan.read import Plan
from tippingpoint.plan.spawn import SpawnPlan, SpawnStage
from tippingpoint.plan.store import StorePlan, StoreStage
from tippingpoint.rundir.damage import Damage
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.journal import count_of
from tippingpoint.rundir.operations import LAUNCHES, MAKING
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.rundir.standstills import Stall
from tippingpoint.rundir.tags import FAILURES, tag
from tippingpoint.util.durations import show_span
from tippingpoint.util.numbers import show_us
from tippingpoint.util.text import choose, show_amount, show_list, show_size, singular

MOST = 0.5
"""Any larger share counts as most."""
_TOO_SLOWLY = "claims a second"
_OPERATIONS = "operations a second"
_ANSWERED = ("ok", "denied", *FAILURES)
"""The outcomes of operations that were answered or given up."""
THERE = 0.9
"""The least share of a load that must be present during the hold. It is below 1 because lost leases are reclaimed."""
_LATE_MARKS = 1.0
"""Seconds by which a hold may appear too short: workers learn of its start and end one after the other."""
_AT_ITS_END = 0.1
"""The last share of a hold. A target with failures and no success in this part did not hold the load to the end."""
_QUICKEST = 10
"""The percentile of creation times that is taken as the time to create one thing without a queue."""
_FEW = 3
"""The minimum number of failures that says anything about how a hold ended."""


def cut_short(
    run: RunData, plan: Plan | None, stage: StageResult, missing: str, unmade: str, damage: Sequence[Damage]
) -> str:
    """Return why a stage cannot show whether its load holds: it ended early, or load was missing. Empty if it can.

    `missing` and `unmade` are the results of load_missing and not_made for the stage; `damage` is that of its journals.
    """
    if run.manifest.timeline == "order":  # it is unknown when a load was brought up
        return ""
    if stage.hold_begin is None:
        return "it was ended before its load was up"
    if missing:
        return missing
    if stage.end is None or _ended_early(run, plan, stage):
        return "it was ended before its hold was over"
    missed = "" if stage.kind == "find" else unmade  # a search looks for the load that cannot be made
    return missed or next((found.sentence for found in damage), "")


def failed_to_hold(
    run: RunData,
    plan: Plan | None,
    stage: StageResult,
    stalls: Iterable[Stall],
    late: str,
    leader_changed: str = "",
    unmade: str = "",
    violated: str = "",
) -> str:
    """Return why the target did not hold a load; empty if it held it for as long as the stage lasted.

    `stalls` are the stage's, `late` is the result of `behind`, `leader_changed` that of leaders.leader_changed,
    `violated` that of violations.violated, and `unmade` that of `not_made`: if a search asked for things that could not
    be made, they were too many.
    """
    if violated:
        return violated
    composite = [name for name in LAUNCHES if stage.attempts(name)]
    own = composite or run.own_load
    attempts = sum(stage.attempts(name) for name in own)
    failures = sum(stage.failures(name) for name in own)
    if failures > MOST * attempts:
        return f"most of its operations failed ({show_size(failures)} of {show_size(attempts)})"
    silent = _silent_at_its_end(run, stage, stalls)
    if silent:
        return silent
    if leader_changed:
        return leader_changed
    if late:
        if late.endswith((_OPERATIONS, singular(_OPERATIONS))):
            return "its operations were answered more slowly than they were due"
        if run.manifest.workload != "claim":
            return f"most {run.things} were created later than they were due"
        if late.endswith((_TOO_SLOWLY, singular(_TOO_SLOWLY))):
            return "its claims were answered more slowly than they were due"
        return "most of its extends were answered after the next one was due"
    if stage.kind == "find" and unmade:
        return unmade
    there = stage.gauges.get("held")
    wanted, unit = _wanted(run, plan, stage)
    counted = not run.instances
    if counted and stage.is_step and there is not None and there < THERE * wanted:
        return (
            f"only {show_size(there)} of {show_amount(wanted, unit)} {choose(there, 'was', 'were')} present"
        )
    return ""


def _wanted(run: RunData, plan: Plan | None, stage: StageResult) -> tuple[float, str]:
    """Return how much of its load a stage has if it holds, in whatever the load counts, and what that is."""
    asked = asked_of(run, plan, stage)
    goal = plan.goal(asked) if plan is not None and asked is not None else None
    return goal or (stage.size, run.manifest.load_unit)


def load_missing(run: RunData, stage: StageResult) -> str:
    """Return whose share of the load was missing before a stage's end, in a few words; empty if none was."""
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


def not_made(run: RunData, plan: Plan | None, stage: StageResult) -> str:
    """Return how many things of a stage were given up and why, or were missing; empty if its load was complete."""
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
        were = choose(count, "was", "were")
        return f"{show_amount(count, run.things)} of stage {stage.number} {were} given up ({why})"
    wanted, _ = _wanted(run, plan, stage)
    if (
        (run.counts_things or (run.instances and plan is not None and plan.accumulates))
        and stage.kind in ("ramp", "find")
        and stage.hold_begin is not None
        and (there := stage.gauges.get("held", wanted)) < wanted
    ):
        return (
            f"{show_size(wanted - there)} of the {show_amount(wanted, run.things)} of stage {stage.number} "
            f"{choose(wanted - there, 'was', 'were')} missing while it was held"
        )
    return ""


def behind(run: RunData, plan: Plan | None, stage: StageResult, stalls: Sequence[Stall]) -> str:
    """Return the evidence that most of a load was answered too late, so that a queue grows; empty if none does.

    Each lease is due to be extended once in every `renew_time`, or as often as the stage's `renewals` say. Claims that
    are released again are due `claims` times a second, operations on keys as often as the stage specifies, and things
    are due to be created `rate` times a second. What was due while a worker stood still (`stalls`, the stage's) was not
    asked of the target then.
    """
    if plan is None or run.manifest.timeline == "order" or stage.kind in ("storm", "destroy"):
        return ""
    asked = asked_of(run, plan, stage)
    if isinstance(plan, ClaimPlan):
        workload = plan.workload
        wanted, renew_time = (plan.leases(asked) if asked is not None else None) or (
            stage.size,
            workload.renew_time,
        )
        late = ""
        if wanted and not _caught_up(run, stage, wanted, renew_time):
            late = _extended_too_late(stage, wanted, renew_time, stalls)
        claims = asked.claims if isinstance(asked, Stage) else None
        return late or (
            _answered_too_late(stage, ["claim"], claims, _TOO_SLOWLY, stalls) if claims is not None else ""
        )
    if isinstance(plan, StorePlan):
        rate = asked.rate if isinstance(asked, StoreStage) else 0.0
        return _answered_too_late(stage, run.own_load, rate, _OPERATIONS, stalls) if rate else ""
    if isinstance(plan, OperatePlan):
        rate = plan.rate_of(asked) if isinstance(asked, OperateStage) else 0.0
        return _answered_too_late(stage, run.own_load, rate, _OPERATIONS, stalls) if rate else ""
    if isinstance(plan, SpawnPlan):
        rate = (plan.workload.at(asked) if isinstance(asked, SpawnStage) else plan.workload).rate
        return _made_too_late(run, stage, rate, stalls) if rate is not None else ""
    return ""


def late_by_us(stage: StageResult, own: OwnLosses | None, strained: str | None, late: str) -> str:
    """Return why the generator itself may be the cause of a stage not being held; empty if it is not.

    It may have lost the leases, or the queue may be its own. For the stage, `own` is the answer of own_losses,
    `strained` that of stage_saturated, and `late` that of `behind`.
    """
    if own is not None:
        return own.why
    if strained is None or not late:
        return ""
    waited = max(stage.response(name).percentile(50) for name in ("extend", *LAUNCHES, "create"))
    return "" if has_free_core(stage) and waited > EXPLAINS * own_delay(stage) else strained


def _caught_up(run: RunData, stage: StageResult, wanted: float, renew_time: float) -> bool:
    """Return whether extends were answered in time at the end of a hold: any queue left by a pause is gone."""
    begin, end, curve = stage.hold_begin, stage.end, run.curves.get(tag("extend"))
    if begin is None or end is None or curve is None:
        return False
    last = (curve.t + run.bin_seconds > end - _at_its_end(run, begin, end)) & (
        curve.t + run.bin_seconds <= end
    )
    answered = int(curve.count[last & (curve.p50 <= renew_time * 1e6)].sum())
    seconds = int(last.sum()) * run.bin_seconds
    due = stage.gauges.get("held", wanted) / renew_time * seconds
    return answered > MOST * max(due, int(curve.count[last].sum()))


def _at_its_end(run: RunData, begin: float, end: float) -> float:
    """Return how many seconds of a hold count as its end."""
    return max(_AT_ITS_END * (end - begin), 2 * run.bin_seconds)


def _extended_too_late(stage: StageResult, wanted: float, renew_time: float, stalls: Iterable[Stall]) -> str:
    rate = stage.throughput("extend")
    there = stage.gauges.get("held", wanted)
    due = there / renew_time
    waited = freed_costs(stage, "extend")
    typical = waited.percentile(50) if waited.total else 0
    too_late = typical > renew_time * 1e6
    if rate is not None and stage.hold_begin is not None and stage.end is not None:
        seconds = stage.end - stage.hold_begin
        still = stood_still(stalls, stage.hold_begin, stage.end)
        periods = (seconds - still) // renew_time  # each lease is due once in each period
        starved = periods > 1 and rate * seconds < MOST * there * periods
        if starved or (too_late and rate < THERE * due):
            return _below_due(rate, due, "extends a second")
    if too_late:
        return (
            f"half of the extends took {show_us(typical)} or more, and each is due again after "
            f"{show_us(renew_time * 1e6)}"
        )
    return ""


def _answered_too_late(
    stage: StageResult, operations: Iterable[str], due: float, unit: str, stalls: Iterable[Stall]
) -> str:
    """Return whether operations were answered more slowly than they were due while a stage was held.

    Even without a queue, operations that were due in the last moments of a hold have no answer yet: as many as fall due
    while one operation takes place. Of each kind, one more may have been due just before the hold instead of in it,
    which matters where few are due.
    """
    if stage.hold_begin is None or stage.end is None:
        return ""
    names = {tag(operation, outcome) for operation in operations for outcome in _ANSWERED}
    there = [found for name, found in stage.held.items() if name in names]
    answered = Histogram.merged(there)
    seconds = stage.end - stage.hold_begin
    typical = answered.percentile(50) / 1e6 if answered.total else 0.0
    at_the_edges = 1 + len(there)
    still = stood_still(stalls, stage.hold_begin, stage.end)
    wanted = THERE * due * max(0.0, seconds - still - typical)
    if answered.total + at_the_edges >= wanted:
        return ""
    return _below_due(answered.total / seconds if seconds else 0, due, unit)


def _made_too_late(run: RunData, stage: StageResult, rate: float, stalls: Iterable[Stall]) -> str:
    """Return whether half of the things took more than twice the time in which half were due.

    The time that a thing needs without a queue, as shown by the quickest things, is subtracted. If all things are due
    within that time, they say nothing about a queue. A single slow thing is not most of them.
    """
    name = next((name for name in LAUNCHES if stage.attempts(name)), "create")
    made = stage.count(name)
    if not made:
        return ""
    own = freed_costs(stage, name).percentile(_QUICKEST) / 1e6
    half, due = _when_made(stage, made / 2), made / 2 / rate
    if made / rate <= own or half is None:
        return ""
    half -= stood_still(stalls, stage.begin, stage.begin + half)
    if half - own <= due / MOST:
        return ""
    return _below_due(made / 2 / half, rate, f"{run.things} a second")


def _below_due(rate: float, due: float, unit: str) -> str:
    """Return the evidence that less was done than was due; `unit` is the unit of both, in the plural."""
    asked = show_size(due)
    return f"throughput below the due rate: {show_size(rate)} of {asked} {singular(unit) if asked == '1' else unit}"


def _when_made(stage: StageResult, count: float) -> float | None:
    """Return the seconds after which `count` more things existed than at a stage's start; None if unknown."""
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
    """Return the evidence that the target stopped answering before the end of a hold and stayed silent; else empty."""
    begin, end = stage.hold_begin, stage.end
    if begin is None or end is None or not any(tag(name) in run.curves for name in run.own_load):
        return ""
    last = max((_last(run, tag(name), begin, end) for name in run.own_load), default=begin)
    silent = end - last - stood_still(stalls, last, end)
    if silent < _at_its_end(run, begin, end):
        return ""
    following = min((other.begin for other in run.stages if other.begin >= end), default=inf)
    failures = 0
    for name in run.own_load:
        for outcome in FAILURES:
            curve = run.curves.get(tag(name, outcome))
            if curve is not None:  # operations without an answer are counted after the load ends
                failures += int(curve.count[(curve.t >= last) & (curve.t < max(end, following))].sum())
    return f"nothing succeeded in its last {show_span(silent)}" if failures >= _FEW else ""


def stood_still(stalls: Iterable[Stall], begin: float, end: float) -> float:
    """Return for how many seconds the worker that stalled longest neither sent requests nor received answers.

    Workers stall together when their machine does, so their times are not added.
    """
    of_workers: dict[str, float] = {}
    for stall in stalls:
        still = max(0.0, min(stall.end, end) - max(stall.begin, begin))
        of_workers[stall.worker] = of_workers.get(stall.worker, 0.0) + still
    return max(of_workers.values(), default=0.0)


def _last(run: RunData, name: str, begin: float, end: float) -> float:
    """Return when something was last seen in a span of time; the span's start if it was not seen."""
    curve = run.curves.get(name)
    if curve is None:
        return begin
    seen = curve.t[(curve.t < end) & (curve.count > 0)]
    return max(begin, min(end, float(seen[-1]) + run.bin_seconds)) if seen.size else begin


def _ended_early(run: RunData, plan: Plan | None, stage: StageResult) -> bool:
    """Return whether the run ended during this stage's hold. Only the last stage can be cut short like this."""
    status = run.manifest.status
    if status == "complete" or stage.number != max(each.number for each in run.stages):
        return False
    assert stage.hold_begin is not None
    assert stage.end is not None
    if any(
        event["event"] in ("interrupted", "aborted") and float(event["t"]) < stage.end for event in run.events
    ):
        return True
    if stage.kind == "find" and any(
        event["event"] == "probe" and event.get("stage") == stage.number for event in run.events
    ):
        return False  # its hold was ended as soon as the answer was clear
    # In an unfinished run, a stage always ended as planned: another stage begins, or a search uses its
    # result.
    planned = _planned_hold(run, plan, stage) if status != "running" else None
    return planned is not None and stage.end - stage.hold_begin < planned - _LATE_MARKS


def _planned_hold(run: RunData, plan: Plan | None, stage: StageResult) -> float | None:
    """Return how many seconds the plan holds a stage; None without a plan, or if the stage is not in it."""
    if plan is None:
        return None
    asked = asked_of(run, plan, stage)
    return asked.hold if asked is not None else None
