"""A run of several units: what a hook hands to the agent, publishes of it, and what the leader makes of it."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

import ops
import pytest
from ops import testing

from tests.charms.generators import (
    PLAN,
    ScriptedAgent,
    Unit,
    a_run,
    run_in,
    secret,
    state_of,
    units_of,
    with_peer,
)
from tippingpoint.conduct.run_state import SharedRun, Turn, UnitProgress, UnitWord, read_word
from tippingpoint.conduct.search_messages import DIGEST as DIGEST_OF_PROBE
from tippingpoint.conduct.search_messages import ClearHold, NextLoad, ProbeReport, SearchEnd, read_report
from tippingpoint.plan.read import parse_plan
from tippingpoint.plan.share import part_of
from tippingpoint.rundir.probe_events import ProbeEvent

OURS = "load-claimer/0"
FIRST = "load-claimer/1"
DIGEST = "d" * 40_000
SEARCH = """
name: search
target: {kind: etcd}
workload: {renew_time: 5s}
find: {start: 10, limit: 1000, hold: 60s}
thresholds: [{operation: extend, p99: 50ms}]
"""


def said(word: UnitWord) -> dict[str, str]:
    return {"word": word.model_dump_json(exclude_none=True)}


def result_of(run: SharedRun, digest: str = DIGEST) -> str:
    return json.dumps({"run": run.id, "digest": digest})


def published(state: testing.State) -> UnitWord | None:
    return read_word(units_of(state).local_unit_data.get("word"))


class TestOrders:
    def test_the_agent_is_handed_the_run_and_how_its_target_is_reached(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        run = a_run([OURS])
        unit.run(unit.on.config_changed(), state_of(unit, run=run))
        assert SharedRun.model_validate(agent.orders["run"]) == run
        assert agent.orders["target"] == {"kind": "etcd", "endpoints": ["http://192.0.2.7:2379"]}
        assert agent.orders["unit"] == OURS
        assert agent.orders["address"] == "192.0.2.0"  # as ops.testing's network has it

    def test_it_is_told_that_there_is_none(self, unit: Unit, agent: ScriptedAgent) -> None:
        unit.run(unit.on.config_changed(), state_of(unit))
        assert agent.orders["run"] is None

    def test_without_access_it_is_told_nothing_and_the_status_says_why(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        run = a_run([OURS])
        before = state_of(unit, run=run, access=secret(nothing="here"))
        out = unit.run(unit.on.config_changed(), before)
        assert agent.requests("orders") == []
        assert isinstance(out.unit_status, testing.BlockedStatus)
        assert out.unit_status.message.startswith("credentials: expected a secret with")
        assert out.unit_status.message.endswith(f": takes no part in {run.id}")

    def test_a_secret_that_is_taken_back_ends_no_part(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([OURS])
        agent.word = unit.word(run, "ready")
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run))
        before = agent.orders["target"]
        gone = state_of(unit, run=run, config={"credentials": None})
        gone = dataclasses.replace(gone, stored_states=out.stored_states)
        out = unit.run(unit.on.config_changed(), gone)
        assert agent.orders["run"] is not None
        assert agent.orders["target"] == before
        assert not isinstance(out.unit_status, testing.BlockedStatus)

    def test_its_refusal_is_the_status(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([OURS])
        agent.refuse("orders", "run.plan: x: expected y")
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run))
        assert out.unit_status == testing.BlockedStatus(f"run.plan: x: expected y: takes no part in {run.id}")

    @pytest.mark.parametrize("answer", ["", "no json\n", "[]\n", '{"no": 1}\n', "{" * 100_000 + "\n"])
    def test_an_agent_that_talks_nonsense_is_away(
        self, unit: Unit, agent: ScriptedAgent, answer: str
    ) -> None:
        agent.nonsense = answer
        out = unit.run(unit.on.config_changed(), state_of(unit, run=a_run([OURS])))
        assert isinstance(out.unit_status, testing.WaitingStatus)

    @pytest.mark.parametrize("word", [[], {"run": 7}, "x", {"run": "r", "phase": "up", "t": float("1e300")}])
    def test_a_word_that_is_none_is_not_published(
        self, unit: Unit, agent: ScriptedAgent, word: object
    ) -> None:
        agent.answers["word"] = lambda _: {"word": word, "result": word}
        out = unit.run(unit.on.config_changed(), state_of(unit, run=a_run([OURS])))
        assert dict(units_of(out).local_unit_data).get("word", "") == ""


class TestLostUnits:
    """What a unit that is gone made in the target, the leader's agent is to remove."""

    def lost(self, unit: Unit, agent: ScriptedAgent, leader: bool = True, over: bool = True) -> list[str]:
        second, third = "load-claimer/2", "load-claimer/3"
        run = a_run(
            [FIRST, OURS, second, third], over=over, missing=dict.fromkeys((FIRST, second, third), "silent")
        )
        words = {1: said(unit.word(run, "failed")), 2: said(unit.word(run, "up"))}
        unit.run(unit.on.config_changed(), state_of(unit, run=run, leader=leader, peers=words))
        return agent.orders["lost"]

    def test_those_that_are_silent_or_gone_and_not_who_ended_by_itself(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        assert self.lost(unit, agent) == ["load-claimer/2", "load-claimer/3"]

    def test_none_while_the_run_goes_on(self, unit: Unit, agent: ScriptedAgent) -> None:
        assert self.lost(unit, agent, over=False) == []

    def test_the_leaders_matter(self, unit: Unit, agent: ScriptedAgent) -> None:
        assert self.lost(unit, agent, leader=False) == []


class TestClock:
    """All units go by the clock of the first one that is there."""

    def orders_with(self, unit: Unit, agent: ScriptedAgent, run: SharedRun, **peers: UnitWord | None) -> str:
        data = {int(name[1:]): {} if word is None else said(word) for name, word in peers.items()}
        unit.run(unit.on.config_changed(), state_of(unit, run=run, leader=False, peers=data))
        return agent.orders["reference"]

    def test_of_the_first_unit(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([FIRST, OURS])
        word = unit.word(run, clock="192.0.2.9:1234")
        assert self.orders_with(unit, agent, run, _1=word) == "192.0.2.9:1234"

    def test_not_of_a_later_one_while_the_first_has_not_spoken(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        run = a_run([FIRST, "load-claimer/2", OURS])
        later = unit.word(run, clock="192.0.2.9:1234")
        assert self.orders_with(unit, agent, run, _1=None, _2=later) == ""

    def test_of_the_next_one_where_the_first_is_gone(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([FIRST, "load-claimer/2", OURS])
        later = unit.word(run, clock="192.0.2.9:1234")
        assert self.orders_with(unit, agent, run, _2=later) == "192.0.2.9:1234"

    def test_of_the_next_one_where_the_first_has_none(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([FIRST, "load-claimer/2", OURS])
        later = unit.word(run, clock="192.0.2.9:1234")
        assert self.orders_with(unit, agent, run, _1=unit.word(run), _2=later) == "192.0.2.9:1234"

    def test_our_own_when_we_are_the_first(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([OURS, FIRST])
        assert self.orders_with(unit, agent, run, _1=unit.word(run, clock="192.0.2.9:1234")) == ""

    def test_the_leader_names_moments_by_it(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([FIRST, OURS])
        ahead = 5000.0
        agent.word = unit.word(run, "ready", t=time.time(), offset=ahead, offset_error=0.001)
        ready = said(unit.word(run, "ready", t=time.time() - ahead))
        before = time.time()
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run, peers={1: ready}))
        after = time.time()
        found = run_in(out)
        assert found is not None
        assert before + 4 <= found.turns[0].begin + ahead <= after + 14


class TestWords:
    def test_the_agents_word_and_result_are_published(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([FIRST, OURS])
        agent.word = unit.word(run, "over")
        agent.result = {"run": run.id, "digest": DIGEST}
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run, leader=False))
        assert published(out) == agent.word
        assert json.loads(units_of(out).local_unit_data["result"]) == agent.result
        assert sum(map(len, units_of(out).local_unit_data.values())) < 65_536

    def test_they_are_on_scale_run_too(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([OURS])
        agent.word = unit.word(run, "making")
        collector = testing.Relation("scale-run", remote_app_name="metrics-collector")
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run, others=[collector]))
        relation = out.get_relation(collector.id)
        assert read_word(relation.local_unit_data["word"]) == agent.word
        assert SharedRun.model_validate_json(relation.local_app_data["run"]) == run  # pyright: ignore

    def test_how_far_it_is_only_now_and_then(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([FIRST, OURS])
        first = unit.word(run, "up", turn=1, t=run.made)
        agent.word = first.model_copy(
            update={"t": run.made + 20, "progress": UnitProgress(stage=1, size=1, held=1)}
        )
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run, leader=False, own=said(first)))
        assert published(out) == first
        agent.word = agent.word.model_copy(update={"t": run.made + 28})
        out = unit.run(unit.on.config_changed(), out)
        assert published(out) == agent.word

    @pytest.mark.parametrize(
        "news",
        [
            {"phase": "over"},
            {"turn": 2},
            {"problem": "oh"},
            {"clock": "192.0.2.1:7"},
            {"run": "other"},
            {"clear": ClearHold(turn=1, shows="held")},
        ],
    )
    def test_what_is_news_at_once(self, unit: Unit, agent: ScriptedAgent, news: dict[str, object]) -> None:
        run = a_run([FIRST, OURS])
        first = unit.word(run, "up", turn=1)
        agent.word = first.model_copy(update=news)
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run, leader=False, own=said(first)))
        assert published(out) == agent.word

    @pytest.mark.parametrize(("units", "at_once"), [(2, True), (15, True), (16, False)])
    def test_that_a_hold_begins_is_news_at_once_unless_there_are_many_units(
        self, unit: Unit, agent: ScriptedAgent, units: int, at_once: bool
    ) -> None:
        # given a unit whose load is coming up, as the others know
        run = a_run([FIRST, OURS])
        ramp = UnitProgress(stage=1, size=1, held=1, phase="ramp")
        first = unit.word(run, "up", turn=1, progress=ramp)
        peers = {number: {} for number in range(2, units + 1)}
        # when its hold begins a moment later
        agent.word = first.model_copy(update={"progress": ramp.model_copy(update={"phase": "hold"})})
        state = state_of(unit, run=run, leader=False, own=said(first), peers=peers)
        out = unit.run(unit.on.config_changed(), state)
        # then they know that at once, while they are few
        assert published(out) == (agent.word if at_once else first)

    def test_a_word_that_waits_for_no_agent_stays(self, unit: Unit) -> None:
        run = a_run([FIRST, OURS])
        before = said(unit.word(run, "up"))
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run, leader=False, own=before))
        assert units_of(out).local_unit_data["word"] == before["word"]
        assert isinstance(out.unit_status, testing.WaitingStatus)


