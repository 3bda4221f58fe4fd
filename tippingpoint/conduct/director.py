"""What happens next in a run: a pure function of what units reported and of the time.

`conduct` is all that a leader does: it computes the next SharedRun from the last one and the units' words, so any other
unit can take over. It waits for nothing and reads no clock.

All units bring their shares of a turn up. When the last share is up, the leader announces one moment at which the hold
begins for all of them, and with it the moment of the next turn. In a search, and with `after: recover`, each load is a
turn: the units report what they measured, and next_load.py judges that before the next turn is named. A search that one
unit began alone belongs to that unit, and has no turns.

A run on one machine is a run of one unit, whose words take no time. So nothing is announced ahead, and a stage is
named once everything that belongs to the previous one is done.

`now` is always a moment on the reference's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tippingpoint.conduct.figure_messages import FigureNews
from tippingpoint.conduct.run_state import (
    ABORTED,
    MOST_UNITS,
    REMOVED,
    RESTARTED,
    SharedRun,
    Turn,
    UnitProgress,
    UnitWord,
    silent_after,
)
from tippingpoint.conduct.search_messages import NextLoad, ProbeReport
from tippingpoint.errors import UserError
from tippingpoint.plan.fields import StageKind
from tippingpoint.plan.read import Plan
from tippingpoint.plan.share import part_of
from tippingpoint.rundir.manifest import new_run_id
from tippingpoint.rundir.probe_events import probe_words
from tippingpoint.util.durations import format_duration
from tippingpoint.util.numbers import show_us
from tippingpoint.util.text import show_amount

_TURNS_KEPT = 3
"""The turn that ends, the one that is held, and the next one."""


def begin_run(plan: Plan, units: Sequence[str], now: float) -> SharedRun:
    """Return a run of these units, leader included; raises UserError for a plan that this many units cannot share.

    `now` is on the reference's clock, as everywhere in this module.
    """
    if plan.lab is not None or any(fault.member is not None for fault in plan.faults):
        raise UserError("faults", plan.name, "a plan whose faults need no lab, as units have none")
    part_of(plan, 0, max(1, len(units)))
    shared = plan.find is not None and len(units) > 1
    return SharedRun(
        id=new_run_id(plan.name, now),
        plan=plan.model_dump(mode="json", exclude_none=True),
        made=now,
        units=list(units),
        shared=shared,
    )


def stop(run: SharedRun, why: str) -> SharedRun:
    """Return the run with the order to end now, in an orderly way; the first reason stays."""
    return run if run.stopped or run.over else run.model_copy(update={"stopped": why})


def lose(run: SharedRun, unit: str) -> SharedRun:
    """Return the run without the share of a unit that is being removed; a leader calls this for itself."""
    if run.over or run.stopped or unit not in run.units or unit in run.missing:
        return run
    missing = {**run.missing, unit: REMOVED}
    return run.model_copy(update={"missing": missing, "over": all(name in missing for name in run.units)})


def lost_with_remains(run: SharedRun, words: Mapping[str, UnitWord | None], unit: str) -> list[str]:
    """Return the lost units of a run that is over whose remains on the target `unit` has to remove, because they cannot
    do it themselves."""
    if not run.over:
        return []
    said = _said(run, words)
    return [
        lost
        for lost in run.missing
        if lost != unit and (lost not in said or said[lost].leaves or not said[lost].has_ended)
    ]


def ask_storm(run: SharedRun, now: float) -> SharedRun:
    """Return the run with a restart storm in the stage that is held now, which is then held again in full.

    Raises UserError if there is nothing to claim again, or too little time to inform all units.
    """
    plan = run.validated()
    if not plan.is_held or run.searches:
        raise UserError("storm", run.id, "a run of the claim workload that lists its stages")
    held = next((turn for turn in reversed(run.turns) if turn.hold is not None), None)
    bringing_up = any(turn.hold is None and turn.begin <= now for turn in run.turns)
    lowers = run.recovery is not None
    if run.stopped or run.over or lowers or held is None or held.hold is None or bringing_up:
        raise UserError(
            "storm", run.id, "a run whose load is up: it is still coming up, or the run is ending"
        )
    begin = now + run.lead
    if not held.hold <= now or begin >= held.hold + held.lasts:
        raise UserError(
            "storm",
            run.id,
            f"a stage that is held for another {format_duration(run.lead)} or more",
        )
    kept = [turn for turn in run.turns if turn.number <= held.number]
    storm = Turn(
        number=held.number + 1,
        stage=held.stage,
        kind="storm",
        of=held.of,
        begin=begin,
        lasts=plan.stages[held.stage - 1].hold,
        storms=held.storms,
    )
    return run.model_copy(update={"turns": [*kept, storm]})


def conduct(
    run: SharedRun,
    words: Mapping[str, UnitWord | None],
    now: float,
    following: NextLoad | None = None,
    news: FigureNews | None = None,
) -> SharedRun:
    """Return the run's next state, from the units' words; the same run if there is nothing to change.

    `words` has every unit of the relation, with None for a unit without an understandable word. `following` is what
    comes after the turn that `to_judge` named. `news` is what our agent knows about figures; None if it does not
    answer.
    """
    if run.over:
        return run
    if news is not None and news.run == run.id:
        run = _with_figures(run, news)
    else:
        news = None
    said = _said(run, words)
    aborts = [unit for unit in run.units if unit in said and said[unit].problem.startswith(ABORTED)]
    if aborts:
        run = stop(run, f"{said[aborts[0]].problem} on {aborts[0]}")
    missing = {**run.missing}
    for unit in run.units:
        why = _why_missing(run, unit, words, said.get(unit), now)
        if why and run.may_return(unit):
            missing[unit] = why
    run = run.model_copy(update={"missing": missing}) if missing != run.missing else run
    there = [unit for unit in run.units if unit not in missing]
    ends = [unit for unit in run.units if run.may_return(unit)]
    if all(said[unit].phase == "over" if unit in said else False for unit in ends):
        return run if news is not None and news.measuring else run.model_copy(update={"over": True})
    if run.stopped or run.searches_alone:
        return run
    if following is not None and to_judge(run, words) == following.after:
        return _after_judged(run, said, following, now)
    if run.shared or run.recovery is not None:
        return _clear_probe(_held_probe(run, said, now), said, now)
    if not run.turns:
        return _first_turn(run, [said.get(unit) for unit in there], now)
    return _next_turn(run, said, now)


def _with_figures(run: SharedRun, news: FigureNews) -> SharedRun:
    """Return the run with new figures, or stopped if one with `abort` clearly misses its threshold."""
    if news.values or news.unwatched:
        told = run.figures.with_news(run.validated(), news)
        run = run.model_copy(update={"figures": told}) if told != run.figures else run
    return stop(run, f"{ABORTED}{news.abort}") if news.abort else run


def _said(run: SharedRun, words: Mapping[str, UnitWord | None]) -> dict[str, UnitWord]:
    return {unit: word for unit, word in words.items() if word is not None and word.run == run.id}


def to_judge(run: SharedRun, words: Mapping[str, UnitWord | None]) -> int | None:
    """Return the number of the turn from which a shared search or a recovery continues, once all units that are not
    missing have reported on it, and its figures are known; 0 once all are ready for a search's first turn. None while
    these are outstanding, and where nothing is judged."""
    if not (run.shared or run.recovers) or run.stopped or run.over or run.is_answered:
        return None
    said = _said(run, words)
    if not run.turns and run.shared:
        there = [unit for unit in run.units if unit not in run.missing]
        ready = there and all(unit in said and said[unit].phase == "ready" for unit in there)
        return run.first - 1 if ready else None
    if not (run.shared or run.recovery is not None or holds_the_last(run)):
        return None
    turn = run.turns[-1]
    sharing = turn.sharing(run.units)
    there = [unit for unit in sharing if unit not in run.missing]
    if (turn.hold is None and there and not run.is_in_memory) or not (there or _back(run, said)):
        return None
    if there == sharing and turn.number not in run.figures.turns and run.asks_figures:
        return None
    return turn.number if all(unit in said and said[unit].held >= turn.number for unit in there) else None


def judge_request(
    run: SharedRun,
    after: int,
    words: Mapping[str, UnitWord | None],
    reports: Mapping[str, ProbeReport],
) -> dict[str, Any]:
    """Return the fields of a request to the leader's agent (agent/requests.py: Judge), after `to_judge` named a turn.

    `reports` is what units measured in that turn.
    """
    return {
        "shared": run.model_dump(mode="json", exclude_none=True),
        "after": after,
        "words": {
            unit: word.model_dump(mode="json", exclude_none=True) for unit, word in _said(run, words).items()
        },
        "reports": {unit: report.model_dump(mode="json") for unit, report in reports.items()},
    }


def _back(run: SharedRun, said: Mapping[str, UnitWord]) -> list[str]:
    """Return the units of a shared search whose agents were restarted, and that are ready for a share again."""
    return [
        unit
        for unit, why in run.missing.items()
        if why == RESTARTED and unit in said and said[unit].phase == "ready"
    ]


def _held_probe(run: SharedRun, said: Mapping[str, UnitWord], now: float) -> SharedRun:
    """Return the run with the hold of its last turn, once that is up on all units that are not missing."""
    if not run.turns or run.turns[-1].hold is not None or not _is_up(run, said):
        return run
    turn = run.turns[-1]
    held = turn.model_copy(update={"hold": max(now + run.lead, turn.begin)})
    return run.model_copy(update={"turns": [*run.turns[:-1], held]})


def _clear_probe(run: SharedRun, said: Mapping[str, UnitWord], now: float) -> SharedRun:
    """Return the run with an early end of its last turn's hold, once all units that share it report the same about it.

    What all shares show, the whole load shows: its percentiles and its shares of failures lie between those of the
    units, and a throughput is their sum. A load that does not hold is called clear only if at least one unit is wrong
    about its own share, so a check is wrong no more often than on one machine.

    A lower load ends early once thresholds have been met again on each unit.
    """
    turn = run.turns[-1] if run.turns else None
    if turn is None or turn.hold is None or turn.ends is not None or now < turn.hold:
        return run
    if turn.kind == "recover" and not _ends_once_settled(run, turn):
        return run
    shown = {
        said[unit].clear if unit in said and unit not in run.missing else None
        for unit in turn.sharing(run.units)
    }
    only = shown.pop() if len(shown) == 1 else None
    agreed = only is not None and only.turn == turn.number and only.shows
    if not agreed or not run.may_end_early(turn.until - now):
        return run
    sooner = turn.model_copy(update={"ends": now + run.lead})
    return run.model_copy(update={"turns": [*run.turns[:-1], sooner]})


def _ends_once_settled(run: SharedRun, turn: Turn) -> bool:
    """Return whether a turn's hold may end once thresholds are met again on each unit.

    This applies to a lower load that is tried for the first time. A load that is meant to break the target again needs
    its whole hold, and so does one that ended early without a result.
    """
    if run.recovery is None or run.recovery.broken is None:
        return False
    if run.is_in_memory:  # there are no others
        return True
    last = run.recovery.loads[-1] if run.recovery.loads else None
    return last is None or not last.lowers or last.load != turn.load


def _is_up(run: SharedRun, said: Mapping[str, UnitWord]) -> bool:
    """Return whether the last turn's load is up on all units that share it and are not missing."""
    turn = run.turns[-1]
    for unit in turn.sharing(run.units):
        word = said.get(unit)
        if unit not in run.missing and (word is None or word.phase != "up" or word.turn < turn.number):
            return False
    return True


