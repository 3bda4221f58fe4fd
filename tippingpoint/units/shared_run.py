"""The protocol of a run of many units: the messages between them, and who says when turns begin.

The leader publishes a `SharedRun`, which every unit sees, and each unit answers with a `UnitWord`. `conduct` is all
that a leader does: it computes the next SharedRun from both, so any other unit can take over. A run is a sequence of
*turns*, each a stage or a restart storm in it. All units bring their shares up. When the last share is up, the leader
announces one moment at which the hold begins for all of them, and with it the moment of the next turn.

In a search, each load that is tried is a turn. Its units report what they measured, and the leader's agent judges
that (run/next_load.py) before the next turn is named. Everything that the search knows is in the SharedRun. A
search that one unit began alone stays that unit's own business, and has no turns.

With `after: recover`, the lower loads after the last one are such turns too (run/next_lower.py).

All moments are seconds since the epoch on one clock, the reference's. A unit with another clock says in its word how
far that is ahead.

A run on one machine is a run of one unit, whose words take no time: its mailbox is memory. So nothing is announced
ahead in it, and a stage is named once all that belongs to the one before is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, Field, PrivateAttr, ValidationError

from tippingpoint.errors import UserError
from tippingpoint.plan.fields import StageKind
from tippingpoint.plan.figures import figures_of
from tippingpoint.plan.read import Plan, validate_plan
from tippingpoint.plan.share import part_of
from tippingpoint.rundir.manifest import new_run_id
from tippingpoint.rundir.probe_events import ProbeEvent, probe_words
from tippingpoint.units.figure_words import FigureNews, FiguresTold
from tippingpoint.units.recovery_words import Recovery
from tippingpoint.units.search_words import ClearHold, NextLoad, SearchEnd
from tippingpoint.util.durations import format_duration
from tippingpoint.util.numbers import show_us
from tippingpoint.util.text import show_amount

MOST_UNITS = 1000
REMOVED = "the unit was removed"
RESTARTED = "its agent was restarted"
"""Why a unit of a shared search is missing that comes back: it has a share again once it is ready."""
_TURNS_KEPT = 3
"""The turn that ends, the one that is held, and the next one."""

Moment = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Number = Annotated[int, Field(ge=0, le=10**9)]
Figure = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
Unit = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,100}/[0-9]{1,9}$")]
Line = Annotated[str, Field(max_length=1000)]
Offset = Annotated[float, Field(ge=-1e11, le=1e11, allow_inf_nan=False)]

M = TypeVar("M", bound=BaseModel)


class Turn(BaseModel):
    """One step that all units take together."""

    number: Annotated[int, Field(ge=1, le=10**6)]
    """Counts the turns of a run from 1, as journals count stages."""
    stage: Annotated[int, Field(ge=1, le=10**6)]
    """The plan's listed stage, from 1; always 1 in a search, and the last one for lower loads after it."""
    kind: StageKind
    of: Annotated[int, Field(ge=1, le=MOST_UNITS)]
    """How many units have a share in it: the first ones of SharedRun.units, each at its position, without `lost`."""
    begin: Moment
    hold: Moment | None = None
    """When its hold begins for all units; None while shares are brought up."""
    lasts: Seconds
    """Seconds of its hold, unless it ends before."""
    ends: Moment | None = None
    """In a search or a recovery, when its hold ends early, as all units say the same of it; None if it does not."""
    storms: Number = 0
    """How many of the plan's storms in this stage have begun, this one included."""
    load: Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)] | None = None
    """In a search or a recovery, the load of all units."""
    fresh: bool = False
    """In a search or a recovery, whether the load begins from nothing."""
    lost: Annotated[list[Annotated[int, Field(ge=0, lt=MOST_UNITS)]], Field(max_length=MOST_UNITS)] = []
    """In a search or a recovery, the positions in SharedRun.units of those that are missing: the others share the
    whole load."""

    @property
    def until(self) -> float:
        """When its hold ends; while that has not been named, the earliest moment at which it could."""
        if self.ends is not None:
            return self.ends
        return (self.begin if self.hold is None else self.hold) + self.lasts

    def place_of(self, position: int) -> int | None:
        """Return the index of the share of the unit at this position in SharedRun.units; None if it has none."""
        if position in self.lost:
            return None
        place = position - sum(lost < position for lost in self.lost)
        return place if place < self.of else None

    def sharing(self, units: Sequence[str]) -> list[str]:
        """Return those of a run's units that have a share in it."""
        return [unit for position, unit in enumerate(units) if self.place_of(position) is not None]


ABORTED = "aborted: "
"""How the problem of a unit begins whose part a threshold with `abort` has ended: the whole run ends then."""


