"""The agent of a unit on a real etcd: from orders to what it came to, through crashes, restarts and stops."""

from __future__ import annotations

import json
import signal
import socket
import stat
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lab.etcd.cluster import EtcdLab
from lab.ports import free_ports
from tests.functional.agent.agents import Agent, Leader, workers_end
from tests.functional.program import QUICK, UNHURRIED, WITHIN_S, keys, leases, until
from tests.functional.standstills import await_ticks
from tippingpoint.conduct.director import stop
from tippingpoint.conduct.run_state import SharedRun, UnitWord
from tippingpoint.plan.read import Plan, validate_plan
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.probe_events import ProbeEvent
from tippingpoint.rundir.results import load_run

pytestmark = pytest.mark.usefixtures("quick_hooks")


LONG = [{"leases": 20, "over": 0, "hold": "20m"}]
"""Longer than a test, which ends it when it has seen what it came for."""
SEARCH: dict[str, Any] = {
    "workload": UNHURRIED,
    "stages": [],
    "find": {"start": 7, "limit": 15, "over": "200ms", "hold": "3s"},
    "thresholds": [{"operation": "extend", "p99": "60s"}],
}
"""A search whose largest load the lab holds, on a busy machine, too."""


def a_plan(etcd: EtcdLab, **changes: Any) -> Plan:
    return validate_plan({**QUICK, "target": {"endpoints": etcd.endpoints}, **changes})


def target(etcd: EtcdLab) -> dict[str, Any]:
    return {"kind": "etcd", "endpoints": etcd.endpoints}


TRIES = 3
"""The most runs of a test whose last stage says nothing where this machine stood still."""


@contextmanager
def two_agents(directory: Path) -> Iterator[tuple[Agent, Agent]]:
    """The agents of two units, each with a directory of its own."""
    places = directory / "a", directory / "b"
    for place in places:
        place.mkdir()
    with Agent(places[0]) as one, Agent(places[1], "load-claimer/1") as other:
        yield one, other


def has_broken(run: SharedRun) -> bool:
    """Whether the last load is known to have been too much."""
    return run.recovery is not None and run.recovery.broken is not None


def judged(run: SharedRun) -> list[ProbeEvent]:
    """The loads of a search that showed something: one in which this machine stood still is tried again."""
    return [probe for probe in run.probes if probe.held is not None]


def whole_report(leader: Leader, one: Agent, other: Agent) -> dict[str, Any]:
    """The report of a run of both, which the first of them makes."""
    results = {agent.unit: agent.result() for agent in (one, other)}
    digests = {unit: result["digest"] for unit, result in results.items() if result}
    shared = leader.run.model_dump(mode="json")
    return one.ask("report", run=leader.run.id, format="md", digests=digests, shared=shared)


def nothing_left(etcd: EtcdLab, run: str) -> bool:
    return not [key for key in keys(etcd.endpoints[0]) if run in key] and not leases(etcd.endpoints[0])


def test_from_orders_to_a_report(etcd: EtcdLab, tmp_path: Path) -> None:
    # given an agent that was told of a run
    with Agent(tmp_path) as agent:
        assert agent.word() is None
        leader = Leader(a_plan(etcd), [agent], target(etcd))
        # when it is conducted to its end
        leader.until(lambda: leader.phases() == ["up"])
        word = leader.words[agent.unit]
        assert word is not None
        assert word.progress is not None
        assert (word.turn, word.progress.stage, word.progress.size) == (1, 1, 20)
        assert (word.offset, word.problem) == (0.0, "")
        assert agent.ask("ping")["running"] == leader.run.id
        assert agent.ask("runs")["runs"][0]["status"] == "running"
        leader.until(lambda: leader.run.over)
        leader.hook()
        # then its part is complete, and nothing of it is left
        assert leader.phases() == ["over"]
        assert leader.run.missing == {}
        assert nothing_left(etcd, leader.run.id)
        part = load_run(agent.state / "runs" / f"{leader.run.id}.0")
        assert part.manifest.status == "complete"
        assert part.stages[0].count("claim") == 20
        # and what it came to makes a report of the whole, which everybody may read
        result = agent.result()
        assert result is not None
        assert result["run"] == leader.run.id
        assert len(result["digest"]) <= 40_000
        report = agent.ask("report", run="", format="md")
        assert report["run"] == leader.run.id
        assert "20 leases" in report["text"]
        directory = Path(report["path"]).parent
        assert {path.name for path in directory.glob("report.*")} == {
            "report.html", "report.md", "report.json", "report.xml"
        }  # fmt: skip
        assert stat.S_IMODE(Path(report["path"]).stat().st_mode) == 0o644
        assert load_run(directory).stages[0].count("claim") == 20
        # and its verdict is what the agent says of it, though a machine that stands still may miss what was due
        outcome = json.loads((directory / "report.json").read_text())["verdict"]["outcome"]
        (kept,) = agent.ask("runs")["runs"]
        assert (kept["id"], kept["status"], kept["verdict"]) == (leader.run.id, "over", outcome)
        assert outcome in ("met", "missed", "withheld")
        # and the charm was woken
        assert agent.wake.exists()
        # and the same orders begin nothing again
        assert agent.ask("ping")["running"] == ""
        assert len(list((agent.state / "runs").iterdir())) == 1


