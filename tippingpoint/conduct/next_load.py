"""Judges a turn of a run by its measurements, and chooses the next load.

It keeps no state: a run's probes are in its SharedRun, so any unit that becomes the leader goes on from there. With
`after: recover`, next_lower.py goes on after the last load.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tippingpoint.analysis.judged_probe import judge_probe
from tippingpoint.analysis.search.rebuilt import aim_of, steering
from tippingpoint.analysis.search.searcher import Searcher
from tippingpoint.analysis.search.stage_margins import each_from_nothing
from tippingpoint.conduct.next_lower import begin_after_search, next_lower
from tippingpoint.conduct.search_messages import NextLoad, SearchEnd, finite
from tippingpoint.conduct.turn_reports import TurnReports
from tippingpoint.errors import UserError
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.find import Find
from tippingpoint.plan.read import SearchPlan
from tippingpoint.plan.share import probe_part
from tippingpoint.rundir.probe_events import ProbeEvent
from tippingpoint.util.text import show_size


def next_load(reports: TurnReports, searcher: Searcher | None = None) -> NextLoad:
    """Return what follows the last turn of a run. Raises UserError for a run in which nothing is judged.

    `searcher` knows the run's probes, and learns of the next one; without it, one is made from them.
    """
    run = reports.run
    plan = run.validated()
    if isinstance(plan, CtsPlan) or not (run.shared or run.recovers):
        raise UserError("find", plan.name, "a plan with a search, or with lower loads after its last one")
    if run.found is not None or plan.find is None:
        return next_lower(plan, reports)
    searcher = searcher or searcher_after(plan, plan.find, run.probes)
    if not run.turns:
        return _after(reports, plan, searcher, run.first - 1, None, fresh=True)
    turn = run.turns[-1]
    if reports.lost:
        if not (plan.is_held or plan.cycles):  # leases expire, and an iteration's things are removed
            why = f"{reports.lost} is missing, and its instances are still part of each load"
            return NextLoad(after=turn.number, stop=why)
        return _after(reports, plan, searcher, turn.number, None, fresh=True)
    if why := reports.unread:
        return NextLoad(after=turn.number, stop=why)
    event, silent = _probe(plan, plan.find, reports)
    if silent and reports.gone:
        return NextLoad(after=turn.number, probe=event, stop=f"the target is gone: {reports.gone}"[:1000])
    searcher.tell(steering(plan, event))
    return _after(reports, plan, searcher, turn.number, event, fresh=silent or event.aborted)


def next_load_later(reports: TurnReports, searcher: Searcher, following: NextLoad) -> NextLoad:
    """Return what follows a probe that was judged some time ago, and that the run has been waiting to repeat.

    `following` is what `next_load` returned then. The next load begins from nothing.
    """
    plan = reports.run.validated()
    assert not isinstance(plan, CtsPlan)  # no such plan searches
    return _after(reports, plan, searcher, following.after, following.probe, fresh=True)


def searcher_after(plan: SearchPlan, find: Find, probes: Iterable[ProbeEvent]) -> Searcher:
    """Return the searcher of a plan that knows these probes."""
    searcher = Searcher(aim_of(find))
    for event in probes:
        searcher.tell(steering(plan, event))
    return searcher


def _probe(plan: SearchPlan, find: Find, reports: TurnReports) -> tuple[ProbeEvent, bool]:
    """Judge the load as if one machine had applied it; also returns whether nothing of it succeeded."""
    turn, started = reports.run.turns[-1], reports.run.started
    assert started is not None
    with reports.whole() as whole:
        judged = judge_probe(
            whole,
            plan,
            turn.number,
            plan.thresholds,
            find.also,
            unanswered=reports.unanswered,
            parts=reports.parts,
        )
    # A result that other programs may have caused is tried again once they have gone.
    aborted = "" if judged.foreign else reports.aborted
    if aborted:
        judged = replace(judged, held=False, broken=(f"aborted: {aborted}",))
    event = judged.event(
        plan,
        turn.number,
        plan.load_at(turn.load or 0.0),
        fresh=turn.fresh,
        began=turn.begin - started,
        seconds=reports.ended - turn.begin,
        gone=reports.gone if judged.silent else "",
        aborted=bool(aborted),
    )
    return event, judged.silent


def _after(
    reports: TurnReports,
    plan: SearchPlan,
    searcher: Searcher,
    number: int,
    probe: ProbeEvent | None,
    *,
    fresh: bool,
) -> NextLoad:
    """Return the searcher's next load, or its answer."""
    run = reports.run
    elapsed = 0.0 if run.started is None else reports.ended - run.started
    ask = searcher.ask(elapsed)
    if ask is None:
        answer = searcher.answer_at(elapsed)
        end = SearchEnd(ended=answer.ended, limit=answer.limit, low=answer.low, high=finite(answer.high))
        following = NextLoad(after=number, probe=probe, end=end)
        return begin_after_search(run, plan, following) if run.recovers else following
    try:
        asked = probe_part(plan, ask.load, 0, max(1, len(run.units) - len(run.missing)))[0]
    except UserError as refused:
        return NextLoad(
            after=number,
            probe=probe,
            stop=f"the load {show_size(ask.load)} cannot be shared: {refused}"[:1000],
        )
    return NextLoad(
        after=number,
        probe=probe,
        load=ask.load,
        fresh=fresh or ask.fresh or each_from_nothing(plan),
        hold=min(ask.hold, asked.hold),
    )