class SharedRun(BaseModel):
    """A run as all of its units know it."""

    version: Literal[1] = 1
    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,120}$")]
    plan: dict[str, Any]
    """The fields of the whole plan; each unit has its own access to the target."""
    made: Moment
    """When the run was requested."""
    started: Moment | None = None
    """When its first turn begins, which is time 0 of the whole run."""
    units: Annotated[list[Unit], Field(max_length=MOST_UNITS)]
    """The units with a part in it, in the order of joining; none is ever removed."""
    turns: Annotated[list[Turn], Field(max_length=100)] = []
    """The last few turns, in order."""
    missing: Annotated[dict[Unit, Line], Field(max_length=MOST_UNITS)] = {}
    """The units whose share is gone or never came up, and why in one line."""
    stopped: Line = ""
    """Why the run is to end before its plan does; empty if nobody asked for that."""
    over: bool = False
    """Whether all units that are not missing have ended their parts."""
    shared: bool = False
    """Whether its units share a search, whose turns the leader names."""
    probes: Annotated[list[ProbeEvent], Field(max_length=1000)] = []
    """The loads that the shared search has tried, in order; `stage` is the turn's number."""
    found: SearchEnd | None = None
    """The answer of the shared search, once it has ended."""
    recovery: Recovery | None = None
    """With `after: recover`, what is known of the lower loads, once the last load has been judged."""
    figures: FiguresTold = FiguresTold()
    """What Prometheus' figures were in its turns, for thresholds on them; a unit that searches alone keeps its own."""
    _plan: Plan | None = PrivateAttr(None)
    """The plan of a run on one machine; None in a run of units."""
    _first: int = PrivateAttr(1)

    @classmethod
    def in_memory(
        cls, plan: Plan, unit: str, first: int, started: float, probes: Sequence[ProbeEvent] = ()
    ) -> SharedRun:
        """Return a run on one machine. `first` is the number of its first turn, and of the stage that this is.

        `probes` are the loads that its search has tried before.
        """
        fields = plan.model_dump(mode="json", exclude_none=True)
        run = cls(
            id="alone",
            plan=fields,
            made=started,
            started=started,
            units=[unit],
            shared=plan.find is not None,
            probes=[*probes],
        )
        run._plan, run._first = plan, first
        return run

    @property
    def is_in_memory(self) -> bool:
        """Whether it is a run on one machine, whose words take no time."""
        return self._plan is not None

    @property
    def first(self) -> int:
        """The number of its first turn."""
        return self._first

    @property
    def lead(self) -> float:
        """The seconds by which a moment is announced ahead."""
        return 0.0 if self.is_in_memory else lead(len(self.units))

    def may_return(self, unit: str) -> bool:
        """Whether a unit is there, or is missing only until its restarted agent is ready again."""
        return self.missing.get(unit, RESTARTED) == RESTARTED

    @property
    def searches(self) -> bool:
        """Whether it searches for a load (find)."""
        return self.plan.get("find") is not None

    @property
    def searches_alone(self) -> bool:
        """Whether a single unit searches, by turns of its own."""
        return self.searches and not self.shared

    @property
    def recovers(self) -> bool:
        """Whether lower loads may follow the last one, whose turns the leader names."""
        return self.plan.get("after") is not None and not self.searches_alone

    @property
    def is_answered(self) -> bool:
        """Whether nothing follows that the leader judges: the search has its answer, and the recovery is over."""
        if self.recovers:
            return self.recovery is not None and self.recovery.over
        return self.found is not None

    def may_end_early(self, left: float) -> bool:
        """Return whether a hold that is judged, with so many seconds left, can end earlier if that is named now.

        With more than 15 units, words take longer than what they would save.
        """
        return reports_phases(len(self.units)) and left > self.lead

    @property
    def holds_the_last(self) -> bool:
        """Whether the hold of the last listed turn is named."""
        last = self.turns[-1] if self.turns else None
        return last is not None and last.hold is not None and _following(self.validated(), last) is None

    @property
    def asks_figures(self) -> bool:
        """Whether the leader asks a Prometheus about its turns, as a threshold is on a figure."""
        if self.is_in_memory:  # its runner asks
            return False
        try:
            return bool(figures_of(self.validated()))
        except ValidationError:
            return False

    def validated(self) -> Plan:
        """Return the plan; raises ValidationError if it was not written by `begin_run`."""
        return validate_plan(self.plan) if self._plan is None else self._plan


Phase = Literal[
    "ramp",
    "hold",
    "storm",
    "storm hold",
    "find",
    "find hold",
    "recover",
    "recover hold",
    "drain",
]
"""What is done in a stage: its load is brought up (ramp, or the kind of the stage), held, or taken down."""