def _after_judged(run: SharedRun, said: Mapping[str, UnitWord], following: NextLoad, now: float) -> SharedRun:
    """Return the run with the result of a turn, and with the next turn or the answer."""
    probes = run.probes if following.probe is None else [*run.probes, following.probe]
    found, recovery = following.end or run.found, following.recovery or run.recovery
    run = run.model_copy(update={"probes": probes, "found": found, "recovery": recovery})
    if following.stop:
        return stop(run, following.stop)
    if following.load is None:
        return run
    units, missing = run.units, run.missing
    if recovery is None:
        units = _joined(run.validated(), run.units, _joining(run, said))
        missing = {unit: why for unit, why in run.missing.items() if unit not in _back(run, said)}
    lost = [position for position, unit in enumerate(units) if unit in missing]
    run = run.model_copy(update={"units": units, "missing": missing})
    begin = now + run.lead
    turn = Turn(
        number=following.after + 1,
        stage=run.turns[-1].stage if run.turns else 1,
        kind="find" if recovery is None else "recover",
        of=len(units) - len(lost),
        begin=begin,
        lasts=following.hold,
        load=following.load,
        fresh=following.fresh,
        lost=lost,
    )
    turns = [*run.turns, turn][-_TURNS_KEPT:]
    started = begin if run.started is None else run.started
    return run.model_copy(update={"turns": turns, "started": started})