def test_two_units_hold_together_and_share_the_load(etcd: EtcdLab, tmp_path: Path) -> None:
    # given two agents
    plan = a_plan(etcd, stages=[{"leases": 21, "over": 0, "hold": "3s"}])
    with two_agents(tmp_path) as (one, other):
        # when they play a run together
        leader = Leader(plan, [one, other], target(etcd))
        leader.until(lambda: leader.run.over)
        assert leader.run.missing == {}
        assert nothing_left(etcd, leader.run.id)
        # then each held its share, at the same time, by its own measurement of the clock
        assert [word.offset is not None for word in leader.words.values() if word] == [True, True]
        results = {agent.unit: agent.result() for agent in (one, other)}
        digests = {unit: result["digest"] for unit, result in results.items() if result}
        shared = leader.run.model_dump(mode="json")
        report = one.ask("report", run=leader.run.id, format="json", digests=digests, shared=shared)
        whole = load_run(Path(report["path"]).parent)
        assert whole.stages[0].count("claim") == 21
        assert whole.stages[0].gauges["held"] == 21
        holds = [
            load_run(agent.state / "runs" / f"{leader.run.id}.{n}") for n, agent in enumerate((one, other))
        ]
        begins = [run.manifest.started + (run.stages[0].hold_begin or 0.0) for run in holds]
        ends = [run.manifest.started + (run.stages[0].end or 0.0) for run in holds]
        assert max(begins) < min(ends)
        # and a digest that is none does no harm
        report = other.ask(
            "report", run=leader.run.id, format="md", digests={**digests, one.unit: "!"}, shared=shared
        )
        assert "load-claimer/0" in report["text"]


def test_two_units_share_a_search_that_the_leaders_agent_judges(etcd: EtcdLab, tmp_path: Path) -> None:
    # given two agents, and a target that holds all that the search may try
    plan = a_plan(etcd, **SEARCH)
    with two_agents(tmp_path) as (one, other):
        # when they play it
        leader = Leader(plan, [one, other], target(etcd))
        leader.until(lambda: leader.run.over)
        # then both have shared each load, and come to one answer
        assert (leader.run.missing, leader.run.stopped) == ({}, "")
        assert [(probe.size, probe.held) for probe in judged(leader.run)] == [
            (7, True),
            (15, True),
            (15, True),
        ]
        assert leader.run.found is not None
        assert (leader.run.found.ended, leader.run.found.low) == ("limit", 15)
        assert nothing_left(etcd, leader.run.id)
        # and the report of the whole says so
        report = whole_report(leader, one, other)
        assert "Passes at 15 leases, the largest load that the plan allows." in report["text"]


def test_a_unit_whose_agent_is_restarted_in_a_search_takes_part_again(etcd: EtcdLab, tmp_path: Path) -> None:
    # given two agents in a search, of which one dies with its workers while the first load is held
    plan = a_plan(etcd, **SEARCH)
    with two_agents(tmp_path) as (one, other):
        leader = Leader(plan, [one, other], target(etcd))
        leader.until(lambda: leader.run.turns and leader.run.turns[-1].hold is not None)
        other.lose()
        # when it is started again
        other.start()
        leader.until(lambda: leader.run.over)
        # then nothing is missing at the end, and only loads that both had a share in have shown anything
        assert (leader.run.missing, leader.run.stopped) == ({}, "")
        first, *further = judged(leader.run)
        assert [(probe.size, probe.held) for probe in (first, *further)] == [
            (7, True),
            (15, True),
            (15, True),
        ]
        assert first.stage != 1
        assert leader.run.found is not None
        assert leader.run.turns[-1].of == 2
        assert nothing_left(etcd, leader.run.id)
        # and the report says when it was away
        report = whole_report(leader, one, other)
        assert "Passes at 15 leases, the largest load that the plan allows." in report["text"]
        assert "load-claimer/1 was cut, and resumed" in report["text"]