class TestLeader:
    def test_the_first_turn_is_named_when_all_are_ready(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([OURS, FIRST])
        agent.word = unit.word(run, "ready", t=time.time())
        state = unit.agent_changed(state_of(unit, run=run, peers={1: {}}))
        waiting = run_in(state)
        assert waiting is not None
        assert waiting.turns == []
        state = with_peer(state, 1, **said(unit.word(run, "ready", t=time.time())))
        changed = unit.on.relation_changed(units_of(state), remote_unit=1)
        state = unit.run(changed, state)
        begun = run_in(state)
        assert begun is not None
        assert [turn.number for turn in begun.turns] == [1]
        assert SharedRun.model_validate(agent.orders["run"]) == begun  # our own agent knows at once

    def test_another_unit_leaves_that_to_it(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([OURS, FIRST])
        agent.word = unit.word(run, "ready", t=time.time())
        ready = said(unit.word(run, "ready", t=time.time()))
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run, leader=False, peers={1: ready}))
        assert run_in(out) == run

    def test_the_next_leader_goes_on_from_the_databags(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([FIRST, OURS])
        agent.word = unit.word(run, "ready", t=time.time())
        ready = said(unit.word(run, "ready", t=time.time()))
        before = state_of(unit, run=run, leader=False, peers={1: ready})
        state = unit.run(unit.on.config_changed(), before)
        elected = unit.run(unit.on.leader_elected(), dataclasses.replace(state, leader=True))
        begun = run_in(elected)
        assert begun is not None
        assert len(begun.turns) == 1

    def test_a_unit_that_goes_is_missing(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([OURS, FIRST])
        agent.word = unit.word(run, "making", t=time.time())
        state = state_of(unit, run=run, peers={1: said(unit.word(run, "making", t=time.time()))})
        event = unit.on.relation_departed(units_of(state), remote_unit=1, departing_unit=1)
        out = run_in(unit.run(event, state))
        assert out is not None
        assert out.missing == {FIRST: "the unit was removed"}

    def test_a_unit_that_juju_does_not_mean_to_keep_is_missing_whatever_it_said_last(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        # given a Juju 4.0.15, which has told nobody that the unit departed and names it still (issue 15)
        run = a_run([OURS, FIRST])
        agent.word = unit.word(run, "making", t=time.time())
        state = state_of(unit, run=run, peers={1: said(unit.word(run, "up", t=time.time()))})
        unit.machine.stay = {OURS, FIRST}
        state = unit.agent_changed(state)
        assert run_in(state) == run
        unit.machine.stay = {OURS}
        out = run_in(unit.agent_changed(state))
        assert out is not None
        assert out.missing == {FIRST: "the unit was removed"}

    def test_a_unit_that_is_removed_itself_takes_nobody_for_gone(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        run = a_run([OURS, FIRST])
        agent.word = unit.word(run, "making", t=time.time())
        state = state_of(unit, run=run, peers={1: said(unit.word(run, "making", t=time.time()))})
        unit.machine.stay = set()
        assert run_in(unit.agent_changed(state)) == run

    def test_a_run_is_not_begun_with_units_that_are_removed(self, unit: Unit, agent: ScriptedAgent) -> None:
        unit.machine.stay = {OURS, FIRST}
        results = unit.act("start", state_of(unit, peers={1: {}, 2: {}}), plan_yaml=PLAN)
        assert results["units"] == "2"

    def test_the_last_word_of_a_unit_that_goes_is_final_and_its_result_is_kept(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        run = a_run([OURS, FIRST])
        agent.word = unit.word(run, "making", t=time.time())
        state = unit.agent_changed(state_of(unit, run=run, peers={1: said(unit.word(run, t=time.time()))}))
        last = unit.word(run, "over", leaves=True, problem="the unit was removed", t=time.time())
        state = with_peer(state, 1, **said(last), result=result_of(run))
        state = unit.run(unit.on.relation_changed(units_of(state), remote_unit=1), state)
        out = run_in(state)
        assert out is not None
        assert out.missing == {FIRST: "the unit was removed"}
        (kept,) = agent.requests("keep")
        assert kept["digests"] == {FIRST: DIGEST}
        assert UnitWord.model_validate(kept["words"][FIRST]) == last

    def test_a_result_that_comes_with_the_departure_alone_is_kept(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        run = a_run([OURS, FIRST])
        last = unit.word(run, "over", leaves=True, t=time.time())
        state = state_of(unit, run=run, leader=False, peers={1: {**said(last), "result": result_of(run)}})
        event = unit.on.relation_departed(units_of(state), remote_unit=1, departing_unit=1)
        unit.run(event, state)
        (kept,) = agent.requests("keep")
        assert kept["digests"] == {FIRST: DIGEST}

    def test_what_ended_whole_before_its_unit_went_is_not_missing(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        run = a_run([OURS, FIRST], stopped="asked to stop")
        agent.word = unit.word(run, "making", t=time.time())
        state = state_of(unit, run=run, peers={1: said(unit.word(run, "over", t=time.time()))})
        state = unit.agent_changed(state)
        unit.machine.stay = {OURS}
        agent.word = unit.word(run, "over", t=time.time())
        out = run_in(unit.agent_changed(state))
        assert out is not None
        assert (out.over, out.missing) == (True, {})

    def test_of_100_units_it_reads_only_the_one_that_changed(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([OURS, *(f"load-claimer/{n}" for n in range(1, 100))])
        word = unit.word(run, "making", t=time.time())
        state = state_of(unit, run=run, peers={n: said(word) for n in range(1, 100)})
        state = unit.run(unit.on.config_changed(), state)
        # What was not the hook's matter is not read: it does not show that it has changed meanwhile.
        for number in (1, 2):
            state = with_peer(state, number, **said(unit.word(run, "failed", problem="oh", t=time.time())))
        out = run_in(unit.run(unit.on.relation_changed(units_of(state), remote_unit=2), state))
        assert out is not None
        assert out.missing == {"load-claimer/2": "oh"}

    @pytest.mark.parametrize("problem", [ops.ModelError, ops.RelationDataAccessError])
    def test_leadership_lost_while_it_writes_is_survived(
        self, unit: Unit, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch, problem: type[Exception]
    ) -> None:
        from scenario.mocking import _MockModelBackend  # what a Juju does that takes leadership in mid-hook

        written = _MockModelBackend.relation_set

        def refuse(self: object, *args: object, is_app: bool, **more: object) -> None:
            if is_app:
                raise problem("ERROR cannot write relation settings")
            written(self, *args, is_app=is_app, **more)  # pyright: ignore

        monkeypatch.setattr(_MockModelBackend, "relation_set", refuse)
        run = a_run([OURS])
        agent.word = unit.word(run, "ready", t=time.time())
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run))
        assert run_in(out) == run
        assert published(out) == agent.word

    def test_results_are_kept_once_all_are_in(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([OURS, FIRST, "load-claimer/2"], over=True, missing={"load-claimer/2": "silent"})
        agent.word = unit.word(run, "over")
        over = said(unit.word(run, "over"))
        state = state_of(unit, run=run, peers={1: over, 2: {}})
        state = unit.agent_changed(state)
        assert agent.requests("keep") == []
        state = with_peer(state, 1, result=result_of(run))
        state = unit.run(unit.on.relation_changed(units_of(state), remote_unit=1), state)
        (kept,) = agent.requests("keep")
        assert kept["digests"] == {FIRST: DIGEST}
        assert set(kept["words"]) == {OURS, FIRST}
        unit.agent_changed(state)
        assert len(agent.requests("keep")) == 1


class TestSearch:
    """A search that units share: the leader's agent judges each load by the reports of all."""

    def held(self, units: list[str]) -> SharedRun:
        """A search whose first load was held to its end."""
        now = time.time()
        turn = Turn(
            number=1, stage=1, kind="find", of=2, begin=now - 70, hold=now - 60, lasts=60, load=10, fresh=True
        )
        return a_run(units, SEARCH, turns=[turn], started=turn.begin)

    def report(self, unit: str, run: SharedRun) -> ProbeReport:
        return ProbeReport(run=run.id, turn=1, digest=unit)

    def of_peer(self, unit: Unit, run: SharedRun, held: int = 1) -> dict[str, str]:
        word = unit.word(run, "up", turn=1, held=held, t=time.time())
        return {**said(word), "probe": self.report(FIRST, run).model_dump_json() if held else ""}

    def held_by(self, agent: ScriptedAgent, run: SharedRun) -> None:
        """Our agent has held the first load, and has a report on it."""
        progress = UnitProgress(stage=1, size=5, held=5, p99_ms=31.0)
        said = agent.unit.word(run, "up", turn=1, held=1, t=time.time(), progress=progress)
        word = said.model_dump(mode="json")
        report = self.report(OURS, run).model_dump(mode="json")
        agent.answers["word"] = lambda _: {"word": word, "result": None, "report": report}

    def judged_as(self, agent: ScriptedAgent, following: NextLoad) -> None:
        """Our agent knows what follows."""
        told = following.model_dump(mode="json", exclude_none=True)
        agent.answers["judge"] = lambda _: {"next": told}

    def test_what_the_agent_measured_of_a_load_is_published_at_once(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        run = self.held([FIRST, OURS])
        before = unit.word(run, "up", turn=1, t=time.time())
        self.held_by(agent, run)
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run, leader=False, own=said(before)))
        word = published(out)
        assert word is not None
        assert word.held == 1
        assert read_report(units_of(out).local_unit_data["probe"]) == self.report(OURS, run)
        # and it is taken back with the end of the part
        agent.answers["word"] = lambda _: {
            "word": unit.word(run, "over", t=time.time()).model_dump(mode="json"),
            "result": None,
            "report": None,
        }
        assert units_of(unit.agent_changed(out)).local_unit_data.get("probe", "") == ""

    def test_a_report_fits_a_databag(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = self.held([FIRST, OURS])
        long = ProbeReport(run=run.id, turn=1, digest="d" * DIGEST_OF_PROBE, gone="g" * 1000)
        word = unit.word(run, "up", turn=1, held=1, problem="p" * 1000, t=time.time())
        agent.answers["word"] = lambda _: {
            "word": word.model_dump(mode="json"),
            "result": {"run": run.id, "digest": DIGEST},
            "report": long.model_dump(mode="json"),
        }
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run, leader=False))
        assert read_report(units_of(out).local_unit_data["probe"]) == long
        assert sum(map(len, units_of(out).local_unit_data.values())) < 65_536

    @pytest.mark.parametrize(("judged", "told"), [(True, "passed"), (None, "was inconclusive")])
    def test_the_leader_has_all_reports_judged_and_names_the_next_load(
        self, unit: Unit, agent: ScriptedAgent, judged: bool | None, told: str
    ) -> None:
        # given a load that one of two units has held
        run = self.held([OURS, FIRST])
        self.held_by(agent, run)
        probe = ProbeEvent(
            stage=1, size=10, held=judged, fresh=True, margins=[], broken=[], began=0, seconds=70
        )
        self.judged_as(agent, NextLoad(after=1, probe=probe, load=20.0, hold=60.0))
        state = unit.agent_changed(state_of(unit, run=run, peers={1: self.of_peer(unit, run, held=0)}))
        # then nothing is judged yet
        assert agent.requests("judge") == []
        assert run_in(state) == run
        # when the other one has, too
        state = with_peer(state, 1, **self.of_peer(unit, run))
        out = unit.run(unit.on.relation_changed(units_of(state), remote_unit=1), state)
        # then the agent is given the reports and words of both
        (asked,) = agent.requests("judge")
        assert {name: report["digest"] for name, report in asked["reports"].items()} == {
            OURS: OURS,
            FIRST: FIRST,
        }
        assert {*asked["words"]} == {OURS, FIRST}
        assert SharedRun.model_validate(asked["shared"]).turns == run.turns
        # and what it says is next is the next turn of all units
        found = run_in(out)
        assert found is not None
        assert found.probes == [probe]
        assert [(turn.number, turn.load, turn.fresh, turn.hold) for turn in found.turns[1:]] == [
            (2, 20.0, False, None)
        ]
        assert SharedRun.model_validate(agent.orders["run"]) == found
        # and the action says what the load showed
        assert unit.act("status", out)["status"] == f"stage 1, 5 leases, p99 31 ms; probe of 10 {told}"

    def test_while_the_agent_judges_nothing_is_named(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = self.held([OURS, FIRST])
        self.held_by(agent, run)
        agent.answers["judge"] = lambda _: {"next": None}
        state = state_of(unit, run=run, peers={1: self.of_peer(unit, run)})
        assert run_in(unit.agent_changed(state)) == run

    def test_the_answer_ends_the_search(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = self.held([OURS, FIRST])
        self.held_by(agent, run)
        end = SearchEnd(ended="limit", low=10)
        self.judged_as(agent, NextLoad(after=1, end=end))
        out = run_in(unit.agent_changed(state_of(unit, run=run, peers={1: self.of_peer(unit, run)})))
        assert out is not None
        assert (out.found, len(out.turns), out.stopped) == (end, 1, "")

    def test_an_agent_that_cannot_judge_ends_the_run_with_the_reason(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        run = self.held([OURS, FIRST])
        self.held_by(agent, run)
        agent.refuse("judge", "request: judge: expected 'orders' or 'word'")
        out = run_in(unit.agent_changed(state_of(unit, run=run, peers={1: self.of_peer(unit, run)})))
        assert out is not None
        assert out.stopped == (
            f"the agent of {OURS} cannot conduct a search: request: judge: expected 'orders' or 'word'"
        )

    def test_a_search_by_two_units_is_begun(self, unit: Unit, agent: ScriptedAgent) -> None:
        results = unit.act("start", state_of(unit, peers={1: {}}), plan="etcd-find")
        assert results["units"] == "2"
        begun = run_in(unit.after)
        assert begun is not None
        assert begun.shared


class TestStatus:
    def status(self, unit: Unit, run: SharedRun, leader: bool = True, **peers: UnitWord) -> str:
        data = {int(name[1:]): said(word) for name, word in peers.items()}
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run, leader=leader, peers=data))
        return f"{out.unit_status.name}: {out.unit_status.message}"

    def turning(self, units: list[str], **changes: object) -> SharedRun:
        now = time.time()
        turn = Turn(number=1, stage=1, kind="ramp", of=len(units), begin=now - 9, hold=now - 1, lasts=60)
        return a_run(units, turns=[turn], started=now - 9, **changes)

    def test_while_it_makes_ready(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([OURS])
        agent.word = unit.word(run, progress=UnitProgress(stage=0, size=0, held=0, preparing="units 5/30"))
        assert self.status(unit, run) == "maintenance: preparing the run: units 5/30"

    def test_while_others_make_ready(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([FIRST, OURS])
        agent.word = unit.word(run, "ready")
        assert self.status(unit, run, leader=False) == "active: ready, waiting for the other units"

    def test_what_runs_of_the_leader_is_of_all(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = self.turning([OURS, FIRST])
        progress = UnitProgress(stage=1, stages=2, size=8000, held=8000, p99_ms=31.0)
        word = unit.word(run, "up", turn=1, t=time.time(), progress=progress)
        agent.word = word
        assert self.status(unit, run, _1=word) == "active: stage 1/2, 16,000 leases, p99 31 ms"
        assert self.status(unit, run, leader=False) == "active: stage 1/2, 8,000 leases, p99 31 ms"

    def test_a_unit_that_joins_says_where_the_run_is(self, unit: Unit, agent: ScriptedAgent) -> None:
        first = self.turning([FIRST])
        (turn,) = first.turns
        held = [turn.model_copy(update={"number": n, "stage": n}) for n in (1, 2)]
        run = first.model_copy(
            update={"turns": [*held, turn.model_copy(update={"number": 3, "stage": 2, "hold": None})]}
        )
        agent.word = unit.word(run, "ready", t=time.time())
        assert self.status(unit, run, leader=False) == "active: stage 2, no share of it yet"

    def test_a_leader_that_is_left_alone_says_who_is_missing(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = self.turning([FIRST, OURS], missing={FIRST: "the unit was removed"})
        progress = UnitProgress(stage=1, stages=2, size=50, held=50, p99_ms=31.0)
        agent.word = unit.word(run, "up", turn=1, t=time.time(), progress=progress)
        told = "active: stage 1/2, 50 leases, p99 31 ms"
        assert self.status(unit, run) == f"{told}; 1 of 2 units missing"
        assert self.status(unit, run, leader=False) == told

    def test_a_part_that_failed(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = self.turning([FIRST, OURS])
        agent.word = unit.word(run, "failed", problem="etcd: refused")
        assert self.status(unit, run, leader=False) == "active: takes no part in the run: etcd: refused"

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({}, ""),
            ({"stopped": "asked to stop"}, " stopped: asked to stop"),
            ({"missing": {OURS: "etcd: refused", FIRST: "etcd: refused"}}, " failed: etcd: refused"),
            ({"missing": {FIRST: "silent"}}, " lacks 1 of 2 units: load-claimer/1: silent"),
        ],
    )
    def test_when_it_is_over(
        self, unit: Unit, agent: ScriptedAgent, changes: dict[str, object], said: str
    ) -> None:
        run = a_run([OURS, FIRST], over=True, **changes)
        assert self.status(unit, run) == (
            f"active: ready: etcd (at http://192.0.2.7:2379); last run {run.id}{said}"
        )


class TestManyUnits:
    def test_100_units_share_16000_leases_evenly(self) -> None:
        plan = parse_plan(PLAN)
        sizes = [part_of(plan, index, 100).loads[0][1] for index in range(100)]
        assert sizes == [160] * 100

    def test_the_databags_stay_under_64_kib(self, root: Path) -> None:
        unit = Unit(root)
        with ScriptedAgent(unit).at_its_socket() as agent:
            names = [OURS, *(f"load-claimer/{n}" for n in range(1, 100))]
            run = a_run(names)
            words = {
                number: {**said(unit.word(run, "ready", t=time.time())), "result": result_of(run)}
                for number in range(1, 100)
            }
            agent.word = unit.word(run, "ready", t=time.time(), problem="p" * 1000)
            agent.result = {"run": run.id, "digest": DIGEST}
            out = unit.run(unit.on.leader_elected(), state_of(unit, run=run, peers=words))
        relation = units_of(out)
        begun = run_in(out)
        assert begun is not None
        assert begun.turns[0].of == 100
        for bag in (relation.local_app_data, relation.local_unit_data):
            assert sum(len(key) + len(value) for key, value in bag.items()) < 65_536