def _why_missing(
    run: SharedRun, unit: str, words: Mapping[str, UnitWord | None], word: UnitWord | None, now: float
) -> str:
    if word is not None and word.phase == "failed":
        return word.problem or "failed"
    if word is not None and word.phase == "over":
        # A unit may learn of the end before the leader sees its word again.
        early = not run.stopped and not run.searches_alone and not _at_its_end(run, now)
        if early and word.leaves:
            return REMOVED
        return f"ended early: {word.problem or 'no reason given'}" if early else ""
    if unit not in words:
        return REMOVED
    if word is not None and _began_anew(run, unit, word):
        return RESTARTED
    silent = silent_after(len(run.units))
    # A clock that has not been compared yet may be off by any amount, but every word of this run came after its begin.
    heard = run.made if word is None else max(run.made, word.t - (word.offset or 0.0))
    if now - heard > silent:
        return f"silent for more than {format_duration(round(silent))}"
    return ""


def _began_anew(run: SharedRun, unit: str, word: UnitWord) -> bool:
    """Return whether a unit has lost its share of the last turn of a shared search because its agent was restarted."""
    if not run.shared or not run.turns:
        return False
    turn = run.turns[-1]
    return word.again >= turn.number and unit in turn.sharing(run.units)


def _at_its_end(run: SharedRun, now: float) -> bool:
    """Return whether the last turn of the plan is held, and almost over, or everything that needs judging is judged."""
    if run.shared or run.recovers:
        return run.is_answered
    if not run.turns or run.turns[-1].hold is None:
        return False
    last = run.turns[-1]
    assert last.hold is not None
    return now >= last.hold + last.lasts - run.lead and _following(run.validated(), last) is None