def test_a_search_of_two_units_ends_on_both_when_a_threshold_aborts_it(etcd: EtcdLab, tmp_path: Path) -> None:
    # given a throughput that the first load cannot have (20/s), and holds that would last for minutes
    plan = a_plan(
        etcd,
        workload={"units": 1, "claim_time": "60s", "renew_time": "200ms", "timeout": "30s"},
        stages=[],
        find={"start": 4, "limit": 1000, "over": 0, "hold": "10m"},
        thresholds=[{"operation": "extend", "throughput": 30, "abort": True}],
    )
    with two_agents(tmp_path) as (one, other):
        # when two agents play it
        leader = Leader(plan, [one, other], target(etcd))
        leader.until(lambda: leader.run.over)
        # then the first load ends it for both, with the reason, and nothing is left
        # each unit has half of that load, and is held against half of the limit
        assert leader.run.stopped.startswith("aborted: extend throughput was ")
        assert "(threshold 15/s for its share of 30/s, abort)" in leader.run.stopped
        assert (leader.run.found, len(leader.run.turns)) == (None, 1)
        assert nothing_left(etcd, leader.run.id)
        report = whole_report(leader, one, other)
        assert "Missed: aborted: extend throughput was " in report["text"]
        assert "dropped out during the search" not in report["text"]


def test_two_units_lower_their_load_after_it_was_too_much_until_the_target_is_back(
    etcd_private: EtcdLab, tmp_path: Path
) -> None:
    # given two agents with a target that stands still while the last stage is held
    plan = a_plan(
        etcd_private,
        workload={"units": 1, "claim_time": "60s", "renew_time": "500ms", "timeout": "15s"},
        stages=[{"leases": size, "over": 0, "hold": hold} for size, hold in ((8, "4s"), (20, "15s"))],
        thresholds=[{"operation": "extend", "p99": "5s"}],
        after="recover",
    )
    members = sorted(etcd_private.pids)

    def with_a_standstill(agents: list[Agent]) -> Leader:
        """A run that is over; the target goes on once the load goes down, as the leader's agent says."""
        leader = Leader(plan, agents, target(etcd_private))
        leader.until(lambda: len(leader.run.turns) == 2 and leader.run.turns[1].hold is not None)
        for member in members:
            etcd_private.stop(member)
        leader.until(lambda: leader.run.over or has_broken(leader.run))
        for member in members:
            etcd_private.resume(member)
        leader.until(lambda: leader.run.over)
        return leader

    with two_agents(tmp_path) as (one, other):
        # when it is run (where this machine stood still, the last stage says nothing, and no lower load follows)
        for _ in range(TRIES):
            leader = with_a_standstill([one, other])
            if has_broken(leader.run):
                break
        # then both had their shares of a lower load, at which thresholds were met again
        run = leader.run
        assert (run.missing, run.stopped) == ({}, "")
        assert run.recovery is not None
        assert (run.recovery.broken, run.recovery.before) == (20, 8)
        last = run.recovery.loads[-1]
        assert (last.lowers, last.held) == (True, True)
        assert last.stage is not None
        parts = [
            load_run(agent.state / "runs" / f"{run.id}.{n}").stage(last.stage)
            for n, agent in enumerate((one, other))
        ]
        assert sum(part.size for part in parts) == last.load
        assert [part.kind for part in parts] == ["recover"] * 2
        assert nothing_left(etcd_private, run.id)
        # and the report of the whole says so
        report = whole_report(leader, one, other)
        assert f"Comes back: thresholds were met again at {last.load:g} leases" in report["text"]


