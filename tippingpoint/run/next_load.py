"""Judges a turn of a run by what was measured of it, and says which load is next.

It keeps nothing: a run's probes are in its SharedRun, so any unit that becomes the leader goes on from there. With
`after: recover`, next_lower.py goes on after the last load.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tippingpoint.analysis.judged_probe import judge_probe
from tippingpoint.analysis.search.rebuilt import aim_of, steering
from tippingpoint.analysis.search.searcher import Searcher
from tippingpoint.analysis.search.stage_margins import each_from_nothing
from tippingpoint.errors import UserError
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.find import Find
from tippingpoint.plan.read import SearchPlan
from tippingpoint.plan.share import probe_part
from tippingpoint.run.next_lower import begin_after_search, next_lower
from tippingpoint.run.reported import Reported
from tippingpoint.rundir.probe_events import ProbeEvent
from tippingpoint.units.search_words import NextLoad, SearchEnd, finite
from tippingpoint.util.text import show_size


def next_load(told: Reported, searcher: Searcher | None = None) -> NextLoad:
    """Return what follows the last turn of a run. Raises UserError for a run of which nothing is judged.

    `searcher` knows the run's probes, and is told of the next one; without it, it is made from them.
    """
    run = told.run
    plan = run.validated()
    if isinstance(plan, CtsPlan) or not (run.shared or run.recovers):
        raise UserError("find", plan.name, "a plan with a search, or with lower loads after its last one")
    if run.found is not None or plan.find is None:
        return next_lower(plan, told)
    searcher = searcher or searcher_after(plan, plan.find, run.probes)
    if not run.turns:
        return _after(told, plan, searcher, run.first - 1, None, fresh=True)
    turn = run.turns[-1]
    if told.lost:
        if not (plan.holds_leases or plan.cycles):  # leases expire, and an iteration's things are removed
            why = f"{told.lost} is missing, and what it made is still part of each load"
            return NextLoad(after=turn.number, stop=why)
        return _after(told, plan, searcher, turn.number, None, fresh=True)
    if why := told.unread:
        return NextLoad(after=turn.number, stop=why)
    event, silent = _probe(plan, plan.find, told)
    if silent and told.gone:
        return NextLoad(after=turn.number, probe=event, stop=f"the target is gone: {told.gone}"[:1000])
    searcher.tell(steering(plan, event))
    return _after(told, plan, searcher, turn.number, event, fresh=silent or event.aborted)


def next_load_later(told: Reported, searcher: Searcher, following: NextLoad) -> NextLoad:
    """Return what follows a probe that was judged some time ago, and for whose repetition the run has waited since.

    `following` is what `next_load` returned then. The next load begins from nothing.
    """
    plan = told.run.validated()
    assert not isinstance(plan, CtsPlan)  # no such plan searches
    return _after(told, plan, searcher, following.after, following.probe, fresh=True)


def searcher_after(plan: SearchPlan, find: Find, probes: Iterable[ProbeEvent]) -> Searcher:
    """Return the searcher of a plan that knows these probes."""
    searcher = Searcher(aim_of(find))
    for event in probes:
        searcher.tell(steering(plan, event))
    return searcher


def _probe(plan: SearchPlan, find: Find, told: Reported) -> tuple[ProbeEvent, bool]:
    """Judge the load as if one machine had brought it; returns also whether nothing of it succeeded."""
    turn, started = told.run.turns[-1], told.run.started
    assert started is not None
    with told.whole() as whole:
        judged = judge_probe(
            whole,
            plan,
            turn.number,
            plan.thresholds,
            find.also,
            unanswered=told.unanswered,
            parts=told.parts,
        )
    # What other programs may have caused is tried again once they have gone.
    aborted = "" if judged.foreign else told.aborted
    if aborted:
        judged = replace(judged, held=False, broken=(f"aborted: {aborted}",))
    event = judged.event(
        plan,
        turn.number,
        plan.load_at(turn.load or 0.0),
        fresh=turn.fresh,
        began=turn.begin - started,
        seconds=told.ended - turn.begin,
        gone=told.gone if judged.silent else "",
        aborted=bool(aborted),
    )
    return event, judged.silent


def _after(
    told: Reported,
    plan: SearchPlan,
    searcher: Searcher,
    number: int,
    probe: ProbeEvent | None,
    *,
    fresh: bool,
) -> NextLoad:
    """Return the load that the searcher asks for, or its answer."""
    run = told.run
    elapsed = 0.0 if run.started is None else told.ended - run.started
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