def _first_turn(run: SharedRun, words: Sequence[UnitWord | None], now: float) -> SharedRun:
    """Return the run with its first turn, once all units that are not missing are ready for it."""
    if not words or any(word is None or word.phase != "ready" for word in words):
        return run
    kind, lasts, storms = _turns_of(run.validated(), run.first)[0]
    begin, of = now + run.lead, len(run.units)
    turn = Turn(number=run.first, stage=run.first, kind=kind, of=of, begin=begin, lasts=lasts, storms=storms)
    return run.model_copy(update={"turns": [turn], "started": begin})


def _next_turn(run: SharedRun, said: Mapping[str, UnitWord], now: float) -> SharedRun:
    """Return the run with the hold of its last turn, and the next turn, once that is up on all units."""
    turn = run.turns[-1]
    if turn.hold is not None:
        return _after_held(run, said, now) if run.is_in_memory else run
    if not _is_up(run, said):
        return run
    plan = run.validated()
    held = turn.model_copy(update={"hold": max(now + run.lead, turn.begin)})
    if run.is_in_memory:
        held = _until_its_storm(plan, held)
    units = run.units
    turns = [*run.turns[:-1], held]
    following = _following(plan, held)
    if following is not None and (following.stage == held.stage or not run.is_in_memory):
        units = _joined(plan, units, _joining(run, said))
        turns.append(following.model_copy(update={"of": len(units)}))
    return run.model_copy(update={"turns": turns[-_TURNS_KEPT:], "units": units})


def holds_the_last(run: SharedRun) -> bool:
    """Return whether the hold of the last listed turn is named."""
    last = run.turns[-1] if run.turns else None
    return last is not None and last.hold is not None and _following(run.validated(), last) is None


def _until_its_storm(plan: Plan, turn: Turn) -> Turn:
    """Return a storm that is held until the next one is due: bringing its load up again took some of that time."""
    assert turn.hold is not None
    if not turn.storms or turn.storms + 1 == len(_turns_of(plan, turn.stage)):
        return turn
    return turn.model_copy(update={"lasts": max(0.0, turn.lasts - (turn.hold - turn.begin))})


def _after_held(run: SharedRun, said: Mapping[str, UnitWord], now: float) -> SharedRun:
    """Return a run on one machine with its next stage, or over, once everything that belongs to the last one is
    done."""
    turn = run.turns[-1]
    if any(word.held < turn.number for word in said.values()):
        return run
    following = _following(run.validated(), turn)
    if following is None:
        return run if run.recovers else run.model_copy(update={"over": True})
    turns = [*run.turns, following.model_copy(update={"begin": now})][-_TURNS_KEPT:]
    return run.model_copy(update={"turns": turns})


def _joining(run: SharedRun, said: Mapping[str, UnitWord]) -> list[str]:
    """Return the units that are ready for a share of the next turn, and have none yet."""
    return sorted(
        (unit for unit, word in said.items() if unit not in run.units and word.phase == "ready"),
        key=_by_number,
    )


def _joined(plan: Plan, units: list[str], joining: Sequence[str]) -> list[str]:
    """Return the units, with as many of the joining ones as can share the plan."""
    for unit in joining[: MOST_UNITS - len(units)]:
        try:
            part_of(plan, 0, len(units) + 1)
        except UserError:
            break
        units = [*units, unit]
    return units


