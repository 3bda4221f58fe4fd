"""Many units, one run: whom a leader waits for, what it names, and what becomes of a unit that is gone."""

from __future__ import annotations

from types import NoneType
from typing import Any, Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from tippingpoint.conduct.director import ask_storm, begin_run, conduct, stop, summary, to_judge
from tippingpoint.conduct.figure_messages import ELSE, FigureNews, FiguresTold, room_for_figures
from tippingpoint.conduct.recovery_messages import LoadShown, Recovery, room_for_recovery
from tippingpoint.conduct.run_state import (
    RESTARTED,
    SharedRun,
    UnitProgress,
    UnitWord,
    lead,
    read_shared,
    read_word,
    silent_after,
    word_every,
)
from tippingpoint.conduct.run_state import Phase as StagePhase
from tippingpoint.conduct.search_messages import ClearHold, NextLoad, SearchEnd, room_for_probes
from tippingpoint.errors import UserError
from tippingpoint.plan.read import Plan, parse_plan
from tippingpoint.rundir.figure_values import FigureValue
from tippingpoint.rundir.probe_events import ProbeEvent

Phase = Literal["making", "ready", "up", "over", "failed"]

PLAN = """
name: leases
stages:
  - {leases: 1000, over: 1s, hold: 30s}
  - {leases: 2000, over: 1s, hold: 40s}
"""
STORMY = (
    PLAN + "faults:\n  - {do: drop-claims, stage: 1, at: 10s}\n  - {do: drop-claims, stage: 1, at: 25s}\n"
)


SEARCH = (
    "name: search\nfind: {start: 10, limit: 1000}\nthresholds: [{operation: claim, p99: 1s}]\n"
    "workload: {renew_time: 5s}\n"
)


def plan(text: str = PLAN) -> Plan:
    return parse_plan(text)


class Troupe:
    """Units that do as they are told at once, on a clock that the test moves."""

    def __init__(self, units: int, text: str = PLAN) -> None:
        self.now = 1_000_000.0
        self.names = [f"load-claimer/{number}" for number in range(units)]
        self.run = begin_run(plan(text), self.names, self.now)
        self.words: dict[str, UnitWord | None] = dict.fromkeys(self.names)

    def say(self, unit: int, phase: Phase, turn: int = 0, problem: str = "", **fields: Any) -> None:
        self.words[f"load-claimer/{unit}"] = UnitWord(
            run=self.run.id, phase=phase, turn=turn, problem=problem, t=self.now, **fields
        )

    def all_say(self, phase: Phase, turn: int = 0, without: tuple[int, ...] = ()) -> None:
        for number in range(len(self.words)):
            if number not in without:
                self.say(number, phase, turn)

    def conduct(self) -> SharedRun:
        self.run = conduct(self.run, self.words, self.now)
        return self.run

    def judged(self, following: NextLoad) -> SharedRun:
        self.run = conduct(self.run, self.words, self.now, following)
        return self.run

    def held(self, turn: int) -> SharedRun:
        """All units have this turn up, and its hold has been named and begun."""
        if not self.run.turns:
            self.all_say("ready")
            self.conduct()
        self.now = self.run.turns[-1].begin
        self.all_say("up", turn)
        self.conduct()
        hold = next(named.hold for named in self.run.turns if named.number == turn)
        assert hold is not None
        self.now = hold
        return self.run


def test_first_turn_waits_for_every_unit() -> None:
    """Given three units of which two are ready, then nothing begins; when the third is, one moment is named."""
    troupe = Troupe(3)
    troupe.say(0, "ready")
    troupe.say(1, "ready")
    troupe.say(2, "making")
    assert troupe.conduct().turns == []
    troupe.say(2, "ready")
    (turn,) = troupe.conduct().turns
    assert (turn.number, turn.stage, turn.of, turn.hold) == (1, 1, 3, None)
    assert turn.begin == troupe.now + lead(3) == troupe.run.started


def test_hold_and_next_turn_are_named_when_the_last_unit_is_up() -> None:
    """Given two units, when the second is up too, then the hold begins for both, and the next turn right after it."""
    troupe = Troupe(2)
    troupe.all_say("ready")
    troupe.conduct()
    troupe.say(0, "up", 1)
    assert troupe.conduct().turns[-1].hold is None
    troupe.say(1, "up", 1)
    first, second = troupe.conduct().turns
    assert first.hold == troupe.now + lead(2)
    assert (second.number, second.stage, second.begin, second.lasts) == (2, 2, first.hold + 30.0, 40.0)


def test_what_is_known_is_not_named_again() -> None:
    """Given a turn that was named, when nothing new is said, then the leader's word is the same, not moved on."""
    troupe = Troupe(2)
    troupe.all_say("ready")
    named = troupe.conduct()
    troupe.now += 5
    assert troupe.conduct() is named


def test_run_is_over_when_all_have_ended() -> None:
    """Given the last turn, when every unit says over, then the run is."""
    troupe = Troupe(2)
    troupe.held(1)
    troupe.held(2)
    troupe.now += 40.0
    troupe.say(0, "over", 2)
    assert not troupe.conduct().over
    troupe.say(1, "over", 2)
    run = troupe.conduct()
    assert run.over
    assert run.missing == {}