def test_what_a_lost_unit_made_is_removed_by_the_leaders_agent(etcd: EtcdLab, tmp_path: Path) -> None:
    # given two agents that hold their shares
    long = {"claim_time": "20m", "renew_time": "30s"}
    plan = a_plan(etcd, stages=[{"leases": 20, "over": 0, "hold": "12s"}], workload=long)
    with two_agents(tmp_path) as (one, other):
        leader = Leader(plan, [one, other], target(etcd))
        leader.until(lambda: leader.phases() == ["up", "up"] and leader.run.turns[-1].hold)
        # when the machine of one is lost
        other.lose()
        leader.agents.remove(other)
        del leader.words[other.unit]
        leader.until(lambda: leader.run.over)
        assert leader.run.missing == {other.unit: "the unit was removed"}
        assert [key for key in keys(etcd.endpoints[0]) if f"{leader.run.id}.1/" in key]
        # then the leader's agent removes what that one made, once it is told that it is lost, and keeps that in mind
        part = f"{leader.run.id}.1"
        one.orders(leader.run, target(etcd), lost=[other.unit])
        until(lambda: nothing_left(etcd, leader.run.id))
        until((one.state / "runs" / part / "removed").exists)
        one.orders(leader.run, target(etcd), lost=[other.unit])
        assert f"{part}: removed 0" in one.done("clean", run=leader.run.id).splitlines()
        assert len((one.state / "runs" / part / "ledger.jsonl").read_text().splitlines()) == 1


def test_an_agent_that_crashed_closes_its_part_with_what_it_has(etcd: EtcdLab, tmp_path: Path) -> None:
    # given an agent whose load is held
    with Agent(tmp_path) as agent:
        leader = Leader(a_plan(etcd, stages=LONG), [agent], target(etcd))
        leader.until(lambda: leader.run.turns and leader.run.turns[0].hold)
        until(lambda: (word := agent.word()) and word.progress and word.progress.held == 20)
        await_ticks(agent.state / "runs" / f"{leader.run.id}.0", 2)
        # when it is killed, and started again
        with workers_end(agent.process):
            agent.kill()
        agent.wake.unlink()
        agent.start()
        until(lambda: (word := agent.word()) and word.phase == "failed")
        # then its part has failed, and says why; what it has measured is there
        leader.hook()
        assert leader.run.missing == {agent.unit: "the unit's machine or agent was restarted in turn 1"}
        assert agent.wake.exists()
        result = agent.result()
        assert result is not None
        part = load_run(agent.state / "runs" / f"{leader.run.id}.0")
        assert part.manifest.status == "cut"
        assert part.stages[0].count("claim") == 20
        # and nothing of it is left in etcd
        until(lambda: nothing_left(etcd, leader.run.id))
        assert agent.ask("report")["run"] == leader.run.id
        # and a second run works
        leader = Leader(a_plan(etcd), [agent], target(etcd))
        leader.until(lambda: leader.run.over)
        assert (leader.phases(), leader.run.missing) == (["over"], {})
        assert nothing_left(etcd, leader.run.id)


def test_what_a_unit_that_is_removed_has_measured_is_in_the_report(etcd: EtcdLab, tmp_path: Path) -> None:
    # given two agents that hold their shares
    plan = a_plan(
        etcd, stages=[{"leases": 20, "over": 0, "hold": "12s"}, {"leases": 30, "over": 0, "hold": "2s"}]
    )
    with two_agents(tmp_path) as (one, other):
        leader = Leader(plan, [one, other], target(etcd))
        leader.until(lambda: leader.phases() == ["up", "up"] and leader.run.turns[0].hold)
        until(lambda: (word := other.word()) and word.progress and word.progress.held == 10)
        await_ticks(other.state / "runs" / f"{leader.run.id}.1", 2)
        # when the unit of one is removed: it is asked for its last word
        told = other.ask("leave", seconds=60.0)
        word, result = UnitWord.model_validate(told["word"]), told["result"]
        assert (word.phase, word.leaves, word.run) == ("over", True, leader.run.id)
        # then it says the same when it is asked again, and nothing of it is left
        again = other.ask("leave", seconds=60.0)
        assert (again["word"]["phase"], again["word"]["leaves"]) == ("over", True)
        until(lambda: not other.ask("ping")["running"])
        assert not [key for key in keys(etcd.endpoints[0]) if f"{leader.run.id}.1/" in key]
        # and the leader goes on without it at once, to the plan's end
        leader.agents.remove(other)
        leader.words[other.unit] = word
        leader.hook()
        assert leader.run.missing == {other.unit: "the unit was removed"}
        shared = leader.run.model_dump(mode="json", exclude_none=True)
        one.ask(
            "keep", shared=shared, words={other.unit: told["word"]}, digests={other.unit: result["digest"]}
        )
        leader.until(lambda: leader.run.over)
        # and what it measured is in the report, beside the word of what is missing
        report = Path(one.ask("report", run=leader.run.id, format="json")["path"])
        units = {unit.name: unit for unit in load_run(report.parent).units}
        assert (units[other.unit].status, units[other.unit].why) == ("cut", "the unit was removed")
        first, second = load_run(report.parent).stages
        assert first.count("claim") == 20
        assert second.gauges["held"] == 15