class UnitProgress(BaseModel):
    """How far a unit's part is."""

    stage: Number
    stages: Number | None = None
    """How many stages are listed; None in a search."""
    kind: StageKind = "ramp"
    phase: Phase | None = None
    """None before the first stage."""
    size: Number
    """How many leases or things this unit's share of the load is made of; `what` says of which."""
    held: Number
    rate: Figure = 0.0
    """Per second: things made or removed, or claims and extensions."""
    p50_ms: Figure | None = None
    p99_ms: Figure | None = None
    errors: Number = 0
    lost: Number = 0
    what: Annotated[str, Field(max_length=40)] = "leases"
    preparing: Line = ""
    """What is being made before the first turn, and how far that is."""

    @property
    def doing(self) -> str:
        """What is being done in the stage, as far as it is known."""
        return self.phase or self.kind


class UnitWord(BaseModel):
    """A unit's report on its part of a run."""

    version: Literal[1] = 1
    run: Annotated[str, Field(max_length=130)]
    phase: Literal["making", "ready", "up", "over", "failed"]
    """How far its part is.

    - `making`: it prepares what it needs.
    - `ready`: it is ready for its first turn.
    - `up`: its share of `turn` is up, or as far up as it will get.
    - `over`: it has ended its part as it was told to.
    - `failed`: it could not begin or could not go on.
    """
    turn: Number = 0
    """The number of its current turn; 0 before the first."""
    problem: Line = ""
    left: Line = ""
    """What its part may have left on the target, why, and what comes next; `problem` includes it."""
    leaves: bool = False
    """Whether the unit is being removed: this is its last word, and its share is gone."""
    t: Moment
    """When it was written, on the unit's own clock."""
    cores: Number = 0
    clock: Annotated[str, Field(max_length=200)] = ""
    """Address and port of its clock server; empty if it has none."""
    offset: Offset | None = None
    """Seconds that its clock is ahead of the reference's; None if the network let no measurement through."""
    offset_error: Figure | None = None
    progress: UnitProgress | None = None
    held: Number = 0
    """The number of the latest turn that it has held and reported on: in a shared search, and with `after: recover`."""
    again: Number = 0
    """In a shared search, the number of the turn in which its agent was restarted, and its part begun anew."""
    clear: ClearHold | None = None
    """In a shared search or a recovery, what its share of a load showed before the hold was over, once it was clear."""

    @property
    def has_ended(self) -> bool:
        """Whether its part is over or has failed: it has no more to say."""
        return self.phase in ("over", "failed")


def read_shared(text: str | None) -> SharedRun | None:
    """Return the run in a relation's databag; None without one, or if this version does not understand it."""
    return _read(SharedRun, text)


def read_word(text: str | None) -> UnitWord | None:
    """Return the word in a unit's databag; None without one, or if this version does not understand it."""
    return _read(UnitWord, text)


def _read(model: type[M], text: str | None) -> M | None:
    try:
        return model.model_validate_json(text) if text else None
    except (ValidationError, RecursionError):
        return None


_WORD_EVERY = 30.0
"""Seconds after which a unit of a small run reports its progress again."""


def word_every(units: int) -> float:
    """Return the seconds after which a unit reports its progress again.

    Each word costs every other unit a hook of about half a second, so words are rarer when there are many units.
    """
    return max(_WORD_EVERY, 2.0 * units)


def reports_phases(units: int) -> bool:
    """Return whether a unit reports at once that a stage's phase changed; with more than 15 units that can wait."""
    return word_every(units) <= _WORD_EVERY


def is_news(word: UnitWord, said: UnitWord, units: int) -> bool:
    """Return whether a unit's word is worth a hook of all the others: it differs from what was `said` in more than how
    far the part is, or that is old enough. `units` is the number of units."""
    # The agent wakes the charm by its own clock, so a tenth of the time is left for delays.
    due = not 0 <= word.t - said.t < 0.9 * word_every(units)
    return due or _news(word, units) != _news(said, units)


def _news(word: UnitWord, units: int) -> dict[str, Any]:
    news = word.model_dump(include={"run", "phase", "turn", "problem", "clock", "leaves", "held"})
    if reports_phases(units):
        news["doing"] = None if word.progress is None else word.progress.phase
        news["clear"] = word.clear
    return news


def silent_after(units: int) -> float:
    """Return the seconds without a word after which a unit is missing. A machine takes one or two minutes to
    restart."""
    return 4 * word_every(units) + 60.0


def lead(units: int) -> float:
    """Return the seconds by which a moment is announced ahead: the hooks that carry it run one after the other."""
    return 8.0 + 0.5 * units


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
    """Return the lost units of a run that is over whose remains on the target `unit` has to remove, as they cannot."""
    if not run.over:
        return []
    said = _said(run, words)
    return [
        lost
        for lost in run.missing
        if lost != unit and (lost not in said or said[lost].leaves or not said[lost].has_ended)
    ]