def test_new_unit_joins_at_the_next_turn_that_is_named() -> None:
    """Given a run of one unit, when two more are ready in mid-stage, then the next turn is of three."""
    troupe = Troupe(1)
    troupe.all_say("ready")
    troupe.conduct()
    troupe.say(1, "ready")
    troupe.say(2, "ready")
    assert troupe.conduct().units == ["load-claimer/0"]
    troupe.say(0, "up", 1)
    run = troupe.conduct()
    assert run.units == [f"load-claimer/{number}" for number in range(3)]
    assert [turn.of for turn in run.turns] == [1, 3]


def test_joiner_of_the_last_turn_has_no_part() -> None:
    """Given the last turn is held, when a unit becomes ready, then it is not taken in: it would have nothing to do."""
    troupe = Troupe(1)
    troupe.held(1)
    troupe.say(1, "ready")
    troupe.now = troupe.run.turns[-1].begin
    troupe.say(0, "up", 2)
    assert troupe.conduct().units == ["load-claimer/0"]


def test_unit_that_cannot_share_the_plan_has_no_part() -> None:
    """Given a model's growth with two machines, when a third unit is ready, then it is not taken in; two units are."""
    growth = (
        "name: growth\ntarget: {kind: juju}\nworkload: {kind: grow}\n"
        "stages:\n  - {machines: 2, applications: 2, units: 4}\n  - {machines: 2, applications: 2, units: 8}\n"
    )
    troupe = Troupe(1, growth)
    troupe.all_say("ready")
    troupe.conduct()
    troupe.say(1, "ready")
    troupe.say(2, "ready")
    troupe.say(0, "up", 1)
    assert troupe.conduct().units == ["load-claimer/0", "load-claimer/1"]
    with pytest.raises(UserError, match="machines"):
        begin_run(plan(growth), [f"load-claimer/{number}" for number in range(3)], 0.0)


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        (lambda troupe: troupe.words.pop("load-claimer/1"), "the unit was removed"),
        (lambda troupe: troupe.say(1, "failed", 1, problem="etcd: gone: expected an etcd"), "etcd: gone"),
        (
            lambda troupe: troupe.say(1, "over", 1, problem="its model was gone"),
            "ended early: its model was gone",
        ),
    ],
)
def test_unit_that_is_gone_is_missing_and_not_waited_for(gone: Any, why: str) -> None:
    """Given a turn of two units, when one is gone, then it is missing with the reason, and the other's hold begins."""
    troupe = Troupe(2)
    troupe.all_say("ready")
    troupe.conduct()
    troupe.say(0, "up", 1)
    gone(troupe)
    run = troupe.conduct()
    assert run.missing["load-claimer/1"].startswith(why)
    assert run.turns[0].hold is not None
    assert run.turns[1].of == 2, "its share is missing, and nobody else's"


def test_silent_unit_is_missing_after_a_while() -> None:
    """Given a unit that says nothing more, when it is silent for long, then it is missing; one that speaks is not."""
    troupe = Troupe(2)
    troupe.all_say("ready")
    troupe.conduct()
    troupe.now += silent_after(2) - 1
    troupe.say(0, "up", 1)
    assert troupe.conduct().missing == {}
    troupe.now += 2
    troupe.say(0, "up", 1)
    assert troupe.conduct().missing == {"load-claimer/1": "silent for more than 3m"}


def test_clock_that_is_behind_is_no_silence() -> None:
    """Given a unit whose clock is an hour behind, which it says, then it is not taken for silent."""
    troupe = Troupe(2)
    troupe.say(0, "making")
    troupe.words["load-claimer/1"] = UnitWord(
        run=troupe.run.id, phase="making", t=troupe.now - 3600, offset=-3600.0, offset_error=0.001
    )
    assert troupe.conduct().missing == {}


def test_a_clock_that_is_not_known_yet_is_no_silence() -> None:
    """Given a unit whose clock is an hour behind, which nobody has measured yet, when it speaks for the first time,
    then it is not taken for silent."""
    troupe = Troupe(2)
    troupe.say(0, "making")
    troupe.words["load-claimer/1"] = UnitWord(run=troupe.run.id, phase="making", t=troupe.now - 3600)
    assert troupe.conduct().missing == {}


def test_all_units_fail_to_begin() -> None:
    """Given no unit can begin, then the run is over, with every unit's reason."""
    troupe = Troupe(2)
    troupe.say(0, "failed", problem="no etcd")
    troupe.say(1, "failed", problem="no etcd either")
    run = troupe.conduct()
    assert run.over
    assert run.missing == {"load-claimer/0": "no etcd", "load-claimer/1": "no etcd either"}


def test_plan_storms_are_turns() -> None:
    """Given a plan with two storms in a stage, then they are turns, each held until the next, the last in full."""
    troupe = Troupe(1, STORMY)
    troupe.held(1)
    assert [(turn.kind, turn.stage) for turn in troupe.run.turns] == [("ramp", 1), ("storm", 1)]
    assert troupe.run.turns[1].begin == troupe.now + 10.0
    troupe.held(2)
    assert troupe.run.turns[-1].begin == troupe.now + 15.0
    troupe.held(3)
    assert (troupe.run.turns[-1].stage, troupe.run.turns[-1].begin) == (2, troupe.now + 30.0)


class Alone:
    """A run on one machine, whose only unit does as it is told at once, on a clock that the test moves."""

    def __init__(self, text: str, first: int = 1) -> None:
        self.now = 1_000_000.0
        self.run = SharedRun.in_memory(plan(text), "run/0", first, self.now)
        self.word = UnitWord(run=self.run.id, phase="making", t=self.now)

    def say(self, **fields: Any) -> SharedRun:
        self.word = self.word.model_copy(update={**fields, "t": self.now})
        self.run = conduct(self.run, {"run/0": self.word}, self.now)
        return self.run


