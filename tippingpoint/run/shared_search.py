"""Conducts a run whose turns are judged: judges a turn by its units' reports, and says which load is next.

It keeps nothing: a run's probes are in its SharedRun, so any unit that becomes the leader goes on from there. With
`after: recover`, shared_recovery.py goes on after the last load.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tippingpoint.analysis.judged_probe import JudgedProbe, judge_probe
from tippingpoint.analysis.search.rebuilt import aim_of, steering
from tippingpoint.analysis.search.searcher import Searcher
from tippingpoint.errors import UserError
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.find import Find
from tippingpoint.plan.read import SearchPlan
from tippingpoint.plan.share import probe_part
from tippingpoint.run.gathered_turn import Reported, hold_seconds
from tippingpoint.run.probe_loads import each_from_nothing
from tippingpoint.run.shared_recovery import begin_after_search, next_lower
from tippingpoint.rundir.histogram import Histogram, highest_values
from tippingpoint.rundir.probe_events import ProbeEvent
from tippingpoint.units.search_words import NextLoad, ProbeReport, SearchEnd, finite, shortened
from tippingpoint.units.shared_run import SharedRun, UnitWord
from tippingpoint.util.text import show_size


def next_load(
    run: SharedRun, words: Mapping[str, UnitWord], reports: Mapping[str, ProbeReport], folder: Path
) -> NextLoad:
    """Return what follows the last turn of a run, from its units' reports on that turn.

    Files are made below `folder`, and removed. Raises UserError for a run of which nothing is judged.
    """
    plan = run.validated()
    if isinstance(plan, CtsPlan) or not (run.shared or run.recovers):
        raise UserError("find", plan.name, "a plan with a search, or with lower loads after its last one")
    told = Reported(run, words, reports, folder)
    if run.found is not None or plan.find is None:
        return next_lower(plan, told)
    searcher = Searcher(aim_of(plan.find))
    for event in run.probes:
        searcher.tell(steering(plan, event))
    if not run.turns:
        return _after(run, plan, plan.find, searcher, 0, None, fresh=True)
    turn = told.turn
    if told.lost:
        if not (plan.holds_leases or plan.cycles):  # leases expire, and an iteration's things are removed
            why = f"{told.lost} is missing, and what it made is still part of each load"
            return NextLoad(after=turn.number, stop=why)
        return _after(run, plan, plan.find, searcher, turn.number, None, fresh=True)
    if why := told.unread:
        return NextLoad(after=turn.number, stop=why)
    judged = _judged(plan, plan.find, told)
    gone = [reports[unit].gone for unit in told.sharing if reports[unit].gone]
    problem = gone[0] if judged.silent and gone else ""
    assert run.started is not None
    event = judged.event(
        plan,
        turn.number,
        plan.load_at(turn.load or 0.0),
        fresh=turn.fresh,
        began=turn.begin - run.started,
        seconds=turn.until - turn.begin,
        gone=problem,
    )
    event = shortened(event)
    if problem:
        return NextLoad(after=turn.number, probe=event, stop=f"the target is gone: {problem}"[:1000])
    searcher.tell(steering(plan, event))
    return _after(run, plan, plan.find, searcher, turn.number, event, fresh=False)


def _after(
    run: SharedRun,
    plan: SearchPlan,
    find: Find,
    searcher: Searcher,
    number: int,
    probe: ProbeEvent | None,
    *,
    fresh: bool,
) -> NextLoad:
    """Return the load that the searcher asks for, or its answer."""
    elapsed = 0.0
    if run.turns and run.started is not None:
        elapsed = run.turns[-1].until - run.started
    ask = searcher.ask(elapsed)
    if ask is None:
        answer = searcher.answer
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


def _judged(plan: SearchPlan, find: Find, told: Reported) -> JudgedProbe:
    """Judge the load of all units as if one machine had brought it."""
    turn = told.turn
    with told.gathered([turn]) as whole:
        return judge_probe(
            whole,
            plan,
            turn.number,
            plan.thresholds,
            find.also,
            unanswered=_unanswered(told),
            parts=hold_seconds(told.digests, turn),
        )


def _unanswered(told: Reported) -> dict[str, list[float]]:
    """Return the ages in seconds of all calls without an answer, by operation."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for unit in told.sharing:
        for operation, text in told.reports[unit].unanswered.items():
            slots, counts = Histogram.decode(text).filled()
            found[operation] += np.repeat(highest_values(slots) / 1e6, counts).tolist()
    return found