def _by_number(unit: str) -> tuple[str, int]:
    application, _, number = unit.partition("/")
    return application, int(number)


def _following(plan: Plan, turn: Turn) -> Turn | None:
    """Return the turn that follows a turn with a hold in the plan; None after the last."""
    assert turn.hold is not None
    within = _turns_of(plan, turn.stage)
    if turn.storms + 1 < len(within):
        stage, (kind, lasts, storms) = turn.stage, within[turn.storms + 1]
    elif turn.stage < len(plan.stages):
        stage = turn.stage + 1
        kind, lasts, storms = _turns_of(plan, stage)[0]
    else:
        return None
    return Turn(
        number=turn.number + 1,
        stage=stage,
        kind=kind,
        of=turn.of,
        begin=turn.hold + turn.lasts,
        lasts=lasts,
        storms=storms,
    )


def _turns_of(plan: Plan, stage: int) -> list[tuple[StageKind, float, int]]:
    """Return the turns of a listed stage, itself and the plan's storms in it: kind, seconds of hold, and storms so
    far.

    After its last storm a stage is held in full, as on one machine.
    """
    hold = plan.stages[stage - 1].hold
    at = sorted(fault.at for fault in plan.faults if fault.do == "drop-claims" and fault.stage == stage)
    holds = [after - before for before, after in zip([0.0, *at], at, strict=False)] + [hold]
    kinds: list[StageKind] = [plan.loads[stage - 1][0], *("storm" for _ in at)]
    return [(kind, lasts, number) for number, (kind, lasts) in enumerate(zip(kinds, holds, strict=True))]


def _without_a_share(run: SharedRun, said: Sequence[UnitWord], parts: Sequence[UnitProgress]) -> str:
    """Return where a run is while the given units have no share: they joined late, or resumed."""
    if len(run.turns) < 2 and not (run.turns and run.turns[0].hold is not None):
        return f"stage {run.turns[0].stage if run.turns else 1} begins"
    # The last turn is the next one until its own hold is announced.
    now = run.turns[-1] if run.turns[-1].hold is not None else run.turns[-2]
    preparing = next((f": {part.preparing}" for part in parts if part.preparing), "")
    if any(word.phase == "making" for word in said):
        return f"stage {now.stage}, preparing for a later one{preparing}"
    return f"stage {now.stage}, no share of it yet"


def summary(run: SharedRun, words: Mapping[str, UnitWord | None]) -> str:
    """Return where the run is, in a few words for people."""
    if run.over:
        return f"run {run.id} is over" + (f": {run.stopped}" if run.stopped else "")
    present = {unit for unit in run.units if unit not in run.missing}
    said = [
        word for unit, word in words.items() if word is not None and word.run == run.id and unit in present
    ]
    there = len(present)
    lacking = f"; {len(run.missing)} of {len(run.units)} units missing" if run.missing else ""
    if run.stopped:
        return f"stopping: {run.stopped}{lacking}"
    parts = [
        word.progress for word in said if word.progress is not None and word.phase not in ("over", "failed")
    ]
    if not run.turns and not (run.searches_alone and any(part.stage for part in parts)):
        ready = sum(word.phase == "ready" for word in said)
        preparing = next((part.preparing for part in parts if part.preparing), "")
        return (
            f"preparing: {ready} of {there} units ready" + (f", {preparing}" if preparing else "") + lacking
        )
    running = [part for part in parts if part.stage]
    if not running:
        return _without_a_share(run, said, parts) + lacking
    stage = max(part.stage for part in running)
    stages = next((part.stages for part in running if part.stages), None)
    phases = [part.phase for part in running if part.stage == stage and part.phase]
    # The load of the run is only up once it is up on all units.
    phase = next((phase for phase in phases if not phase.endswith("hold")), phases[0] if phases else "")
    of = f"/{stages}" if stages and stage <= stages else ""
    told = [f"stage {stage}{of}" + (f" {phase}" if phase else "")]
    told.append(show_amount(sum(part.held for part in running), running[0].what))
    p99 = [part.p99_ms for part in running if part.p99_ms is not None]
    if p99:
        told.append(f"p99 {show_us(max(p99) * 1000)}")
    for name, total in (
        ("errors", sum(part.errors for part in running)),
        ("lost", sum(part.lost for part in running)),
    ):
        if total:
            told.append(f"{total:,} {name}")
    last = f"; {probe_words(run.probes[-1])}" if run.probes else ""
    return ", ".join(told) + last + lacking