def test_on_one_machine_a_stage_is_named_once_the_one_before_is_done() -> None:
    alone = Alone(PLAN)
    (first,) = alone.say(phase="ready").turns
    assert (first.number, first.stage, first.of, first.begin, first.hold) == (1, 1, 1, alone.now, None)
    # given the first stage is up, then it is held from now on, and nothing else is named
    alone.now += 3.0
    (first,) = alone.say(phase="up", turn=1).turns
    assert (first.hold, first.lasts) == (alone.now, 30.0)
    # when all that belongs to it is done, some time after its hold
    alone.now += 42.0
    *_, second = alone.say(held=1).turns
    assert (second.number, second.stage, second.begin, second.lasts) == (2, 2, alone.now, 40.0)
    # and after the last one the run is over
    alone.say(phase="up", turn=2)
    assert alone.say(held=2).over


def test_on_one_machine_storms_come_when_the_plan_says() -> None:
    """Given storms 10 s and 25 s after the begin of a hold, when a load takes 2 s to come up again."""
    alone = Alone(STORMY)
    alone.say(phase="ready")
    held = alone.now = alone.now + 1.0
    first, storm = alone.say(phase="up", turn=1).turns
    assert (first.hold, storm.kind, storm.stage, storm.begin) == (held, "storm", 1, held + 10.0)
    alone.now = storm.begin + 2.0
    *_, storm = alone.say(phase="up", turn=2).turns
    assert (storm.number, storm.kind, storm.begin) == (3, "storm", held + 25.0)
    # and after the last one the stage is held in full
    alone.now = storm.begin + 2.0
    *_, storm = alone.say(phase="up", turn=3).turns
    assert (storm.number, storm.hold, storm.lasts) == (3, alone.now, 30.0)


def test_a_resumed_run_begins_with_the_stage_that_it_was_in() -> None:
    alone = Alone(PLAN, first=2)
    (turn,) = alone.say(phase="ready").turns
    assert (turn.number, turn.stage, turn.lasts) == (2, 2, 40.0)


def test_storm_on_request_replaces_the_turn_that_was_named() -> None:
    """Given a stage is held, when a storm is asked for, then it comes next, and the next stage after its full hold."""
    troupe = Troupe(2)
    troupe.held(1)
    troupe.run = ask_storm(troupe.run, troupe.now + 1)
    storm = troupe.run.turns[-1]
    assert (storm.number, storm.kind, storm.stage, storm.lasts) == (2, "storm", 1, 30.0)
    troupe.held(2)
    following = troupe.run.turns[-1]
    assert (following.number, following.kind, following.stage) == (3, "ramp", 2)
    assert following.begin == troupe.now + 30.0


@pytest.mark.parametrize("moment", ["brought up", "ends soon", "stopped"])
def test_storm_is_refused_where_it_cannot_be(moment: str) -> None:
    """Given a load that is not up, or not for long enough, then a storm is refused in one line."""
    troupe = Troupe(2)
    if moment == "brought up":
        troupe.all_say("ready")
        troupe.conduct()
    else:
        troupe.held(1)
    if moment == "ends soon":
        troupe.now += 25.0
    if moment == "stopped":
        troupe.run = stop(troupe.run, "as asked")
    with pytest.raises(UserError, match=r"^storm: ") as refused:
        ask_storm(troupe.run, troupe.now)
    assert "\n" not in str(refused.value)


def test_stopped_run_names_no_further_turn() -> None:
    """Given a run that was stopped, then no turn is named, and it is over when all units have ended."""
    troupe = Troupe(2)
    troupe.all_say("ready")
    troupe.run = stop(troupe.run, "as asked")
    assert troupe.conduct().turns == []
    assert stop(troupe.run, "again").stopped == "as asked"
    troupe.all_say("over")
    run = troupe.conduct()
    assert run.over
    assert run.missing == {}


def test_a_unit_that_aborts_ends_the_run_on_all_units() -> None:
    troupe = Troupe(3)
    troupe.all_say("ready")
    troupe.conduct()
    troupe.all_say("up", 1)
    troupe.conduct()

    # when the threshold of one unit has ended its part
    troupe.say(1, "over", 1, "aborted: extend p99 was 2.3 s (threshold 1 s, abort)")
    run = troupe.conduct()

    # then the run is stopped for that reason, and no share is missing
    assert run.stopped == "aborted: extend p99 was 2.3 s (threshold 1 s, abort) on load-claimer/1"
    assert run.missing == {}
    assert not run.over
    # and it is over when the others have ended their parts too
    troupe.say(0, "over", 1)
    troupe.say(2, "over", 1)
    assert troupe.conduct().over


def test_plans_that_units_cannot_run_are_refused() -> None:
    """Given faults on a lab's members, then the run is refused in one line."""
    faulty = plan(PLAN + "lab: /run/lab\nfaults: [{do: kill, member: m1}]\n")
    with pytest.raises(UserError, match="faults"):
        begin_run(faulty, ["load-claimer/0"], 0.0)


RECOVER = "after: recover\nthresholds: [{operation: extend, p99: 1s}]\n"
LOWERED = Recovery(stages=[(1000, True), (2000, False)], broken=2000, before=1000)


