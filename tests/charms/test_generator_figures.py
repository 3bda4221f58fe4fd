"""A plan with a limit of a figure of Prometheus: what a generator needs for it, hands to its agent, and keeps."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest
from ops import testing

from tests.charms.generators import ScriptedAgent, Unit, a_run, run_in, secret, state_of
from tests.charms.related import PASSWORD, SERVER
from tippingpoint.conduct.figure_messages import FigureNews
from tippingpoint.rundir.figure_values import FigureValue

OURS = "load-claimer/0"
PLAN = """
name: limited
target: {kind: etcd}
stages: [{leases: 100, hold: 60s}]
thresholds: [{operation: extend, p99: 1s}, {figure: etcd-memory, at_most: 1GB}]
"""
URL = "https://prometheus.example"
LOGIN = {"username": "us", "password": PASSWORD, "cacert": SERVER.certificate}


def related(**bag: str) -> testing.Relation:
    return testing.Relation("prometheus-api", remote_app_name="prometheus", remote_app_data=bag)


def given(unit: Unit, *others: testing.RelationBase, login: bool = False, **fields: Any) -> testing.State:
    """A unit with these relations, and with a login at Prometheus."""
    known = secret(**LOGIN)
    config: dict[str, Any] = {"prometheus-only": "job=etcd"}
    config |= {"prometheus-credentials": known.id} if login else {}
    state = state_of(unit, config=config, others=[*others], **fields)
    return dataclasses.replace(state, secrets=[*state.secrets, *([known] if login else [])])


def test_without_a_prometheus_the_plan_is_refused_with_what_to_relate(
    unit: Unit, agent: ScriptedAgent
) -> None:
    line = (
        "thresholds.1.figure: etcd-memory: expected a Prometheus that scrapes the target: "
        "juju integrate load-claimer:prometheus-api PROMETHEUS"
    )
    assert unit.refused("start", given(unit), plan_yaml=PLAN) == line
    assert agent.requests("check-figures") == []
    # and one that is related and has no URL yet is named
    silent = unit.refused("start", given(unit, related()), plan_yaml=PLAN)
    assert silent.endswith("prometheus-api: prometheus has not published the URL of its Prometheus yet")


def test_a_prometheus_that_cannot_tell_is_a_refusal(unit: Unit, agent: ScriptedAgent) -> None:
    said = "stages.0.hold: 60s: expected at least 2m: etcd-memory needs a scrape in it, which are 120 s apart"
    agent.answers["task"] = lambda _: {"done": True, "failed": True, "text": said}
    agent.answers["check-figures"] = lambda _: {"task": "t1"}
    state = given(unit, related(direct_url=URL))
    assert unit.refused("start", state, plan_yaml=PLAN) == said


def test_every_agent_gets_the_prometheus_and_its_login_in_files_of_mode_0600_only(
    unit: Unit, agent: ScriptedAgent
) -> None:
    # given a Prometheus with a login and an authority of its own
    agent.answers["check-figures"] = lambda _: {"task": "t1"}
    state = given(unit, related(direct_url=f"{URL}/"), login=True, peers={1: {}})
    # when a run begins
    assert unit.act("start", state, plan_yaml=PLAN)["units"] == "2"
    # then the agent was asked first, and has the access in its orders
    folder = unit.state / "credentials"
    reached = {
        "url": URL,
        "only": 'job="etcd"',
        "username": "us",
        "ca": str(folder / "prometheus-ca.pem"),
        "password_file": str(folder / "prometheus-password"),
    }
    (checked,) = agent.requests("check-figures")
    assert checked["prometheus"] == agent.orders["prometheus"] == reached
    assert checked["plan"]["thresholds"][1]["figure"] == "etcd-memory"
    assert agent.orders["leads"] is True
    assert (folder / "prometheus-password").read_text() == PASSWORD
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    # and the password is nowhere else
    assert PASSWORD not in str([agent.asked, unit.after.relations, unit.context.juju_log])
    # and the agent of another unit has it too, as that may lead next
    run = run_in(unit.after)
    agent.asked.clear()
    unit.run(unit.on.config_changed(), given(unit, related(direct_url=URL), run=run, leader=False))
    assert agent.orders["prometheus"]["url"] == URL
    assert agent.orders["leads"] is False
    # and without the relation it is told that there is none
    unit.run(unit.on.config_changed(), given(unit, run=run))
    assert agent.orders["prometheus"] is None


def test_a_plan_without_figures_needs_no_prometheus(unit: Unit, agent: ScriptedAgent) -> None:
    unit.run(unit.on.config_changed(), given(unit, related(direct_url=URL), run=a_run([OURS])))
    assert agent.orders["prometheus"] is None


def test_the_leader_publishes_what_its_agent_measured(unit: Unit, agent: ScriptedAgent) -> None:
    # given a run whose units have ended their parts, and an agent that asks for the last figures
    run = a_run([OURS], PLAN, started=time.time())
    agent.word = unit.word(run, "over")
    run = run.model_copy(update={"stopped": "asked to stop"})
    value = FigureValue(stage=1, name="etcd-memory", value=5e8, host="etcd-0")

    def says(**news: Any) -> None:
        told = FigureNews(run=run.id, **news).model_dump(mode="json")
        word = None if agent.word is None else agent.word.model_dump(mode="json")
        agent.answers["word"] = lambda _: {"word": word, "result": None, "figures": told}

    says(measuring=True)
    state = unit.agent_changed(given(unit, related(direct_url=URL), run=run))
    still = run_in(state)
    assert still is not None
    assert not still.over
    # when it has them
    says(values=[value])
    ended = run_in(unit.agent_changed(state))
    # then the run has them too, and is over
    assert ended is not None
    assert ended.over
    assert ended.figures.known(ended.validated()) == [value]


@pytest.mark.parametrize("news", [7, "x", [], {"run": 1}, {"run": "r", "values": [{"stage": 0}]}])
def test_news_that_is_none_is_ignored(unit: Unit, agent: ScriptedAgent, news: object) -> None:
    run = a_run([OURS], PLAN)
    word = unit.word(run, "ready").model_dump(mode="json")
    agent.answers["word"] = lambda _: {"word": word, "result": None, "figures": news}
    found = run_in(unit.agent_changed(given(unit, related(direct_url=URL), run=run)))
    assert found is not None
    assert len(found.turns) == 1


def test_between_runs_the_login_follows_its_secret(unit: Unit, agent: ScriptedAgent) -> None:
    run = a_run([OURS], PLAN)
    unit.run(unit.on.config_changed(), given(unit, related(direct_url=URL), login=True, run=run))
    file = unit.state / "credentials/prometheus-password"
    assert file.exists()
    over = run.model_copy(update={"over": True})
    unit.run(unit.on.config_changed(), given(unit, related(direct_url=URL), run=over))
    assert not file.exists()
