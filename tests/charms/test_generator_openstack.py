"""container-spawner on an OpenStack: from the user that Keystone makes to a run, and the secrets on the way."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ops import testing

from tests.charms.generators import ScriptedAgent, Unit, a_run, run_in, secret, state_of
from tests.charms.related import PASSWORD, SERVER
from tests.charms.test_relations_targets import KEYSTONE
from tippingpoint.conduct.run_state import SharedRun

CONFIG = {"target": "openstack", "credentials": None}
PLAN = """
name: small
target: {kind: openstack}
workload: {kind: spawn, until: started, cycle: true, concurrency: 4}
stages: [{instances: 12, hold: 0s}]
"""


@pytest.fixture
def place(spawner: Unit) -> Iterator[tuple[Unit, ScriptedAgent]]:
    with ScriptedAgent(spawner).at_its_socket() as agent:
        yield spawner, agent


def keystone(**changed: str) -> testing.Relation:
    return testing.Relation(
        "identity-credentials", remote_app_name="keystone", remote_units_data={0: KEYSTONE | changed}
    )


def related(unit: Unit, run: SharedRun | None = None, **changed: str) -> testing.State:
    return state_of(unit, run=run, config=CONFIG, others=[keystone(**changed)])


def files(unit: Unit) -> list[str]:
    directory = unit.state / "credentials"
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def clouds(unit: Unit) -> Path:
    return unit.state / "credentials/clouds.yaml"


class TestStatus:
    def test_says_what_is_lacking_and_when_it_is_not(self, place: tuple[Unit, ScriptedAgent]) -> None:
        unit, _ = place
        out = unit.run(unit.on.config_changed(), state_of(unit, config=CONFIG))
        assert isinstance(out.unit_status, testing.BlockedStatus)
        assert out.unit_status.message.startswith(
            "juju integrate container-spawner:identity-credentials keystone; or "
        )
        out = unit.run(unit.on.config_changed(), related(unit, credentials_password=""))
        assert out.unit_status == testing.BlockedStatus(
            "identity-credentials: waiting for a user from Keystone; keystone-k8s creates only administrators "
            "and is not asked: give this application a secret instead"
        )
        out = unit.run(unit.on.config_changed(), related(unit))
        assert out.unit_status == testing.ActiveStatus("ready: openstack (at https://192.0.2.5:5000/v3)")

    def test_a_target_that_is_none_is_told_what_there_is(self, place: tuple[Unit, ScriptedAgent]) -> None:
        unit, _ = place
        out = unit.run(unit.on.config_changed(), state_of(unit, config={"target": "ceph"}))
        assert out.unit_status == testing.BlockedStatus(
            "target: ceph: expected lxd, juju, maas, openstack or pacemaker"
        )


class TestStart:
    @pytest.mark.parametrize("plan", ["openstack-boot-delete", "openstack-fill-small", "openstack-tenants"])
    def test_plans_that_come_with_the_suite_begin(self, place: tuple[Unit, ScriptedAgent], plan: str) -> None:
        unit, agent = place
        state = dataclasses.replace(related(unit), planned_units=1)
        assert unit.act("start", state, plan=plan)["units"] == "1"
        assert agent.orders["target"] == {
            "kind": "openstack",
            "credentials": str(clouds(unit)),
            "cloud": "tippingpoint",
        }

    def test_many_units_share_the_iterations(self, place: tuple[Unit, ScriptedAgent]) -> None:
        unit, _ = place
        state = state_of(unit, config=CONFIG, others=[keystone()], peers={1: {}, 2: {}})
        assert unit.act("start", state, plan="openstack-boot-delete")["units"] == "3"

    def test_who_we_are_is_in_one_file_and_nowhere_else(self, place: tuple[Unit, ScriptedAgent]) -> None:
        unit, agent = place
        unit.act("start", related(unit), plan_yaml=PLAN)
        written = yaml.safe_load(clouds(unit).read_text())["clouds"]["tippingpoint"]
        assert written["auth"]["password"] == PASSWORD
        assert files(unit) == ["clouds.yaml"]
        assert clouds(unit).stat().st_mode & 0o777 == 0o600
        sent = [relation.local_unit_data for relation in unit.after.relations]  # type: ignore[attr-defined]
        said = [*agent.asked, sent, run_in(unit.after), unit.context.juju_log, unit.after.unit_status]
        assert PASSWORD not in str(said)

    def test_a_private_authority_is_beside_it(self, place: tuple[Unit, ScriptedAgent]) -> None:
        unit, _ = place
        access = secret(cacert=SERVER.certificate)
        state = state_of(unit, config={"target": "openstack"}, access=access, others=[keystone()])
        unit.act("start", state, plan_yaml=PLAN)
        assert files(unit) == ["clouds.yaml", "openstack-ca.pem"]
        assert (
            yaml.safe_load(clouds(unit).read_text())["clouds"]["tippingpoint"]["cacert"] == "openstack-ca.pem"
        )

    @pytest.mark.parametrize(
        ("override", "said"),
        [
            (
                "target.image=/etc/shadow",
                "target.image: /etc/shadow: expected the name or id of an image in the cloud",
            ),
            (
                "target.image=etc/shadow",
                "target.image: etc/shadow: expected the name or id of an image in the cloud",
            ),
            ("target.cloud=admin", "target.cloud: admin: expected nothing: the charm fills it in"),
            (
                "target.credentials=/root/clouds.yaml",
                "target.credentials: /root/clouds.yaml: expected nothing: ",
            ),
        ],
    )
    def test_files_of_the_machine_are_refused(
        self, place: tuple[Unit, ScriptedAgent], override: str, said: str
    ) -> None:
        unit, agent = place
        assert unit.refused("start", related(unit), plan_yaml=PLAN, overrides=override).startswith(said)
        assert agent.requests("orders") == []

    def test_a_probe_has_access_of_its_own(self, place: tuple[Unit, ScriptedAgent]) -> None:
        unit, agent = place
        unit.act("probe", related(unit))
        assert agent.requests("probe")[0]["target"]["credentials"] == str(clouds(unit))


class TestSecrets:
    """They go with the relation or the secret that they are from, but from no run that goes on."""

    @pytest.fixture
    def begun(self, place: tuple[Unit, ScriptedAgent]) -> SharedRun:
        unit, _ = place
        unit.act("start", related(unit), plan_yaml=PLAN)
        run = run_in(unit.after)
        assert run is not None
        return run

    def test_a_run_that_goes_on_keeps_them(self, place: tuple[Unit, ScriptedAgent], begun: SharedRun) -> None:
        unit, agent = place
        unit.run(unit.on.update_status(), state_of(unit, run=begun, config=CONFIG))
        assert files(unit) == ["clouds.yaml"]
        assert agent.orders["target"]["credentials"] == str(clouds(unit))

    def test_when_it_is_over_they_go_with_the_relation(
        self, place: tuple[Unit, ScriptedAgent], begun: SharedRun
    ) -> None:
        unit, _ = place
        over = begun.model_copy(update={"over": True})
        unit.run(unit.on.update_status(), related(unit, over))
        assert files(unit) == ["clouds.yaml"]
        before = related(unit, over)
        unit.run(unit.on.relation_broken(before.get_relations("identity-credentials")[0]), before)
        assert files(unit) == []

    def test_when_it_is_over_they_are_as_keystone_says_now(
        self, place: tuple[Unit, ScriptedAgent], begun: SharedRun
    ) -> None:
        unit, _ = place
        over = begun.model_copy(update={"over": True})
        unit.run(unit.on.update_status(), related(unit, over, credentials_password="another"))
        assert (
            yaml.safe_load(clouds(unit).read_text())["clouds"]["tippingpoint"]["auth"]["password"]
            == "another"
        )

    def test_they_go_with_a_secret_that_is_taken_back(self, place: tuple[Unit, ScriptedAgent]) -> None:
        unit, _ = place
        access = secret(
            **{
                "auth-url": "https://192.0.2.5:5000/v3",
                "application-credential-id": "abc",
                "application-credential-secret": PASSWORD,
                "cacert": SERVER.certificate,
            }
        )
        state = state_of(unit, config={"target": "openstack"}, access=access)
        unit.act("probe", state)
        assert files(unit) == ["clouds.yaml", "openstack-ca.pem"]
        unit.run(unit.on.update_status(), dataclasses.replace(state, secrets=[]))
        assert files(unit) == []

    def test_clean_has_them_again(self, place: tuple[Unit, ScriptedAgent], begun: SharedRun) -> None:
        unit, agent = place
        over = begun.model_copy(update={"over": True})
        unit.run(unit.on.update_status(), state_of(unit, run=over, config=CONFIG))
        assert files(unit) == []
        unit.act("clean", state_of(unit, run=over, config=CONFIG))
        assert files(unit) == []
        unit.act("clean", related(unit, over))
        assert files(unit) == ["clouds.yaml"]
        assert len(agent.requests("clean")) == 2

    def test_other_targets_secrets_are_left_alone(self, place: tuple[Unit, ScriptedAgent]) -> None:
        """Given an LXD's files and an OpenStack's, when one relation goes, then its files go alone."""
        unit, _ = place
        access = secret(user="u", password="p", addresses="192.0.2.1:17070", cacert=SERVER.certificate)
        state = state_of(unit, config={"target": "juju"}, access=access, others=[keystone()])
        unit.act("probe", state)
        unit.act("probe", dataclasses.replace(state, config={**state.config, "target": "openstack"}))
        assert files(unit) == ["clouds.yaml", "juju.yaml"]
        unit.run(unit.on.update_status(), state_of(unit, config={"target": "juju"}, access=access))
        assert files(unit) == ["juju.yaml"]


def test_a_run_is_not_begun_for_a_keystone_that_says_half(place: tuple[Unit, ScriptedAgent]) -> None:
    unit, _ = place
    run = a_run([unit.name], PLAN)
    out = unit.run(unit.on.config_changed(), related(unit, run, credentials_project=""))
    assert out.unit_status == testing.BlockedStatus(
        f"identity-credentials: waiting for Keystone's credentials_project: takes no part in {run.id}"
    )
    assert files(unit) == []