def lowered(units: int = 2) -> Troupe:
    """Units in the hold of the first lower load after two stages."""
    troupe = Troupe(units, PLAN + RECOVER)
    for number in (1, 2):
        troupe.held(number)
    for unit in range(units):
        troupe.say(unit, "up", 2, held=2)
    troupe.judged(NextLoad(after=2, recovery=LOWERED, load=1800, hold=40))
    troupe.held(3)
    return troupe


def test_after_the_last_stage_the_leader_waits_for_what_all_units_measured_of_it() -> None:
    troupe = Troupe(2, PLAN + RECOVER)
    # given two units in the hold of the first stage: nothing is judged
    troupe.held(1)
    assert to_judge(troupe.run, troupe.words) is None
    # when the last stage is held, and one of them has reported on it
    troupe.held(2)
    troupe.say(0, "up", 2, held=2)
    assert to_judge(troupe.run, troupe.words) is None
    # then it is judged once the other one has too
    troupe.say(1, "up", 2, held=2)
    assert to_judge(troupe.run, troupe.words) == 2
    run = troupe.judged(NextLoad(after=2, recovery=LOWERED, load=1800, hold=40))
    # and the lower load that follows is a turn of both
    turn = run.turns[-1]
    assert (turn.number, turn.stage, turn.kind, turn.load, turn.lasts) == (3, 2, "recover", 1800, 40)
    assert (turn.of, turn.lost, turn.hold) == (2, [], None)
    assert run.recovery == LOWERED
    # whose hold is named when both have it up, and which is judged as well
    assert troupe.held(3).turns[-1].hold is not None
    assert to_judge(troupe.run, troupe.words) is None
    for unit in range(2):
        troupe.say(unit, "up", 3, held=3)
    assert to_judge(troupe.run, troupe.words) == 3


def test_a_lower_load_ends_early_once_thresholds_hold_again_on_each_unit() -> None:
    # given two units at a lower load, when the second one says what the first one says of it
    troupe = lowered()
    hold = troupe.run.turns[-1].hold
    assert hold is not None
    troupe.now = hold + 6
    troupe.say(0, "up", 3, clear=clear("held", 3))
    assert troupe.conduct().turns[-1].ends is None
    troupe.say(1, "up", 3, clear=clear("held", 3))
    # then one earlier end is named for both
    assert troupe.conduct().turns[-1].ends == troupe.now + lead(2) < hold + 40


@pytest.mark.parametrize("reason", ["is to break the target again", "said nothing when it ended early"])
def test_a_load_after_the_last_stage_is_held_to_its_end_if_it(reason: str) -> None:
    troupe = lowered()
    if reason == "is to break the target again":
        recovery = Recovery(stages=[(1000, True), (2000, None)])
    else:
        tried = LoadShown(stage=3, load=1800, lowers=True, held=None, seconds=20, nothing="not all at once")
        recovery = LOWERED.model_copy(update={"loads": [tried]})
    troupe.run = troupe.run.model_copy(update={"recovery": recovery})
    hold = troupe.run.turns[-1].hold
    assert hold is not None
    troupe.now = hold + 6
    for unit in range(2):
        troupe.say(unit, "up", 3, clear=clear("held", 3))
    assert troupe.conduct().turns[-1].ends is None


def test_a_run_ends_once_its_recovery_is_over() -> None:
    troupe = lowered()
    for unit in range(2):
        troupe.say(unit, "up", 3, held=3)
    # when the leader knows that the target is back
    run = troupe.judged(NextLoad(after=3, recovery=LOWERED.model_copy(update={"over": True})))
    # then no turn follows, and no unit that ends is missing
    assert len(run.turns) == 3
    assert to_judge(run, troupe.words) is None
    troupe.all_say("over", 3)
    run = troupe.conduct()
    assert (run.over, run.missing) == (True, {})


def test_a_unit_that_ends_before_the_recovery_does_is_missing_and_that_is_judged() -> None:
    troupe = lowered()
    troupe.say(1, "over", 3, problem="no memory")
    troupe.say(0, "up", 3, held=3)
    run = troupe.conduct()
    assert run.missing == {"load-claimer/1": "ended early: no memory"}
    assert to_judge(run, troupe.words) == 3


def test_a_lower_load_has_no_storm() -> None:
    troupe = lowered()
    troupe.now += 1
    with pytest.raises(UserError, match="storm"):
        ask_storm(troupe.run, troupe.now)


def test_lower_loads_follow_a_search_whose_answer_stays() -> None:
    troupe = searching(2, SEARCH + "after: recover\n")
    for unit in range(2):
        troupe.say(unit, "up", 1, held=1)
    end, begun = SearchEnd(ended="broken at start", low=0), Recovery()
    run = troupe.judged(NextLoad(after=1, end=end, recovery=begun, load=10, fresh=True, hold=30))
    assert (run.found, run.recovery, run.turns[-1].kind, run.turns[-1].fresh) == (end, begun, "recover", True)
    troupe.held(2)
    for unit in range(2):
        troupe.say(unit, "up", 2, held=2)
    run = troupe.judged(NextLoad(after=2, recovery=Recovery(skipped="no load failed", over=True)))
    assert (run.found, run.is_answered) == (end, True)


