"""Judges the lower loads of a run (`after: recover`), after its last stage or its search, and chooses the next one.

A target may stay broken at a load that it sustained before, although what broke it is gone: a metastable failure (N.
Bronson et al., Metastable Failures in Distributed Systems, HotOS 2021). The lower loads show whether it stays broken.

Each load is a turn like any other, and is judged by its measurements. Its result is in the run's `Recovery`, so any
unit that becomes the leader goes on from there.
"""

from __future__ import annotations

from math import inf

from tippingpoint.analysis.findings import examine_stage
from tippingpoint.analysis.recovery.comeback import says_nothing
from tippingpoint.analysis.recovery.recovery_watch import WINDOW, hold_of
from tippingpoint.conduct.load_reduction import (
    Following,
    LoadOutcome,
    LoadReduction,
    Tried,
    is_none,
    judged_whole,
    showed,
)
from tippingpoint.conduct.recovery_messages import LoadShown, Recovery
from tippingpoint.conduct.run_state import SharedRun, Turn
from tippingpoint.conduct.search_messages import NextLoad
from tippingpoint.conduct.turn_reports import TurnReports
from tippingpoint.errors import UserError
from tippingpoint.plan.fields import as_amount
from tippingpoint.plan.read import SearchPlan
from tippingpoint.plan.share import probe_part
from tippingpoint.util.text import show_size

_NOT_TOGETHER = "thresholds held on each unit for a while, but not on all of them at once"
"""Why a load whose hold ended early may say nothing."""


def begin_after_search(run: SharedRun, plan: SearchPlan, following: NextLoad) -> NextLoad:
    """Return what follows the end of a run's search, which `following` describes: a load that broke it, once more."""
    probes = run.probes if following.probe is None else [*run.probes, following.probe]
    ended = run.model_copy(update={"probes": probes, "found": following.end})
    begins = _next(ended, plan, Recovery(), following.after)
    return begins.model_copy(update={"probe": following.probe, "end": following.end})


def next_lower(plan: SearchPlan, reports: TurnReports) -> NextLoad:
    """Return what follows the last turn of a run: its last listed stage, or a load after that."""
    run, turn, lost = reports.run, reports.run.turns[-1], reports.lost
    unknown = f"{lost} is missing: {run.missing[lost]}" if lost else reports.unread
    if run.recovery is None:
        if unknown:
            recovery = Recovery(skipped=unknown, over=True)
            return NextLoad(after=turn.number, recovery=recovery)
        recovery = Recovery(stages=_stages(plan, reports))
        return _next(run, plan, recovery, turn.number)
    following = _reduction(run, plan, run.recovery).ask()
    assert following is not None  # its turn is over
    missing = unknown or reports.missing
    after: float | None = None
    if missing:
        result = LoadOutcome(None, missing=missing)
    elif is_none(plan, following.load):
        result = LoadOutcome(None)
    else:
        result, since = _showed(plan, reports, following)
        lowered = run.recovery.lowered or turn.begin
        after = max(0.0, since - lowered) if result.held and following.lowers else None
    seconds = reports.ended - turn.begin
    return _next(run, plan, _with(run.recovery, plan, turn, following, result, after, seconds), turn.number)


def _with(
    recovery: Recovery,
    plan: SearchPlan,
    turn: Turn,
    following: Following,
    outcome: LoadOutcome,
    after: float | None,
    seconds: float,
) -> Recovery:
    shown = LoadShown(
        stage=None if is_none(plan, following.load) else turn.number,
        load=following.load,
        lowers=following.lowers,
        held=outcome.held,
        after=None if after is None else round(after, 3),
        seconds=round(seconds, 3),
        nothing=outcome.nothing,
        missing=outcome.missing,
    )
    lowered = recovery.lowered
    if following.lowers and lowered is None:
        lowered = turn.begin
    return recovery.model_copy(update={"loads": [*recovery.loads, shown], "lowered": lowered})


def _next(run: SharedRun, plan: SearchPlan, recovery: Recovery, after: int) -> NextLoad:
    """Return the load that follows, or the end; `after` is the number of the turn before."""
    reduction = _reduction(run, plan, recovery)
    following = reduction.ask()
    hold = max(WINDOW, hold_of(plan))
    if following is not None and not is_none(plan, following.load):
        try:
            hold = probe_part(plan, following.load, 0, max(1, len(run.units) - len(run.missing)))[0].hold
        except UserError as refused:
            why = f"the load {show_size(following.load)} cannot be shared: {refused}"
            shown = LoadShown(
                stage=None, load=following.load, lowers=following.lowers, held=None, seconds=0.0, missing=why
            )
            recovery = recovery.model_copy(update={"loads": [*recovery.loads, shown]})
            reduction.tell(LoadOutcome(None, missing=why))
            following = None
    recovery = recovery.model_copy(
        update={
            "broken": reduction.broken,
            "before": reduction.before,
            "skipped": reduction.skipped,
            "over": following is None,
        }
    )
    if following is None:
        return NextLoad(after=after, recovery=recovery)
    return NextLoad(after=after, recovery=recovery, load=following.load, fresh=following.fresh, hold=hold)


def _reduction(run: SharedRun, plan: SearchPlan, recovery: Recovery) -> LoadReduction:
    """Return the load reduction of a run so far."""
    tried: list[Tried] = [*recovery.stages]
    surely = aborted = inf
    if plan.find is not None:
        tried = [(as_amount(probe.size), probe.held) for probe in run.probes]
        surely = run.found.low if run.found is not None else inf
        aborted = min((probe.size for probe in run.probes if probe.aborted), default=inf)
    reduction = LoadReduction(plan, tried, surely=surely, aborted=aborted)
    for shown in recovery.loads:
        reduction.tell(LoadOutcome(shown.held, shown.nothing, shown.missing))
    return reduction


def _stages(plan: SearchPlan, reports: TurnReports) -> list[Tried]:
    """Return the listed loads, and whether they held; None for a load of which a unit's share was not measured."""
    with reports.whole(all_turns=True) as whole:
        return [
            (
                as_amount(stage.size),
                showed(plan, examine_stage(whole, plan, stage)).held
                if reports.is_whole(stage.number, stage.size)
                else None,
            )
            for stage in whole.stages
            if stage.kind not in ("storm", "destroy")
        ]


def _showed(plan: SearchPlan, reports: TurnReports, following: Following) -> tuple[LoadOutcome, float]:
    """Return the result of a load, and the moment since which thresholds held, if they did."""
    turn = reports.run.turns[-1]
    with reports.whole() as whole:
        found = examine_stage(whole, plan, whole.stage(turn.number))
    result = showed(plan, found)
    if not following.lowers:
        return result, turn.begin
    if not following.load:
        return LoadOutcome(None), turn.begin
    if judged_whole(plan):
        return LoadOutcome(result.held is True, result.nothing), turn.begin
    since = reports.held_since(plan, whole_hold=result.held is True)
    if since == inf and turn.ends is not None:
        return LoadOutcome(None, _NOT_TOGETHER), since
    return LoadOutcome(since < inf, "" if since < inf else says_nothing(found)), since
