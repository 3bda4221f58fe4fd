"""The generators on a Pacemaker: from the secret to a run, and what the status says of TLS that proves nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest
import yaml
from ops import testing

from tests.charms.generators import ScriptedAgent, Unit, secret, state_of
from tests.charms.related import PASSWORD, SERVER

NODES = {"addresses": "192.0.2.1,192.0.2.2", "user": "hacluster", "password": PASSWORD}
ANONYMOUS = "ready: pacemaker (at 192.0.2.1; TLS is anonymous and can be intercepted: private networks only)"


def given(unit: Unit, **more: str) -> testing.State:
    """A unit that has a secret for a Pacemaker."""
    state = state_of(unit, config={"target": "pacemaker"}, access=secret(**NODES, **more))
    return dataclasses.replace(state, planned_units=1)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"cacert": SERVER.certificate}, "ready: pacemaker (at 192.0.2.1)"),
        ({"tls": "anonymous"}, ANONYMOUS),
    ],
)
def test_the_status_tells_the_danger_of_anonymous_tls(
    unit: Unit, agent: ScriptedAgent, more: dict[str, str], said: str
) -> None:
    out = unit.run(unit.on.config_changed(), given(unit, **more))
    assert out.unit_status == testing.ActiveStatus(said)
    assert len(said) <= 120  # what `juju status` shows


def test_a_shipped_plan_begins_and_the_password_is_in_a_file_of_mode_0600_only(
    unit: Unit, agent: ScriptedAgent
) -> None:
    # Given a secret that allows anonymous TLS
    before = given(unit, tls="anonymous")

    # When a plan that says nothing of TLS is started
    assert unit.act("start", before, plan="pacemaker-cib-small")["units"] == "1"

    # Then the agent gets a file, and what the secret allows
    written = unit.state / "credentials/pacemaker.yaml"
    assert agent.orders["target"] == {"kind": "pacemaker", "credentials": str(written), "tls": "anonymous"}
    assert yaml.safe_load(written.read_text()) == NODES | {"addresses": ["192.0.2.1", "192.0.2.2"]}
    assert written.stat().st_mode & 0o777 == 0o600
    # and the password is nowhere else; the agent's trial login, between runs, has its own copy in memory
    trials = agent.requests("access")
    told = [asked for asked in agent.asked if asked not in trials]
    assert PASSWORD not in str([*told, *unit.after.relations, *unit.context.juju_log, unit.after.unit_status])


def test_a_plan_cannot_name_a_file_of_the_unit(unit: Unit, agent: ScriptedAgent) -> None:
    said = unit.refused(
        "start",
        given(unit, tls="anonymous"),
        plan="pacemaker-cib-small",
        overrides="target.credentials=/etc/shadow",
    )
    assert said == (
        "target.credentials: /etc/shadow: expected nothing: the charm fills it in, from a relation or its credentials"
    )


class TestSpawner:
    """container-spawner on the same cluster."""

    @pytest.fixture
    def agent(self, spawner: Unit) -> Iterator[ScriptedAgent]:
        with ScriptedAgent(spawner).at_its_socket() as agent:
            yield agent

    @pytest.mark.parametrize(
        "plan", ["pacemaker-resources-small", "pacemaker-resources", "pacemaker-remotes"]
    )
    def test_shipped_plans_begin(self, spawner: Unit, agent: ScriptedAgent, plan: str) -> None:
        before = given(spawner, tls="anonymous", remotes="192.0.2.8,192.0.2.9")
        assert spawner.act("start", before, plan=plan)["units"] == "1"
        written = spawner.state / "credentials/pacemaker.yaml"
        assert yaml.safe_load(written.read_text())["remotes"] == ["192.0.2.8", "192.0.2.9"]

    def test_probe_asks_the_agent_with_the_access_of_the_secret(
        self, spawner: Unit, agent: ScriptedAgent
    ) -> None:
        assert spawner.act("probe", given(spawner, tls="anonymous"))["result"] == "removed 3"  # the script's
        (asked,) = agent.requests("probe")
        assert asked["target"]["kind"] == "pacemaker"
        assert asked["target"]["tls"] == "anonymous"

    def test_evict_member_asks_the_agent_for_a_node_by_its_name(
        self, spawner: Unit, agent: ScriptedAgent
    ) -> None:
        spawner.act("evict-member", given(spawner, tls="anonymous"), member="node3.example")
        assert [asked["member"] for asked in agent.requests("evict-member")] == ["node3.example"]