def test_status_says_where_the_run_is() -> None:
    """Given units on their way, then one line has the stage, the load of all, and the worst p99."""
    troupe = Troupe(2)
    troupe.say(0, "ready")
    troupe.say(1, "making", progress=UnitProgress(stage=0, size=0, held=0, preparing="applications: 3 of 9"))
    assert summary(troupe.run, troupe.words) == "preparing: 1 of 2 units ready, applications: 3 of 9"
    troupe.held(1)
    for unit, p99 in ((0, 12.0), (1, 31.25)):
        troupe.say(
            unit, "up", 1, progress=UnitProgress(stage=1, stages=2, size=500, held=500, p99_ms=p99, lost=unit)
        )
    assert summary(troupe.run, troupe.words) == "stage 1/2, 1,000 leases, p99 31.2 ms, 1 lost"
    troupe.words.pop("load-claimer/1")
    troupe.conduct()
    assert summary(troupe.run, troupe.words) == "stage 1/2, 500 leases, p99 12 ms; 1 of 2 units missing"
    troupe.say(1, "failed", 1, progress=UnitProgress(stage=1, stages=2, size=500, held=500, p99_ms=99.0))
    assert summary(troupe.run, troupe.words) == "stage 1/2, 500 leases, p99 12 ms; 1 of 2 units missing"
    assert summary(stop(troupe.run, "as asked"), troupe.words).startswith("stopping: as asked")


def test_the_line_says_hold_once_all_units_hold() -> None:
    troupe = Troupe(2)
    troupe.held(1)
    said: list[tuple[StagePhase | None, StagePhase | None, str]] = [
        (None, None, "stage 1/2, 1,000 leases"),
        ("ramp", "ramp", "stage 1/2 ramp, 1,000 leases"),
        ("hold", "ramp", "stage 1/2 ramp, 1,000 leases"),
        ("storm hold", "storm hold", "stage 1/2 storm hold, 1,000 leases"),
        ("drain", "drain", "stage 1/2 drain, 1,000 leases"),
    ]
    for first, second, told in said:
        for unit, phase in enumerate((first, second)):
            troupe.say(
                unit, "up", 1, progress=UnitProgress(stage=1, stages=2, size=500, held=500, phase=phase)
            )
        assert summary(troupe.run, troupe.words) == told


def test_a_unit_without_a_share_yet_is_told_where_the_run_is() -> None:
    """Given a run in its third stage, and a unit that joined late, then it does not say that an early stage begins."""
    troupe = Troupe(1, PLAN + "  - {leases: 3000, hold: 30s}\n  - {leases: 4000, hold: 30s}\n")
    for turn in (1, 2, 3):
        troupe.held(turn)

    def told_alone() -> str:
        alone = troupe.run.model_copy(update={"units": ["load-claimer/7"]})
        return summary(alone, {"load-claimer/7": troupe.words["load-claimer/7"]})

    for phase, progress, told in (
        ("ready", None, "stage 3, no share of it yet"),
        ("making", None, "stage 3, preparing for a later one"),
        (
            "making",
            UnitProgress(stage=0, size=0, held=0, preparing="units: 3 of 9"),
            "stage 3, preparing for a later one: units: 3 of 9",
        ),
    ):
        troupe.say(7, phase, progress=progress)
        assert told_alone() == told
    del troupe.words["load-claimer/7"]
    troupe.held(4)
    troupe.say(7, "ready")
    assert told_alone() == "stage 4, no share of it yet"


def test_a_hundred_units_fit_a_databag() -> None:
    """Given 100 units and 50 stages, then what the leader says stays far below 64 KiB at every turn."""
    stages = "\n".join(f"  - {{leases: {1000 + 10 * n}, hold: 30s}}" for n in range(50))
    troupe = Troupe(100, f"name: many\nstages:\n{stages}\n")
    for turn in range(1, 51):
        troupe.held(turn)
        assert len(troupe.run.model_dump_json()) < 32 * 1024
    assert troupe.run.turns[-1].number == 50
    assert word_every(100) > word_every(3)


def searching(units: int, text: str = SEARCH) -> Troupe:
    """Units in the hold of the first load of a search."""
    troupe = Troupe(units, text)
    troupe.all_say("ready")
    assert to_judge(troupe.conduct(), troupe.words) == 0
    troupe.judged(NextLoad(after=0, load=10.0, fresh=True, hold=30.0))
    troupe.now = troupe.run.turns[-1].begin
    troupe.all_say("up", 1)
    troupe.conduct()
    return troupe


def probe_of(turn: int, load: float) -> ProbeEvent:
    margins: list[tuple[str, float, float | None]] = [("claim p99", -1.2345, 0.1234)]
    return ProbeEvent(
        stage=turn,
        size=load,
        held=True,
        fresh=False,
        margins=margins,
        binds="claim p99",
        broken=["x" * 100, "y" * 100],
        began=123456.123,
        seconds=123.123,
        strained="z" * 100,
    )


def within(model: type[BaseModel]) -> set[type[BaseModel]]:
    """A model, and all those in its fields."""
    found: set[type[BaseModel]] = set()
    kinds: list[Any] = [model]
    while kinds:
        kind = kinds.pop()
        kinds.extend(get_args(kind))
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in found:
            found.add(kind)
            kinds.extend(field.annotation for field in kind.model_fields.values())
    return found


@pytest.mark.parametrize("told", [SharedRun, UnitWord, NextLoad])
def test_units_leave_out_what_is_unknown_and_each_reads_that(told: type[BaseModel]) -> None:
    """What is none is in no databag, and in no answer of an agent (exclude_none), so that no field may ask for it."""
    asked_for = {
        f"{model.__name__}.{name}"
        for model in within(told)
        for name, field in model.model_fields.items()
        if NoneType in get_args(field.annotation) and field.is_required()
    }
    assert not asked_for