def test_a_crash_in_the_middle_of_making_ready_leaves_nothing(etcd: EtcdLab, tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        leader = Leader(a_plan(etcd, stages=LONG), [agent], target(etcd))
        agent.orders(leader.run, target(etcd))
        agent.kill()
        agent.start()
        until(lambda: (word := agent.word()) and word.phase == "failed")
        word = agent.word()
        assert word is not None
        assert word.problem == "the unit's machine or agent was restarted before its first turn"
        until(lambda: nothing_left(etcd, leader.run.id))


def test_a_service_that_is_stopped_leaves_its_part_to_the_next_one(etcd: EtcdLab, tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        leader = Leader(a_plan(etcd, stages=LONG), [agent], target(etcd))
        leader.until(lambda: leader.run.turns and leader.run.turns[0].hold)
        # when systemd stops it
        agent.process.send_signal(signal.SIGTERM)
        # then it ends within its time (TimeoutStopSec of its unit), its leases given back, and its socket is gone
        assert agent.ended(within=WITHIN_S) == 0
        assert nothing_left(etcd, leader.run.id)
        assert not agent.socket.exists()
        # and the next one closes the part
        agent.start()
        until(lambda: (word := agent.word()) and word.phase == "failed")
        assert agent.result() is not None


def test_the_charm_is_woken_when_a_hold_begins(etcd: EtcdLab, tmp_path: Path) -> None:
    # given an agent whose load is up, and a charm that has seen so
    with Agent(tmp_path) as agent:
        leader = Leader(a_plan(etcd, stages=LONG), [agent], target(etcd))
        leader.until(lambda: leader.phases() == ["up"])
        agent.wake.unlink(missing_ok=True)
        # when the hold begins
        leader.until(lambda: (word := agent.word()) and word.progress and word.progress.phase == "hold")
        # then the charm is woken, long before the next beat
        assert agent.wake.exists()


def test_a_run_is_stopped_in_the_middle(etcd: EtcdLab, tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        leader = Leader(a_plan(etcd, stages=LONG), [agent], target(etcd))
        leader.until(lambda: leader.run.turns and leader.run.turns[0].hold)
        leader.run = stop(leader.run, "asked for by a user")
        leader.until(lambda: leader.run.over)
        leader.hook()
        assert (leader.phases(), leader.run.missing) == (["over"], {})
        assert nothing_left(etcd, leader.run.id)
        manifest = Manifest.load(agent.state / "runs" / f"{leader.run.id}.0")
        assert (manifest.status, manifest.reason) == ("interrupted", "asked for by a user")
        assert agent.ask("runs")["runs"][0]["status"] == "stopped: asked for by a user"


def test_another_run_ends_the_one_that_goes_on(etcd: EtcdLab, tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        first = Leader(a_plan(etcd, stages=LONG), [agent], target(etcd))
        first.until(lambda: first.run.turns and first.run.turns[0].hold)
        second = Leader(a_plan(etcd), [agent], target(etcd))
        second.hook()
        word = agent.word()
        assert word is not None
        assert word.run == second.run.id
        assert word.phase in ("making", "ready")
        second.until(lambda: second.run.over)
        assert Manifest.load(agent.state / "runs" / f"{first.run.id}.0").status == "interrupted"
        assert nothing_left(etcd, first.run.id)
        # and orders without any run end what goes on
        third = Leader(a_plan(etcd, stages=LONG), [agent], target(etcd))
        third.until(lambda: third.phases() == ["up"])
        agent.orders(None, target(etcd))
        until(lambda: agent.ask("ping")["running"] == "")
        assert agent.word() is None
        assert nothing_left(etcd, third.run.id)


def test_a_plan_that_cannot_be_run_fails_in_one_line(etcd: EtcdLab, tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        leader = Leader(a_plan(etcd), [agent], {"kind": "etcd", "endpoints": ["http://127.0.0.1:1"]})
        leader.until(lambda: leader.phases() == ["failed"])
        problem = leader.run.missing[agent.unit]
        assert "127.0.0.1:1" in problem
        assert "result" not in problem
        leader = Leader(a_plan(etcd), [agent], {**target(etcd), "endpoint": "x"})
        leader.until(lambda: leader.phases() == ["failed"])
        assert leader.run.missing[agent.unit].startswith("target.endpoint: x: expected one of")
        # and it is told where it is still to be cleaned
        assert agent.done("clean", run=leader.run.id) == "nothing is left of any run"


def test_what_cannot_be_removed_is_told_until_it_is(etcd_private: EtcdLab, tmp_path: Path) -> None:
    # given a part whose target is gone at its end
    etcd = etcd_private
    with Agent(tmp_path) as agent:
        leader = Leader(a_plan(etcd, stages=LONG), [agent], target(etcd))
        leader.until(lambda: leader.run.turns and leader.run.turns[0].hold)
        for name in etcd.names:
            etcd.stop(name)
        leader.run = stop(leader.run, "asked for by a user")
        leader.until(lambda: leader.phases() == ["over"] and "not all removed" in agent.word().problem)  # type: ignore[union-attr]
        # when it is there again
        for name in etcd.names:
            etcd.resume(name)
        # then a clean that is asked for removes it, and nothing is told any more
        until(lambda: "removed" in agent.done("clean"))
        until(lambda: agent.word().problem == "")  # type: ignore[union-attr]
        assert nothing_left(etcd, leader.run.id)


def test_garbage_on_the_socket_disturbs_nothing(etcd: EtcdLab, tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        leader = Leader(a_plan(etcd), [agent], target(etcd))
        leader.hook()
        for garbage in (
            b"\0" * 1000 + b"\n",
            b"[]\n",
            b"{}\n",
            b'{"do": "orders"}\n',
            b'{"do": "nothing"}\n',
            b"{",
        ):
            with socket.socket(socket.AF_UNIX) as there:
                there.connect(str(agent.socket))
                there.sendall(garbage)
                there.shutdown(socket.SHUT_WR)
                answer = there.makefile("rb").read()
                assert answer.startswith(b'{"ok":false,"problem":"')
                assert answer.count(b"\n") == 1
        assert (
            agent.refusal("orders", run=None, unit="x/0")
            == "unit: x/0: expected load-claimer/0, whose agent this is"
        )
        assert (
            agent.refusal("report", run="none-1f3a")
            == "run: none-1f3a: expected the id of a run that is kept here"
        )
        assert "run" in agent.refusal("report", run="../../etc")
        assert agent.refusal("clean", run=leader.run.id).startswith(
            f"run: {leader.run.id}: expected one that has ended"
        )
        assert agent.refusal("task", id="x").startswith("task: x: expected the id of a task")
        assert agent.done("evict-member", member="m1") == "member: m1: expected a run of the workload spawn"
        assert (
            agent.done("probe", target={})
            == "target.kind: etcd: expected one of juju, lxd, maas, openstack, pacemaker"
        )
        leader.until(lambda: leader.run.over)
        assert leader.run.missing == {}
        assert agent.refusal("repair") == "run: none: expected a run in progress; start one first"


def test_figures_are_exported_and_a_port_in_use_is_survived(etcd: EtcdLab, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with Agent(tmp_path / "a", metrics=address) as one:
        with Agent(tmp_path / "b", "load-claimer/1", metrics=address) as other:
            assert other.ask("ping")["metrics"].startswith(f"{address}: no figures are exported: ")
        assert one.ask("ping")["metrics"] == ""
        leader = Leader(a_plan(etcd), [one], target(etcd))
        leader.until(lambda: leader.run.turns and leader.run.turns[0].hold)
        wanted = f'tippingpoint_held{{plan="quick",run="{leader.run.id}",target="etcd"}} 20.0'

        def figures() -> str:
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=WITHIN_S) as answer:
                return answer.read().decode()

        until(lambda: wanted in figures())
        assert "tippingpoint_latency_seconds_bucket" in figures()
        leader.until(lambda: leader.run.over)


@pytest.mark.parametrize("delay", [0.0, 0.5])
def test_an_agent_with_nothing_to_do_ends_at_once(tmp_path: Path, delay: float) -> None:
    with Agent(tmp_path) as agent:
        time.sleep(delay)
        agent.process.send_signal(signal.SIGTERM)
        assert agent.ended(within=WITHIN_S) == 0
        assert agent.said == ""


def test_a_second_agent_on_the_same_state_is_refused(tmp_path: Path) -> None:
    with Agent(tmp_path) as agent:
        (tmp_path / "again").mkdir()
        again = Agent(tmp_path / "again")
        again.state = agent.state
        with pytest.raises(AssertionError, match="expected a directory that no other agent uses now"):
            again.start()
        assert again.process.wait(WITHIN_S) == 2
        assert agent.ask("ping")["ok"]