def ask_storm(run: SharedRun, now: float) -> SharedRun:
    """Return the run with a restart storm in the stage that is held now, which is then held anew in full.

    Raises UserError if there is nothing to claim again, or not enough time to tell all units.
    """
    plan = run.validated()
    if not plan.holds_leases or run.searches:
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
    """Return the run's next state, from what the units say; the same run if there is nothing to change.

    `words` has every unit of the relation, with None for a unit that has said nothing, or nothing understandable.
    `following` is what comes after the turn that `to_judge` named. `news` is what our agent has of figures; None if it
    does not answer.
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
    """Return the run with the figures that are new, or stopped if one is clearly missed that has `abort`."""
    if news.values or news.unwatched:
        told = run.figures.with_news(run.validated(), news)
        run = run.model_copy(update={"figures": told}) if told != run.figures else run
    return stop(run, f"{ABORTED}{news.abort}") if news.abort else run


def _said(run: SharedRun, words: Mapping[str, UnitWord | None]) -> dict[str, UnitWord]:
    return {unit: word for unit, word in words.items() if word is not None and word.run == run.id}


def to_judge(run: SharedRun, words: Mapping[str, UnitWord | None]) -> int | None:
    """Return the number of the turn that a shared search or a recovery goes on from, once all units that are not
    missing have reported on it, and its figures are known; 0 once all are ready for a search's first. None while it
    waits for these, and where nothing is judged."""
    if not (run.shared or run.recovers) or run.stopped or run.over or run.is_answered:
        return None
    said = _said(run, words)
    if not run.turns and run.shared:
        there = [unit for unit in run.units if unit not in run.missing]
        ready = there and all(unit in said and said[unit].phase == "ready" for unit in there)
        return run.first - 1 if ready else None
    if not (run.shared or run.recovery is not None or run.holds_the_last):
        return None
    turn = run.turns[-1]
    sharing = turn.sharing(run.units)
    there = [unit for unit in sharing if unit not in run.missing]
    if (turn.hold is None and there and not run.is_in_memory) or not (there or _back(run, said)):
        return None
    if there == sharing and turn.number not in run.figures.turns and run.asks_figures:
        return None
    return turn.number if all(unit in said and said[unit].held >= turn.number for unit in there) else None


def _back(run: SharedRun, said: Mapping[str, UnitWord]) -> list[str]:
    """Return the units whose agents were restarted in a shared search, and that are ready for a share again."""
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
    """Return the run with an early end of its last turn's hold, once all units that share it say the same of it.

    What all shares show, the whole load shows: its percentiles and its shares of failures lie between those of the
    units, and a throughput is their sum. A load that does not hold is only called clear if at least one unit is wrong
    about its own share, so a look is wrong no more often than on one machine.

    A lower load ends early once thresholds have held again on each unit.
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
    """Return whether a turn's hold may end once thresholds hold again on each unit.

    It is so for a lower load that is tried for the first time. A load that is to break the target again needs its whole
    hold, and so does one that ended early and said nothing.
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
    """Return the run with what a turn showed, and with the next turn or the answer."""
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
    # A clock that has not been compared yet may be wrong by any time, but a word of this run came after its begin.
    heard = run.made if word is None else max(run.made, word.t - (word.offset or 0.0))
    if now - heard > silent:
        return f"silent for more than {format_duration(round(silent))}"
    return ""


def _began_anew(run: SharedRun, unit: str, word: UnitWord) -> bool:
    """Return whether a unit has lost its share of the last turn of a shared search, as its agent was restarted."""
    if not run.shared or not run.turns:
        return False
    turn = run.turns[-1]
    return word.again >= turn.number and unit in turn.sharing(run.units)


def _at_its_end(run: SharedRun, now: float) -> bool:
    """Return whether the last turn of the plan is held, and almost over, or all is judged that is to be."""
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


def _until_its_storm(plan: Plan, turn: Turn) -> Turn:
    """Return a storm that is held until the next one is due: its load took some of that time to come up again."""
    assert turn.hold is not None
    if not turn.storms or turn.storms + 1 == len(_turns_of(plan, turn.stage)):
        return turn
    return turn.model_copy(update={"lasts": max(0.0, turn.lasts - (turn.hold - turn.begin))})


def _after_held(run: SharedRun, said: Mapping[str, UnitWord], now: float) -> SharedRun:
    """Return a run on one machine with its next stage, or over, once all that belongs to the last one is done."""
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
    """Return the turn that the plan has after a turn with a hold; None after the last."""
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
    """Return where a run is while the units asked have no share: they joined late, or resumed."""
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