def test_a_search_goes_on_after_a_load_that_said_nothing() -> None:
    # given a load in which a unit's generator was the bottleneck
    troupe = searching(2)
    nothing = probe_of(1, 10).model_copy(update={"held": None})
    # when the leader's agent tells so, and asks for it once more
    told = NextLoad(after=1, probe=nothing, load=10.0, hold=30.0).model_dump_json(exclude_none=True)
    troupe.now = troupe.run.turns[-1].until
    troupe.say(0, "up", 1, held=1)
    troupe.say(1, "up", 1, held=1)
    assert to_judge(troupe.conduct(), troupe.words) == 1
    troupe.judged(NextLoad.model_validate_json(told))
    assert troupe.run.turns[-1].number == 2
    # then every unit reads that
    assert read_shared(troupe.run.model_dump_json(exclude_none=True)) == troupe.run
    assert troupe.run.probes[0].held is None


def test_each_load_of_a_search_is_a_turn_that_waits_for_every_report() -> None:
    """Given two units in a load of a search, then the next one is named once both have reported on it and it is
    judged; the answer ends the run."""
    troupe = searching(2)
    (turn,) = troupe.run.turns
    assert (turn.kind, turn.load, turn.fresh, turn.lasts) == ("find", 10.0, True, 30.0)
    assert turn.hold is not None
    troupe.now = turn.hold + 30
    troupe.say(0, "up", 1, held=1)
    assert to_judge(troupe.conduct(), troupe.words) is None
    troupe.say(1, "up", 1, held=1)
    assert to_judge(troupe.conduct(), troupe.words) == 1
    troupe.judged(NextLoad(after=1, probe=probe_of(1, 10), load=20.0, hold=30.0))
    assert [(turn.number, turn.load, turn.fresh) for turn in troupe.run.turns] == [
        (1, 10.0, True),
        (2, 20.0, False),
    ]
    assert troupe.run.turns[-1].begin == troupe.now + lead(2)
    # an answer on a turn that is over changes nothing
    assert troupe.judged(NextLoad(after=1, load=40.0, hold=30.0)).turns[-1].load == 20.0
    troupe.now = troupe.run.turns[-1].begin
    troupe.all_say("up", 2)
    troupe.conduct()
    troupe.say(0, "up", 2, held=2)
    troupe.say(1, "up", 2, held=2)
    troupe.judged(NextLoad(after=2, probe=probe_of(2, 20), end=SearchEnd(ended="limit", low=20)))
    assert [probe.size for probe in troupe.run.probes] == [10, 20]
    assert to_judge(troupe.run, troupe.words) is None
    troupe.all_say("over", 2)
    assert troupe.conduct().over
    assert troupe.run.missing == {}


def clear(shows: str, turn: int = 1) -> ClearHold:
    return ClearHold(turn=turn, shows=shows)


@pytest.mark.parametrize("shows", ["held", "claim p99"])
def test_a_hold_ends_early_once_all_units_say_the_same_of_it(shows: str) -> None:
    """Given three units in a hold of a search, when the last one says what the others say of it, then one earlier end
    is named for all, and it stands."""
    troupe = searching(3)
    hold = troupe.run.turns[-1].hold
    assert hold is not None
    troupe.now = hold + 13
    troupe.say(0, "up", 1, clear=clear(shows))
    troupe.say(1, "up", 1, clear=clear(shows))
    assert troupe.conduct().turns[-1].ends is None
    troupe.say(2, "up", 1, clear=clear(shows))
    turn = troupe.conduct().turns[-1]
    assert turn.ends == turn.until == troupe.now + lead(3) < hold + 30
    # and one that takes it back by then comes too late
    troupe.now += 2
    troupe.say(2, "up", 1, clear=clear(""))
    assert troupe.conduct().turns == [turn]
    assert read_shared(troupe.run.model_dump_json()) == troupe.run


@pytest.mark.parametrize(
    ("words", "after"),
    [
        ([clear("held"), None], 13),
        ([clear("held"), clear("")], 13),
        ([clear("held"), clear("claim p99")], 13),
        ([clear("claim p99"), clear("claim error_rate")], 13),
        ([clear(""), clear("")], 13),
        ([clear("held", turn=2), clear("held", turn=2)], 13),
        ([clear("held"), clear("held")], 21.5),
    ],
    ids=[
        "one says nothing",
        "one takes it back",
        "one holds and one breaks",
        "each misses another threshold",
        "neither is sure",
        "of another turn",
        "too late to tell all before the hold is over",
    ],
)
def test_a_hold_goes_on_to_its_end(words: list[ClearHold | None], after: float) -> None:
    troupe = searching(2)
    hold = troupe.run.turns[-1].hold
    assert hold is not None
    troupe.now = hold + after
    for unit, said in enumerate(words):
        troupe.say(unit, "up", 1, clear=said)
    turn = troupe.conduct().turns[-1]
    assert (turn.ends, turn.until) == (None, hold + 30)


def test_a_hold_of_a_lost_unit_or_of_many_units_goes_on_to_its_end() -> None:
    lacking, many = searching(3), searching(16)
    del lacking.words["load-claimer/2"]
    for troupe in (lacking, many):
        hold = troupe.run.turns[-1].hold
        assert hold is not None
        troupe.now = hold + 1
        for unit in range(len(troupe.words)):
            troupe.say(unit, "up", 1, clear=clear("held"))
        assert troupe.conduct().turns[-1].ends is None


