"""What a generator can be asked for: results that fit, and refusals of one line."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from ops import testing
from tippingpoint_charm.parameters import Start

from tests.charms.generators import (
    PLAN,
    ScriptedAgent,
    Unit,
    a_run,
    etcd_secret,
    lxd_token,
    real_agent,
    run_in,
    secret,
    state_of,
    units_of,
)
from tests.charms.related import SERVER
from tippingpoint.conduct.run_state import SharedRun, Turn, UnitProgress, UnitWord
from tippingpoint.errors import UserError

OURS = "load-claimer/0"
OTHER = "load-claimer/1"


def said(word: UnitWord) -> dict[str, str]:
    return {"word": word.model_dump_json(exclude_none=True)}


def held(units: list[str]) -> SharedRun:
    now = time.time()
    turn = Turn(number=1, stage=1, kind="ramp", of=len(units), begin=now - 9, hold=now - 1, lasts=60)
    return a_run(units, turns=[turn], started=now - 9)


class TestStart:
    def test_the_run_is_everybodys_and_the_agent_has_it_at_once(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        results = unit.act("start", state_of(unit, peers={2: {}, 1: {}, 10: {}}), plan="etcd-leases-small")
        run = run_in(unit.after)
        assert run is not None
        assert results == {
            "run": run.id,
            "units": "4",
            "follow": "juju run load-claimer/leader status\n",
            "then": f"juju run load-claimer/leader report run={run.id}\n",
        }
        # The leader first, whose clock is the one that its moments are named by; then by number.
        assert run.units == [OURS, "load-claimer/1", "load-claimer/2", "load-claimer/10"]
        assert agent.orders["run"]["id"] == run.id

    def test_names_the_units_whose_agents_do_not_answer(self, unit: Unit, agent: ScriptedAgent) -> None:
        # Given a unit whose machine is dead: Juju still has it in the relation
        unit.machine.silent = {"load-claimer/2"}
        addresses = {n: {"ingress-address": f"192.0.2.{n}"} for n in (1, 2)}
        results = unit.act("start", state_of(unit, peers=addresses), plan="etcd-leases-small")
        assert results["units"] == "3"
        assert results["silent"] == "load-claimer/2: no answer at 192.0.2.2"
        unit.machine.silent.clear()
        assert "silent" not in unit.act("start", state_of(unit, peers=addresses), plan="etcd-leases-small")

    def test_lower_loads_after_the_last_one_are_for_many_units_too(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        limits = "after: recover\nthresholds: [{operation: extend, p99: 1s}]\n"
        searching = "find: {start: 10, limit: 1000}\nworkload: {renew_time: 5s}\n"
        for loads in ("stages: [{leases: 10, hold: 30s}]\n", searching):
            plan = f"name: lowered\ntarget: {{kind: etcd}}\n{loads}{limits}"
            assert unit.act("start", state_of(unit, peers={1: {}}), plan_yaml=plan)["units"] == "2"
            run = run_in(unit.after)
            assert run is not None
            assert run.recovers

    @pytest.mark.parametrize(
        "overrides",
        [
            "stages.0.hold=7s; workload.units=5",
            "stages.0.hold=7s\n\n workload.units=5\n",
            "stages.0.hold=7s\nworkload.units=5\ndescription=a; b",
        ],
    )
    def test_overrides_change_the_plan(self, unit: Unit, agent: ScriptedAgent, overrides: str) -> None:
        unit.act("start", state_of(unit), plan="etcd-leases-small", overrides=overrides)
        run = run_in(unit.after)
        assert run is not None
        assert run.plan["stages"][0]["hold"] == "7s"
        assert run.plan["workload"]["units"] == 5

    def test_a_plan_of_ones_own(self, unit: Unit, agent: ScriptedAgent) -> None:
        unit.act("start", state_of(unit), plan_yaml=PLAN)
        run = run_in(unit.after)
        assert run is not None
        assert run.plan["name"] == "small"

    def test_the_last_runs_results_are_kept_first(self, unit: Unit, agent: ScriptedAgent) -> None:
        before = a_run([OURS], over=True)
        unit.act("start", state_of(unit, run=before), plan_yaml=PLAN)
        (kept,) = agent.requests("keep")
        assert kept["shared"]["id"] == before.id

    @pytest.mark.parametrize(
        ("params", "said"),
        [
            ({}, "plan: missing: expected either plan=NAME, or juju run --string-args ... plan-yaml="),
            (
                {"plan": "a", "plan_yaml": "b"},
                "plan: a: expected either plan=NAME, or juju run --string-args ",
            ),
            ({"plan": "etcd-leases-smal"}, "(did you mean etcd-leases-small?)"),
            (
                {"plan": "lxd-cluster-small"},
                "a plan of the workload claim, store or operate: container-spawner runs this one",
            ),
            (
                {"plan": "pacemaker-cts"},
                "a plan of the workload claim, store or operate: only the command line runs this one",
            ),
            ({"plan": "/etc/passwd"}, "plan: /etc/passwd: expected one of etcd-api-server, etcd-capacity, "),
            ({"plan_yaml": "a: ["}, "plan-yaml: "),
            # what Juju 4.0 makes of a plan without --string-args
            (
                {"plan_yaml": "map[name:small target:map[kind:etcd]]"},
                "plan-yaml: a single value: expected a mapping of plan fields; juju run --string-args ... plan-yaml=",
            ),
            ({"plan": "etcd-leases-small", "overrides": "x"}, "overrides: x: expected key=value"),
            ({"plan": "etcd-leases-small", "overrides": "workload.units=0"}, "workload.units: 0: expected"),
            (
                {"plan": "etcd-leases-small", "overrides": "target.credentials=/etc/shadow"},
                "target.credentials: /etc/shadow: expected nothing: the charm fills it in",
            ),
            ({"plan_yaml": PLAN, "overrides": "d" * 100_001}, "overrides: "),
        ],
    )
    def test_what_is_wrong_is_refused_by_name(
        self, unit: Unit, agent: ScriptedAgent, params: dict[str, Any], said: str
    ) -> None:
        assert said in unit.refused("start", state_of(unit), **params)
        assert agent.requests("orders") == []

    def test_a_mapping_where_text_belongs_names_the_option_that_helps(self) -> None:
        with pytest.raises(UserError) as refused:
            Start.read({"plan-yaml": {"name": "small"}})
        assert str(refused.value) == (
            "plan-yaml: {'name': 'small'}: expected text: pass it with juju run --string-args"
        )

    def test_a_plan_that_is_too_long_for_a_databag_is_refused(self, unit: Unit, agent: ScriptedAgent) -> None:
        plan = f"{PLAN}\ndescription: {'d' * 70_000}"
        assert "expected a plan that fits into 60000 characters" in unit.refused(
            "start", state_of(unit), plan_yaml=plan
        )

    def test_another_unit_names_the_leader(self, unit: Unit, agent: ScriptedAgent) -> None:
        assert unit.refused("start", state_of(unit, leader=False), plan="etcd-leases-small") == (
            f"{OURS} is not the leader: juju run load-claimer/leader start plan=NAME"
        )

    def test_one_run_at_a_time(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([OURS])
        assert unit.refused("start", state_of(unit, run=run), plan="etcd-leases-small") == (
            f"run {run.id} is in progress: stop it first: juju run load-claimer/leader stop"
        )

    def test_without_access_it_says_how_to_get_it(self, unit: Unit, agent: ScriptedAgent) -> None:
        before = state_of(unit, config={"credentials": None})
        assert unit.refused("start", before, plan="etcd-leases-small").startswith("juju integrate")

    def test_without_an_agent_it_says_so(self, unit: Unit) -> None:
        assert "agent" in unit.refused("start", state_of(unit), plan="etcd-leases-small")

    def test_an_image_that_the_machine_cannot_make(self, spawner: Unit) -> None:
        spawner.machine.programs.clear()
        with ScriptedAgent(spawner).at_its_socket():
            said = spawner.refused("start", state_of(spawner, access=_lxd()), plan="lxd-cluster-small")
            assert "apt install -y busybox-static" in said
            said = spawner.act(
                "start",
                state_of(spawner, access=_lxd()),
                plan="lxd-cluster-small",
                overrides="target.image=alpine",
            )
            assert said["units"] == "1"
            said = spawner.refused(
                "start",
                state_of(spawner, access=_lxd()),
                plan="lxd-cluster-small",
                overrides="target.image=/etc/shadow",
            )
            assert said == "target.image: /etc/shadow: expected tiny, or an image on the server: no file"

    def test_an_incus_is_loaded_by_its_token_as_an_lxd_is(self, spawner: Unit) -> None:
        """Given the token of an Incus, when a plan for LXD is started, then the agent is told of that server."""
        with ScriptedAgent(spawner).at_its_socket() as agent:
            before = state_of(spawner, access=secret(token=lxd_token(expires_at="0001-01-01T00:00:00Z")))
            assert spawner.act("start", before, plan="lxd-cluster-small")["units"] == "1"
            token = spawner.state / "credentials/lxd.token"
            assert agent.orders["target"] == {"kind": "lxd", "token": str(token)}
            assert json.loads(base64.b64decode(token.read_text()))["addresses"] == ["192.0.2.1:8443"]

    def test_more_groups_than_projects_to_fill(self, spawner: Unit) -> None:
        with ScriptedAgent(spawner).at_its_socket():
            before = state_of(spawner, access=_lxd(), config={"lxd-projects": "a,b"})
            said = spawner.refused("start", before, plan="lxd-cluster-small")
            assert said.startswith(
                "stages.0.groups: 3: expected at most 2, as target.projects has that many (a, b)"
            )
            stages = "stages=[{groups: 2, instances: 5}]"
            assert spawner.act("start", before, plan="lxd-cluster-small", overrides=stages)["units"] == "1"


def _lxd() -> testing.Secret:
    return secret(token=lxd_token())


class TestOfTheRun:
    def test_stop_ends_it_for_all(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = held([OURS, OTHER])
        results = unit.act("stop", state_of(unit, run=run, peers={1: {}}))
        assert results["run"] == run.id
        after = run_in(unit.after)
        assert after is not None
        assert after.stopped == "asked to stop"
        assert agent.orders["run"]["stopped"] == "asked to stop"

    def test_a_storm_is_the_next_turn(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = held([OURS])
        unit.act("storm", state_of(unit, run=run))
        after = run_in(unit.after)
        assert after is not None
        assert [turn.kind for turn in after.turns] == ["ramp", "storm"]

    @pytest.mark.parametrize("action", ["stop", "storm"])
    def test_without_a_run_there_is_nothing_to_do(
        self, unit: Unit, agent: ScriptedAgent, action: str
    ) -> None:
        for run in (None, a_run([OURS], over=True)):
            assert unit.refused(action, state_of(unit, run=run)) == (
                "no run is in progress: juju run load-claimer/leader start plan=NAME"
            )

    @pytest.mark.parametrize("action", ["stop", "storm"])
    def test_another_unit_names_the_leader(self, unit: Unit, agent: ScriptedAgent, action: str) -> None:
        said = unit.refused(action, state_of(unit, run=held([OURS]), leader=False))
        assert said == f"{OURS} is not the leader: juju run load-claimer/leader {action}"

    def test_a_storm_while_the_load_is_brought_up_is_refused(self, unit: Unit, agent: ScriptedAgent) -> None:
        assert "expected a run whose load is up" in unit.refused("storm", state_of(unit, run=a_run([OURS])))


class TestStatus:
    def state(self, unit: Unit, agent: ScriptedAgent, leader: bool = True) -> testing.State:
        run = held([OURS, OTHER, "load-claimer/2"])
        run = run.model_copy(update={"missing": {"load-claimer/2": "silent for more than 3m"}})
        progress = UnitProgress(stage=1, stages=2, size=8000, held=8000, p99_ms=31.0)
        agent.word = unit.word(run, "up", turn=1, t=time.time(), progress=progress)
        failed = unit.word(run, "up", turn=1, t=time.time(), problem="1 worker lost")
        return state_of(unit, run=run, peers={1: said(failed)}, leader=leader)

    @pytest.mark.parametrize("leader", [True, False])
    def test_every_unit_can_tell_all(self, unit: Unit, agent: ScriptedAgent, leader: bool) -> None:
        results = unit.act("status", self.state(unit, agent, leader))
        assert results["status"] == "stage 1/2, 8,000 leases, p99 31 ms; 1 of 3 units missing"
        assert results["units"].splitlines() == [
            "load-claimer/0: up, 8,000 leases, p99 31 ms",
            "load-claimer/1: up, 1 worker lost",
            "load-claimer/2: nothing heard, missing: silent for more than 3m",
        ]

    def test_as_json(self, unit: Unit, agent: ScriptedAgent) -> None:
        results = unit.act("status", self.state(unit, agent), json=True)
        document = json.loads(results["json"])
        assert document["units"][OURS] == {"phase": "up", "held": 8000, "what": "leases", "p99_ms": 31.0}

    def test_before_the_first_stage_nothing_is_counted_that_has_no_name(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        run = held([OURS, OTHER])
        progress = UnitProgress(stage=0, size=0, held=0, what="", p99_ms=None)
        agent.word = unit.word(run, "ready", progress=progress)
        results = unit.act("status", state_of(unit, run=run, peers={1: {}}))
        assert results["units"].splitlines()[0] == "load-claimer/0: ready"

    def test_before_any_run(self, unit: Unit, agent: ScriptedAgent) -> None:
        assert unit.act("status", state_of(unit)) == {"status": "no run yet"}

    def test_of_1000_units_fits_a_result(self, unit: Unit, agent: ScriptedAgent) -> None:
        names = [f"load-claimer/{number}" for number in range(1000)]
        run = a_run(names, missing=dict.fromkeys(names, "m" * 1000))
        for params in ({}, {"json": True}):
            results = unit.act("status", state_of(unit, run=run), **params)
            assert all(len(value.encode()) < 128 << 10 for value in results.values())


class TestReport:
    def report(self, unit: Unit, agent: ScriptedAgent, text: str, **params: Any) -> dict[str, Any]:
        path = f"/var/lib/{unit.service}/gathered/r/report.md"
        agent.answers["report"] = lambda _: {"text": text, "path": path, "run": "r"}
        run = a_run([OURS, OTHER])
        peers = {1: {**said(unit.word(run, "over")), "result": json.dumps({"run": run.id, "digest": "D1"})}}
        return unit.act("report", state_of(unit, run=run, peers=peers), **params)

    def test_a_short_one_is_whole(self, unit: Unit, agent: ScriptedAgent) -> None:
        results = self.report(unit, agent, "# fine\n")
        assert results["text"] == "# fine\n"
        assert results["run"] == "r"
        command, key, without = results["fetch"].splitlines()
        assert command.startswith("juju scp -m ")
        assert command.endswith(f" {OURS}:{results['path']} .")
        assert "juju add-ssh-key" in key
        assert without == f"# without a key: juju run {OURS} report run=r format=md part=1"
        assert "parts" not in results

    def test_what_the_units_came_to_is_handed_over(self, unit: Unit, agent: ScriptedAgent) -> None:
        self.report(unit, agent, "x")
        (asked,) = agent.requests("report")
        assert asked["digests"] == {OTHER: "D1"}
        assert asked["shared"]["units"] == [OURS, OTHER]
        assert set(asked["words"]) == {OTHER}

    def test_of_an_older_run_only_its_name(self, unit: Unit, agent: ScriptedAgent) -> None:
        self.report(unit, agent, "x", run="20260101-000000-older-aaaa")
        (asked,) = agent.requests("report")
        assert "digests" not in asked

    def test_a_long_one_is_cut_at_a_line(self, unit: Unit, agent: ScriptedAgent) -> None:
        results = self.report(unit, agent, "täglich\n" * 10_000)
        lines = results["text"].splitlines()
        assert set(lines[:-4]) == {"täglich"}
        assert lines[-4] == "(cut: 87 KiB in all)"
        assert lines[-3:] == results["fetch"].splitlines()
        assert results["parts"] == "2"
        assert len(results["text"].encode()) < 17 << 10

    @pytest.mark.parametrize("form", ["html", "json", "junit"])
    def test_what_cannot_be_cut_is_left_out(self, unit: Unit, agent: ScriptedAgent, form: str) -> None:
        results = self.report(unit, agent, "x" * 20_000, format=form)
        assert "text" not in results
        assert results["note"].startswith("19 KiB, too long for a result:\njuju scp")

    @pytest.mark.parametrize("form", ["md", "html", "json", "junit"])
    def test_its_parts_are_all_of_it(self, unit: Unit, agent: ScriptedAgent, form: str) -> None:
        text = "\ta line, täglich \n" * 10_000
        count = int(self.report(unit, agent, text, format=form)["parts"])
        parts = [self.report(unit, agent, text, format=form, part=n)["text"] for n in range(1, count + 1)]
        assert "".join(parts) == text
        assert all(part.endswith("\n") and len(part.encode()) <= 64 << 10 for part in parts)

    def test_a_part_that_is_not_there_is_refused(self, unit: Unit, agent: ScriptedAgent) -> None:
        with pytest.raises(testing.ActionFailed) as refused:
            self.report(unit, agent, "x\n" * 40_000, part=3)
        assert refused.value.message == "part: 3: expected 1 to 2"

    @pytest.mark.parametrize(
        ("params", "said"),
        [
            ({"format": "pdf"}, "format: pdf: expected md, html, json or junit"),
            ({"run": "../../etc"}, "run: ../../etc: expected string should match pattern"),
        ],
    )
    def test_wrong_parameters_are_refused(
        self, unit: Unit, agent: ScriptedAgent, params: dict[str, Any], said: str
    ) -> None:
        assert unit.refused("report", state_of(unit), **params).startswith(said)

    def test_the_agent_itself_refuses_a_run_that_it_does_not_know(self, unit: Unit) -> None:
        with real_agent(unit):
            assert "expected the id of a run" in unit.refused("report", state_of(unit), run="unknown")


class TestOfTheAgent:
    def test_runs_are_listed(self, unit: Unit, agent: ScriptedAgent) -> None:
        runs = [
            {"id": "b", "plan": "p", "started": 1.0, "status": "running", "verdict": "", "units": [OURS]},
            {
                "id": "a",
                "plan": "p",
                "started": 1.0,
                "status": "over",
                "verdict": "met",
                "units": [OURS, OTHER],
            },
        ]
        agent.answers["runs"] = lambda _: {"runs": runs}
        results = unit.act("list-runs", state_of(unit))
        assert results == {"count": "2", "runs": "b  1 unit, running\na  2 units, over  met"}

    def test_none_yet_of_the_agent_itself(self, unit: Unit) -> None:
        with real_agent(unit):
            assert unit.act("list-runs", state_of(unit)) == {"count": "0", "runs": "none yet"}
            assert unit.act("clean", state_of(unit)) == {"result": "nothing is left of any run"}

    def test_a_task_that_is_done(self, unit: Unit, agent: ScriptedAgent) -> None:
        assert unit.act("clean", state_of(unit), run="r") == {"result": "removed 3"}
        assert agent.requests("clean")[0]["run"] == "r"

    def test_a_task_that_fails(self, unit: Unit, agent: ScriptedAgent) -> None:
        agent.answers["task"] = lambda _: {"done": True, "failed": True, "text": "lxd:\nunreachable"}
        assert unit.refused("clean", state_of(unit)) == "lxd: unreachable"

    def test_a_task_that_takes_long_goes_on(
        self, unit: Unit, agent: ScriptedAgent, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tippingpoint_charm.actions.PATIENCE", 0.0)
        agent.answers["task"] = lambda _: {"done": False}
        assert unit.act("clean", state_of(unit)) == {"result": "still in progress: ask again"}

    @pytest.mark.parametrize("action", ["report", "list-runs", "clean"])
    def test_without_an_agent_it_says_so(self, unit: Unit, action: str) -> None:
        assert "agent: " in unit.refused(action, state_of(unit))


class TestSpawner:
    def test_repair_and_evict_are_the_agents(self, spawner: Unit) -> None:
        with ScriptedAgent(spawner).at_its_socket() as agent:
            assert spawner.act("repair", state_of(spawner)) == {"result": "removed 3"}
            assert spawner.act("evict-member", state_of(spawner), member="node-2") == {"result": "removed 3"}
            assert agent.requests("evict-member")[0]["member"] == "node-2"

    @pytest.mark.parametrize("member", ["", "a b", "-x", "a\nb", "../x"])
    def test_a_member_that_cannot_be_is_refused(self, spawner: Unit, member: str) -> None:
        assert spawner.refused("evict-member", state_of(spawner), member=member).startswith("member: ")

    def test_a_member_is_needed(self, spawner: Unit) -> None:
        assert spawner.refused("evict-member", state_of(spawner)) == "member: missing: expected member=..."

    def test_a_probe_has_access_of_its_own(self, spawner: Unit) -> None:
        with ScriptedAgent(spawner).at_its_socket() as agent:
            assert spawner.act("probe", state_of(spawner, access=_lxd())) == {"result": "removed 3"}
            token = spawner.state / "credentials/lxd.token"
            assert agent.requests("probe")[0]["target"] == {"kind": "lxd", "token": str(token)}
            assert token.stat().st_mode & 0o777 == 0o600

    def test_a_probe_without_access_says_what_to_do(self, spawner: Unit) -> None:
        assert "credentials: expected a secret with" in spawner.refused(
            "probe", state_of(spawner, access=etcd_secret())
        )


def test_of_a_plan_for_many_units_machines_are_enough(root: Path) -> None:
    """Given a plan that so many units cannot share, start says so, and no unit is told anything."""
    spawner = Unit(root, "container-spawner")
    plan = """
name: model
target: {kind: juju}
workload: {kind: grow}
stages: [{machines: 1, applications: 4, units: 1}]
"""
    access = secret(user="u", password="p", addresses="192.0.2.1:17070", cacert=SERVER.certificate)
    with ScriptedAgent(spawner).at_its_socket():
        state = state_of(spawner, access=access, peers={1: {}, 2: {}}, config={"target": "juju"})
        refused = spawner.refused("start", state, plan_yaml=plan)
        assert refused.startswith("stages.0.machines: 1: expected at least 3")
        assert spawner.act("start", state_of(spawner, access=access), plan_yaml=plan)["units"] == "1"
    assert run_in(state) is None
    assert units_of(state).local_app_data == {}
