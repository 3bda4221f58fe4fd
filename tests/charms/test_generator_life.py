"""A generator's unit from install to remove: its service, its configuration, its status."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from ops import testing

from tests.charms.generators import ScriptedAgent, Unit, a_run, lxd_token, real_agent, secret, state_of

READY = testing.ActiveStatus("ready: etcd (at http://192.0.2.7:2379)")


def unit_file(unit: Unit) -> str:
    path = unit.root / "etc/systemd/system" / f"{unit.service}.service"
    return path.read_text() if path.exists() else ""


def copies(unit: Unit) -> list[Path]:
    return sorted((unit.root / "opt/tippingpoint").iterdir())


def new_version(unit: Unit) -> None:
    (unit.pack / "tippingpoint/__init__.py").write_text("version = 2\n")


def runs_version(unit: Unit) -> str:
    """Which version the service file names."""
    named = [copy for copy in copies(unit) if f"/opt/tippingpoint/{copy.name} " in unit_file(unit)]
    assert len(named) == 1
    return (named[0] / "tippingpoint/__init__.py").read_text()


class TestInstall:
    def test_the_service_is_set_up_and_runs_from_a_copy_of_the_pack(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        unit.machine.users.clear()
        out = unit.run(unit.on.install(), state_of(unit))
        assert [command.split()[:2] for command in unit.machine.commands] == [
            ["useradd", "--system"],
            ["systemctl", "daemon-reload"],
            ["systemctl", "enable"],
            ["systemctl", "restart"],
        ]
        assert runs_version(unit) == "version = 1\n"
        assert out.unit_status == READY
        assert out.workload_version == "0.1.0"
        assert {port.port for port in out.opened_ports} == {9477}

    def test_again_changes_nothing(self, unit: Unit, agent: ScriptedAgent) -> None:
        out = unit.run(unit.on.install(), state_of(unit))
        unit.machine.commands.clear()
        out = unit.run(unit.on.start(), unit.run(unit.on.config_changed(), out))
        assert unit.machine.commands == []
        assert out.unit_status == READY

    @pytest.mark.parametrize("refused", ["useradd", "daemon-reload", "restart"])
    def test_what_the_machine_refuses_is_the_status_and_is_tried_again(
        self, unit: Unit, agent: ScriptedAgent, refused: str
    ) -> None:
        unit.machine.users.clear()
        unit.machine.refuses = refused
        out = unit.run(unit.on.install(), state_of(unit))
        assert isinstance(out.unit_status, testing.BlockedStatus)
        assert out.unit_status.message.endswith(": refused")
        unit.machine.refuses = ""
        out = unit.run(unit.on.update_status(), out)
        assert out.unit_status == READY
        assert any("restart" in command for command in unit.machine.commands)

    def test_no_room_for_the_copy_is_the_status(self, unit: Unit, agent: ScriptedAgent) -> None:
        (unit.root / "opt").write_text("in the way")
        out = unit.run(unit.on.install(), state_of(unit))
        assert isinstance(out.unit_status, testing.BlockedStatus)
        assert "Not a directory" in out.unit_status.message

    def test_an_agent_that_is_away_is_a_status_and_is_started(self, unit: Unit) -> None:
        out = unit.run(unit.on.install(), state_of(unit))
        away = testing.WaitingStatus(f"the agent does not answer: journalctl -u {unit.service}")
        assert out.unit_status == away
        unit.machine.commands.clear()
        assert unit.run(unit.on.update_status(), out).unit_status == away
        assert [command.split()[:2] for command in unit.machine.commands] == [["systemctl", "start"]]

    def test_the_agent_itself_is_understood(self, unit: Unit) -> None:
        out = unit.run(unit.on.install(), state_of(unit))
        with real_agent(unit):
            assert unit.run(unit.on.start(), out).unit_status == READY


class TestRefresh:
    @pytest.fixture
    def installed(self, unit: Unit, agent: ScriptedAgent) -> Iterator[testing.State]:
        out = unit.run(unit.on.install(), state_of(unit))
        unit.machine.commands.clear()
        return out

    def test_without_a_run_the_service_is_restarted_with_the_new_version(
        self, unit: Unit, installed: testing.State
    ) -> None:
        new_version(unit)
        unit.run(unit.on.upgrade_charm(), installed)
        assert runs_version(unit) == "version = 2\n"
        assert [c.split()[1] for c in unit.machine.commands] == ["daemon-reload", "enable", "restart"]
        assert len(copies(unit)) == 1  # the old one is gone

    @pytest.mark.parametrize("later", ["agent_changed", "update_status", "peer"])
    def test_a_run_goes_on_with_the_version_it_began_with(
        self, unit: Unit, agent: ScriptedAgent, installed: testing.State, later: str
    ) -> None:
        run = a_run([unit.name])
        agent.running, agent.word = run.id, unit.word(run, "ready")
        before = dataclasses.replace(installed, relations=state_of(unit, run=run, peers={1: {}}).relations)
        new_version(unit)
        out = unit.run(unit.on.upgrade_charm(), before)
        assert unit.machine.commands == []
        assert runs_version(unit) == "version = 1\n"
        assert len(copies(unit)) == 2
        assert "the new version waits for its end" in out.unit_status.message

        agent.running = ""
        match later:
            case "agent_changed":
                unit.agent_changed(out)
            case "update_status":
                unit.run(unit.on.update_status(), out)
            case _:
                relation = out.get_relations("units")[0]
                unit.run(unit.on.relation_changed(relation, remote_unit=1), out)
        assert runs_version(unit) == "version = 2\n"
        assert len(copies(unit)) == 1

    def test_a_waiting_copy_that_another_charm_took_for_left_over_is_made_again(
        self, unit: Unit, agent: ScriptedAgent, installed: testing.State
    ) -> None:
        agent.running = "run"
        new_version(unit)
        out = unit.run(unit.on.upgrade_charm(), installed)
        other = Unit(unit.root, "container-spawner")
        with ScriptedAgent(other).at_its_socket():
            other.run(other.on.install(), state_of(other))
        agent.running = ""
        unit.agent_changed(out)
        assert runs_version(unit) == "version = 2\n"


class TestConfiguration:
    def test_a_target_that_cannot_be_loaded_is_named_with_what_can_be(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        out = unit.run(unit.on.config_changed(), state_of(unit, config={"target": "lxd"}))
        assert out.unit_status == testing.BlockedStatus("target: lxd: expected juju or etcd")

    def test_projects_that_cannot_be_are_named(self, spawner: Unit) -> None:
        with ScriptedAgent(spawner).at_its_socket():
            before = state_of(spawner, config={"lxd-projects": "a,../b"})
            out = spawner.run(spawner.on.config_changed(), before)
        assert out.unit_status == testing.BlockedStatus(
            "lxd-projects: a,../b: expected names of LXD projects, separated by commas"
        )

    @pytest.mark.parametrize(
        ("target", "said"),
        [("juju", "add a secret: juju add-secret"), ("etcd", "relate etcd: juju integrate")],
    )
    def test_without_access_the_status_says_what_to_do(
        self, unit: Unit, agent: ScriptedAgent, target: str, said: str
    ) -> None:
        before = state_of(unit, config={"target": target, "credentials": None})
        out = unit.run(unit.on.config_changed(), before)
        assert isinstance(out.unit_status, testing.BlockedStatus)
        assert out.unit_status.message.startswith(said)

    def test_containers_of_the_tiny_image_need_busybox(self, spawner: Unit) -> None:
        access = secret(token=lxd_token())
        spawner.machine.programs.clear()
        with ScriptedAgent(spawner).at_its_socket():
            out = spawner.run(spawner.on.config_changed(), state_of(spawner, access=access))
            assert isinstance(out.unit_status, testing.BlockedStatus)
            assert "apt install -y busybox-static" in out.unit_status.message
            spawner.machine.programs.add("busybox")
            out = spawner.run(spawner.on.config_changed(), state_of(spawner, access=access))
            assert out.unit_status == testing.ActiveStatus("ready: lxd (at what the token names)")

    def test_no_secret_is_in_what_is_written_but_in_files_of_mode_0600(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        access = secret(endpoints="http://192.0.2.7:2379", username="bob", password="hunter2")
        run = a_run([unit.name])
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run, access=access))
        written = unit.state / "credentials/etcd.yaml"
        assert "hunter2" in written.read_text()
        assert written.stat().st_mode & 0o777 == 0o600
        assert written.parent.stat().st_mode & 0o777 == 0o700
        assert agent.orders["target"]["credentials"] == str(written)
        said = str([*agent.asked, *out.relations, *unit.context.juju_log, out.unit_status, unit_file(unit)])
        assert "hunter2" not in said


class TestRemoval:
    @pytest.fixture
    def installed(self, unit: Unit, agent: ScriptedAgent) -> testing.State:
        out = unit.run(unit.on.install(), state_of(unit))
        (unit.state / "runs").mkdir(parents=True)
        unit.machine.commands.clear()
        agent.asked.clear()
        return out

    def test_the_part_is_ended_and_what_it_made_removed_first(
        self, unit: Unit, agent: ScriptedAgent, installed: testing.State
    ) -> None:
        out = unit.run(unit.on.stop(), installed)
        assert [request["do"] for request in agent.asked] == ["orders", "ping", "clean", "task"]
        assert agent.orders["run"] is None
        assert out.unit_status == testing.MaintenanceStatus("removing what it made")

    def test_the_last_one_takes_everything_with_it(
        self, unit: Unit, agent: ScriptedAgent, installed: testing.State
    ) -> None:
        unit.run(unit.on.remove(), unit.run(unit.on.stop(), installed))
        assert unit_file(unit) == ""
        assert not unit.state.exists()
        assert not (unit.root / "opt/tippingpoint").exists()
        assert unit.machine.users == set()
        assert unit.machine.commands[0].startswith("systemctl disable --now")

    def test_another_unit_on_the_machine_keeps_its_own(
        self, unit: Unit, agent: ScriptedAgent, installed: testing.State
    ) -> None:
        other = Unit(unit.root, "container-spawner")
        with ScriptedAgent(other).at_its_socket():
            other.run(other.on.install(), state_of(other))
        unit.run(unit.on.remove(), installed)
        assert runs_version(other) == "version = 1\n"
        assert unit.machine.users == {"tippingpoint"}

    def test_what_may_be_left_in_a_target_is_said_and_how_it_is_removed_is_kept(
        self, unit: Unit, agent: ScriptedAgent, installed: testing.State
    ) -> None:
        agent.answers["task"] = lambda _: {"done": True, "failed": True, "text": "controller: unreachable"}
        unit.run(unit.on.stop(), installed)
        warned = [line.message for line in unit.context.juju_log if line.level == "WARNING"]
        assert any("controller: unreachable" in line and "tippingpoint clean" in line for line in warned)
        out = unit.run(unit.on.stop(), installed)
        unit.run(unit.on.remove(), out)
        assert unit_file(unit) == ""
        assert unit.state.exists()
        assert len(copies(unit)) == 1
        assert unit.machine.users == {"tippingpoint"}

    def test_removal_of_what_never_was_installed_is_no_problem(self, unit: Unit) -> None:
        out = unit.run(unit.on.remove(), unit.run(unit.on.stop(), state_of(unit)))
        assert isinstance(out.unit_status, testing.MaintenanceStatus)
        assert [line for line in unit.context.juju_log if "may be left" in line.message] == []

    def test_a_leader_that_goes_does_not_take_the_others_for_gone(self, root: Path) -> None:
        goes = Unit(root, number=3)  # of a unit 0 that goes, ops.testing does not say so
        run = a_run([goes.name, "load-claimer/1"])
        state = state_of(goes, run=run, peers={1: {}, 2: {}})
        relation = state.get_relations("units")[0]
        with ScriptedAgent(goes).at_its_socket() as agent:
            event = goes.on.relation_departed(relation, remote_unit=2, departing_unit=3)
            out = goes.run(event, state)
        assert out.get_relations("units")[0] == relation
        assert agent.orders["run"] is None