def test_the_others_share_the_loads_after_a_unit_was_lost() -> None:
    """Given three units in a search, when one is lost, then the next turn is of the two others, each at its place."""
    troupe = searching(3)
    del troupe.words["load-claimer/1"]
    troupe.conduct()
    troupe.say(0, "up", 1, held=1)
    troupe.say(2, "up", 1, held=1)
    troupe.judged(NextLoad(after=1, load=10.0, fresh=True, hold=30.0))
    turn = troupe.run.turns[-1]
    assert (turn.of, turn.lost) == (2, [1])
    assert [turn.place_of(position) for position in range(4)] == [0, None, 1, None]
    assert turn.sharing(troupe.run.units) == ["load-claimer/0", "load-claimer/2"]


def test_a_unit_that_restarts_in_a_search_has_a_share_again_once_it_is_ready() -> None:
    """Given two units in a search, when the agent of one is restarted, then that load shows nothing, and the unit has
    its share of the first turn that is named once it is ready."""
    troupe = searching(2)
    troupe.say(1, "making", 0, again=1)
    assert troupe.conduct().missing == {"load-claimer/1": RESTARTED}
    troupe.say(0, "up", 1, held=1)
    troupe.judged(NextLoad(after=1, load=10.0, fresh=True, hold=30.0))
    assert (troupe.run.turns[-1].of, troupe.run.turns[-1].lost) == (1, [1])
    # it is ready while the other one holds that load alone
    troupe.say(1, "ready", 0, again=1)
    troupe.say(0, "up", 2)
    troupe.conduct()
    assert troupe.run.missing == {"load-claimer/1": RESTARTED}
    troupe.say(0, "up", 2, held=2)
    troupe.judged(NextLoad(after=2, probe=probe_of(2, 10), load=20.0, hold=30.0))
    assert troupe.run.missing == {}
    assert (troupe.run.turns[-1].of, troupe.run.turns[-1].lost) == (2, [])
    troupe.say(1, "up", 3, again=1)
    assert troupe.conduct().missing == {}


def test_a_search_waits_for_its_units_if_the_agents_of_all_are_restarted() -> None:
    troupe = searching(2)
    troupe.say(0, "making", 0, again=1)
    troupe.say(1, "making", 0, again=1)
    run = troupe.conduct()
    assert not run.over
    assert to_judge(run, troupe.words) is None
    troupe.say(0, "ready", 0, again=1)
    assert to_judge(troupe.conduct(), troupe.words) == 1
    assert not troupe.judged(NextLoad(after=1, load=10.0, fresh=True, hold=30.0)).over
    assert troupe.run.missing == {"load-claimer/1": RESTARTED}
    assert (troupe.run.turns[-1].of, troupe.run.turns[-1].lost) == (1, [1])


def test_a_unit_that_restarts_and_fails_is_missing_for_good() -> None:
    troupe = searching(2)
    troupe.say(1, "making", 0, again=1)
    troupe.conduct()
    troupe.say(1, "failed", 0, again=1, problem="no login")
    assert troupe.conduct().missing == {"load-claimer/1": "no login"}


def test_a_search_that_cannot_be_judged_ends_with_the_reason() -> None:
    troupe = searching(1 + 1)
    for unit in (0, 1):
        troupe.say(unit, "up", 1, held=1)
    assert troupe.judged(NextLoad(after=1, stop="no digest")).stopped == "no digest"


def test_a_search_of_a_hundred_units_fits_a_databag() -> None:
    """Given 100 units and as many probes as a search may have, each with long reasons, then the leader's text is what
    was set aside for them at most."""
    troupe = searching(100)
    before = len(troupe.run.model_dump_json(exclude_none=True))
    probes = [probe_of(number, 1000.0 + number) for number in range(1, 61)]
    full = troupe.run.model_copy(update={"probes": probes})
    grown = len(full.model_dump_json(exclude_none=True)) - before
    assert grown <= room_for_probes(plan(SEARCH))
    assert before + room_for_probes(plan(SEARCH)) < 60_000
    assert read_shared(full.model_dump_json()) == full


def test_what_follows_the_last_load_fits_a_databag_too() -> None:
    """Given as many listed stages and lower loads as there may be, each with a long reason, then they take no more
    than was set aside for them."""
    stages = "".join(f"  - {{leases: {1000 + 10 * n}, hold: 30s}}\n" for n in range(50))
    asked = plan(f"name: many\nstages:\n{stages}{RECOVER}")
    run = begin_run(asked, ["load-claimer/0"], 1_000_000.0)
    shown = LoadShown(stage=100, load=12345.678, lowers=True, held=False, seconds=1234.567, nothing="n" * 100)
    listed = [(12345.678, False)] * 50
    known = Recovery(
        stages=listed, loads=[shown] * 30, lowered=1e9, broken=12345.678, before=12.5, skipped="s" * 100
    )
    full = run.model_copy(update={"recovery": known})
    grown = len(full.model_dump_json(exclude_none=True)) - len(run.model_dump_json(exclude_none=True))
    assert grown <= room_for_recovery(asked)
    assert read_shared(full.model_dump_json()) == full
    search = plan(SEARCH + "after: recover\n")
    assert room_for_probes(search) + room_for_recovery(search) < 50_000


@given(st.text() | st.binary().map(lambda b: b.decode("latin-1")) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
).map(lambda value: __import__("json").dumps(value)))  # fmt: skip
def test_databags_with_anything_in_them_say_nothing(text: str) -> None:
    """Given anything at all in a databag, then it is read as nothing, and never an exception."""
    assert read_shared(text) is None
    assert read_word(text) is None


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(["making", "ready", "up", "over", "failed", "gone"]),
            st.integers(0, 4),
        ),
        max_size=60,
    )
)
def test_whatever_units_say_turns_follow_one_another(said: list[tuple[int, Any, int]]) -> None:
    """Given any order of any words, then turns count up, no hold is before its turn, and nobody missing comes back."""
    troupe = Troupe(3)
    seen: list[int] = []
    missing: set[str] = set()
    for unit, phase, turn in said:
        troupe.now += 7.0
        if phase == "gone":
            troupe.words.pop(f"load-claimer/{unit}", None)
        else:
            troupe.say(unit, phase, turn)
        run = troupe.conduct()
        seen += [named.number for named in run.turns if named.number not in seen]
        assert missing <= run.missing.keys()
        missing = set(run.missing)
        for named in run.turns:
            assert named.hold is None or named.hold >= named.begin
        assert read_shared(run.model_dump_json()) == run
    assert seen == sorted(seen) == list(range(1, len(seen) + 1))


FIGURES = SEARCH.replace("1s}", "1s}, {figure: etcd-memory, at_most: 1GB, abort: true}")


def memory(turn: int, value: float | None = 5e8, why: str = "") -> FigureValue:
    return FigureValue(stage=turn, name="etcd-memory", value=value, host="etcd-0" if value else "", why=why)


def test_a_load_of_a_search_is_judged_once_its_figures_are_known() -> None:
    """Given a plan with a limit of a figure, when all units have reported on a load, then it is judged once the
    leader's agent has told what Prometheus has of it, and every later leader knows that."""
    troupe = searching(2, FIGURES)
    troupe.now = troupe.run.turns[-1].until
    troupe.say(0, "up", 1, held=1)
    troupe.say(1, "up", 1, held=1)
    assert to_judge(troupe.conduct(), troupe.words) is None
    news = FigureNews(run=troupe.run.id, values=[memory(1)])
    troupe.run = conduct(troupe.run, troupe.words, troupe.now, news=news)
    assert to_judge(troupe.run, troupe.words) == 1
    assert troupe.run.figures.known(plan(FIGURES)) == [memory(1)]
    assert read_shared(troupe.run.model_dump_json(exclude_none=True)) == troupe.run
    # and what is told again changes nothing
    assert conduct(troupe.run, troupe.words, troupe.now, news=news) is troupe.run


def test_a_load_in_which_a_unit_was_lost_waits_for_no_figures() -> None:
    troupe = searching(2, FIGURES)
    troupe.now = troupe.run.turns[-1].until
    troupe.say(0, "up", 1, held=1)
    troupe.words.pop("load-claimer/1")
    assert to_judge(troupe.conduct(), troupe.words) == 1


def test_a_run_is_over_once_its_last_figures_are_known() -> None:
    """Given units that have ended their parts, then the run is not over while Prometheus is asked; but if the leader's
    agent does not answer, it is."""
    troupe = Troupe(2, PLAN + "thresholds: [{figure: etcd-memory, at_most: 1GB}]\n")
    troupe.held(1)
    troupe.held(2)
    troupe.now = troupe.run.turns[-1].until
    troupe.all_say("over", 2)
    asking = FigureNews(run=troupe.run.id, values=[memory(1)], measuring=True)
    run = conduct(troupe.run, troupe.words, troupe.now, news=asking)
    assert not run.over
    assert run.missing == {}
    known = FigureNews(run=run.id, values=[memory(2, None, "it was away")])
    ended = conduct(run, troupe.words, troupe.now, news=known)
    assert ended.over
    assert [value.why for value in ended.figures.known(ended.validated())] == ["", "it was away"]
    assert conduct(run, troupe.words, troupe.now).over
    # and news of another run is none
    assert conduct(run, troupe.words, troupe.now, news=asking.model_copy(update={"run": "x"})).over


def test_a_figure_that_aborts_ends_the_run_on_all_units() -> None:
    troupe = searching(2, FIGURES)
    line = "etcd-memory was 2 GB (threshold 1 GB, abort)"
    run = conduct(troupe.run, troupe.words, troupe.now, news=FigureNews(run=troupe.run.id, abort=line))
    assert run.stopped == f"aborted: {line}"
    assert not run.over


def test_the_figures_of_a_search_fit_a_databag() -> None:
    """Given as many loads as a search may have, each with another reason and host, then their figures take no more
    room than was set aside, and leave room for the probes."""
    asked = plan(FIGURES)
    values = [
        FigureValue(
            stage=turn,
            name="etcd-memory",
            value=-1.23457e-12,
            host=f"{turn}" + "h" * 200,
            error=0.1234,
            why="w" * 200,
        )
        for turn in range(1, 61)
    ]
    told = FiguresTold().with_news(asked, FigureNews(run="x", values=values))
    assert len(told.model_dump_json(exclude_none=True)) <= room_for_figures(asked)
    assert room_for_figures(asked) + room_for_probes(asked) < 50_000
    assert room_for_figures(plan(SEARCH)) == 0
    known = told.known(asked)
    assert [value.value for value in known] == [-1.23457e-12] * 60
    assert known[0].host == "1" + "h" * 79
    assert known[-1].host == ELSE
