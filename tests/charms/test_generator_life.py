"""A generator's unit from install to remove: its service, its configuration, its status."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from ops import testing
from tippingpoint_charm import exchange
from tippingpoint_charm.status import LEGIBLE

from tests.charms.generators import (
    ScriptedAgent,
    Unit,
    a_run,
    lxd_token,
    real_agent,
    run_in,
    secret,
    state_of,
    units_of,
)
from tippingpoint import __version__
from tippingpoint.agent.client import call
from tippingpoint.conduct.run_state import SharedRun, read_word

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
            ["systemctl", "stop"],
            ["systemctl", "restart"],
            ["systemctl", "reset-failed"],
            ["systemctl", "start"],
        ]
        assert unit.machine.states == {
            f"{unit.service}{name}": "active" for name in (".service", "-wake.path")
        }
        assert runs_version(unit) == "version = 1\n"
        assert out.unit_status == READY
        assert out.workload_version == __version__
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
        unit.machine.states[f"{unit.service}.service"] = "failed"
        assert unit.run(unit.on.update_status(), out).unit_status == away
        assert unit.machine.states[f"{unit.service}.service"] == "active"

    def test_the_agent_itself_is_understood(self, unit: Unit) -> None:
        out = unit.run(unit.on.install(), state_of(unit, access=secret(endpoints="http://127.0.0.1:1")))
        with real_agent(unit):
            begun = unit.run(unit.on.start(), out).unit_status
        assert begun == testing.WaitingStatus("trying the login: etcd (at http://127.0.0.1:1)")


EXHAUSTED = "Failed to enter waiting state: Too many open files"
"""What systemd logs when a path unit gets no inotify instance."""
LATE = "hears its agent late: raise fs.inotify.max_user_instances (128) on its host"


class TestWaking:
    """The .path unit by which the agent's news reach the charm, when systemd cannot keep it."""

    @pytest.fixture
    def path(self, unit: Unit, agent: ScriptedAgent) -> str:
        return f"{unit.service}-wake.path"

    @pytest.fixture
    def installed(self, unit: Unit, path: str) -> testing.State:
        out = unit.run(unit.on.install(), state_of(unit, peers={1: {}}))
        limit = unit.root / "proc/sys/fs/inotify/max_user_instances"
        limit.parent.mkdir(parents=True)
        limit.write_text("128\n")
        unit.machine.commands.clear()
        return out

    def hooks(self, unit: Unit, state: testing.State) -> dict[str, Callable[[], testing.State]]:
        peers = units_of(state)
        return {
            "config_changed": lambda: unit.run(unit.on.config_changed(), state),
            "update_status": lambda: unit.run(unit.on.update_status(), state),
            "leader_elected": lambda: unit.run(unit.on.leader_elected(), state),
            "relation_changed": lambda: unit.run(unit.on.relation_changed(peers, remote_unit=1), state),
            "relation_departed": lambda: unit.run(unit.on.relation_departed(peers, departing_unit=1), state),
            "agent_changed": lambda: unit.agent_changed(state),
        }

    @pytest.mark.parametrize(
        "hook",
        ["config_changed", "update_status", "leader_elected", "relation_changed", "relation_departed", "agent_changed"],
    )  # fmt: skip
    @pytest.mark.parametrize("lost", [".service", "-wake.path"])
    def test_every_hook_starts_again_what_has_failed(
        self, unit: Unit, installed: testing.State, hook: str, lost: str
    ) -> None:
        unit.machine.states[f"{unit.service}{lost}"] = "failed"
        out = self.hooks(unit, installed)[hook]()
        assert unit.machine.states[f"{unit.service}{lost}"] == "active"
        assert unit.machine.commands == [
            f"systemctl {do} {unit.service}{lost}" for do in ("reset-failed", "start")
        ]
        assert out.unit_status == READY

    def test_a_path_unit_without_inotify_is_a_status_with_the_limit_and_a_timer_takes_its_place(
        self, unit: Unit, installed: testing.State, path: str
    ) -> None:
        unit.machine.states[path], unit.machine.words[path] = "failed", EXHAUSTED
        unit.machine.refuses = f"start {path}"
        out = unit.run(unit.on.config_changed(), installed)
        assert isinstance(out.unit_status, testing.ActiveStatus)
        assert out.unit_status.message == f"{LATE}; {READY.message}"
        assert len(LATE) <= LEGIBLE
        assert unit.machine.states[f"{unit.service}-wake.timer"] == "active"

        # given the limit was raised, when any hook comes
        unit.machine.refuses = ""
        out = unit.run(unit.on.config_changed(), out)
        assert out.unit_status == READY
        assert unit.machine.states[path] == "active"
        assert unit.machine.states[f"{unit.service}-wake.timer"] == "inactive"

    def test_while_a_run_stops_the_status_says_both(
        self, unit: Unit, agent: ScriptedAgent, installed: testing.State, path: str
    ) -> None:
        run = a_run([unit.name], stopped="asked to stop")
        agent.running, agent.word = run.id, unit.word(run, "ready")
        unit.machine.states[path], unit.machine.words[path] = "failed", EXHAUSTED
        unit.machine.refuses = f"start {path}"
        out = unit.agent_changed(dataclasses.replace(installed, relations=state_of(unit, run=run).relations))
        assert out.unit_status.message == f"{LATE}; stopping: asked to stop"

    def test_another_failure_is_said_as_systemd_says_it(
        self, unit: Unit, installed: testing.State, path: str
    ) -> None:
        unit.machine.states[path], unit.machine.words[path] = "failed", "No space left on device"
        unit.machine.refuses = f"start {path}"
        out = unit.run(unit.on.config_changed(), installed)
        assert out.unit_status.message == f"hears its agent late: No space left on device; {READY.message}"

    def test_a_machine_without_inotify_at_the_install_still_runs_its_agent(
        self, unit: Unit, agent: ScriptedAgent, path: str
    ) -> None:
        unit.machine.refuses = f"start {path}"
        out = unit.run(unit.on.install(), state_of(unit))
        assert out.unit_status.message == f"hears its agent late: systemctl: refused; {READY.message}"
        unit.machine.commands.clear()
        unit.run(unit.on.update_status(), out)
        assert not [command for command in unit.machine.commands if ".service" in command]


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
        assert f"systemctl restart {unit.service}.service" in unit.machine.commands
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
        assert "the new version starts after the run" in out.unit_status.message

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
        assert out.unit_status == testing.BlockedStatus("target: lxd: expected juju, etcd or pacemaker")

    def test_projects_that_cannot_be_are_named(self, spawner: Unit) -> None:
        with ScriptedAgent(spawner).at_its_socket():
            before = state_of(spawner, config={"lxd-projects": "a,../b"})
            out = spawner.run(spawner.on.config_changed(), before)
        assert out.unit_status == testing.BlockedStatus(
            "lxd-projects: a,../b: expected names of LXD projects, separated by commas"
        )

    @pytest.mark.parametrize(
        ("target", "said"),
        [("juju", "juju add-secret"), ("etcd", "juju integrate")],
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
            assert out.unit_status == testing.ActiveStatus("ready: lxd (at the address in the token)")

    def test_no_secret_is_in_what_is_written_but_in_files_of_mode_0600(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        access = secret(endpoints="https://192.0.2.7:2379", username="bob", password="hunter2")
        run = a_run([unit.name])
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run, access=access))
        written = unit.state / "credentials/etcd.yaml"
        assert "hunter2" in written.read_text()
        assert written.stat().st_mode & 0o777 == 0o600
        assert written.parent.stat().st_mode & 0o777 == 0o700
        assert agent.orders["target"]["credentials"] == str(written)
        said = str([*agent.asked, *out.relations, *unit.context.juju_log, out.unit_status, unit_file(unit)])
        assert "hunter2" not in said


def own_controller(_: object) -> tuple[list[str], str]:
    return ["192.0.2.7:17070"], "the authority's certificate"


def untried(*_: object) -> None:
    """Whatever it is, it will do."""


def wrong_secrets() -> list[tuple[str, dict[str, str] | None]]:
    """Of each kind of target no secret, and secrets that are wrong in some way."""
    lxd = {"addresses": "192.0.2.1:8443", "certificate": "x", "client-certificate": "y", "client-key": "z"}
    cloud = {
        "auth-url": "https://h/v3",
        "application-credential-id": "a",
        "application-credential-secret": "b",
    }
    etcd: dict[str, str] = {"endpoints": "https://192.0.2.7:2379"}
    juju = {"user": "a", "password": "b", "addresses": "192.0.2.1:17070"}
    nodes = {"user": "hacluster", "password": "b", "addresses": "192.0.2.1"}
    return [
        *((kind, None) for kind in ("juju", "etcd", "lxd", "openstack", "pacemaker")),
        *((kind, {"nothing": "x"}) for kind in ("juju", "etcd", "lxd", "openstack", "pacemaker")),
        *(("lxd", given) for given in (lxd, {"token": "abc"}, {**lxd, "addresses": "nonsense::"})),
        *(
            ("etcd", {**etcd, **given})
            for given in ({"cacert": "x"}, {"cert": "x"}, {"cert": "x", "key": "y"}, {"username": "x"})
        ),
        ("etcd", {"endpoints": "http://192.0.2.7:2379", "username": "x", "password": "y"}),
        *(
            ("juju", given)
            for given in (juju, {**juju, "cacert": "y"}, {**juju, "user": "a b", "cacert": "y"})
        ),
        *(("openstack", {**cloud, **given}) for given in ({"auth-url": "x"}, {"cacert": "x"})),
        *(("pacemaker", {**nodes, **given}) for given in ({}, {"port": "x"}, {"cacert": "x"}, {"tls": "x"})),
    ]


class TestWhatAStatusSays:
    """The issue: internal words reached the operator, and Juju cuts statuses at 120 characters."""

    @pytest.mark.parametrize(("target", "given"), wrong_secrets())
    def test_of_a_secret_is_in_its_own_words_with_the_command_first(
        self, root: Path, target: str, given: dict[str, str] | None
    ) -> None:
        unit = Unit(root, "container-spawner" if target in ("lxd", "openstack") else "load-claimer")
        state = state_of(
            unit,
            config={"target": target, **({} if given is not None else {"credentials": None})},
            access=None if given is None else secret(**given),
        )
        with ScriptedAgent(unit).at_its_socket():
            out = unit.run(unit.on.config_changed(), state)
        assert isinstance(out.unit_status, testing.BlockedStatus)
        said = out.unit_status.message
        self.is_legible(said)
        for internal in (
            "/proc",
            "client_",
            "client-certificate)",
            ".pem",
            ".yaml",
            "YAML",
            "ca-file",
            "`ca`",
        ):
            assert internal not in said

    def is_legible(self, said: str) -> None:
        command = re.search(r"juju [^;,]+?(?=: |[;,]|$)", said)
        if command is not None:
            assert command.end() <= LEGIBLE, said
        else:
            assert "expected" in said[:LEGIBLE], said

    def test_of_a_secret_that_is_not_granted(self, unit: Unit, agent: ScriptedAgent) -> None:
        state = state_of(unit, config={"credentials": "secret:cr9hvkvmp25c7bmrl7tg"})
        out = unit.run(unit.on.config_changed(), state)
        self.is_legible(out.unit_status.message)
        assert out.unit_status.message.startswith(
            "juju grant-secret secret:cr9hvkvmp25c7bmrl7tg load-claimer: "
        )

    def test_of_the_machine_and_of_what_is_left(
        self, unit: Unit, spawner: Unit, agent: ScriptedAgent
    ) -> None:
        spawner.machine.programs.clear()
        with ScriptedAgent(spawner).at_its_socket():
            out = spawner.run(
                spawner.on.config_changed(), state_of(spawner, access=secret(token=lxd_token()))
            )
        assert out.unit_status.message.startswith("juju exec --unit container-spawner/0 -- apt install")
        self.is_legible(out.unit_status.message)
        run = a_run([unit.name], over=True)
        left = f"juju run {unit.name} clean run={run.id}: not all removed from the target: unreachable"
        agent.word = unit.word(run, "over", left=left)
        out = unit.run(unit.on.config_changed(), state_of(unit, run=run))
        assert out.unit_status.message.startswith(f"{left}; ready: etcd")
        self.is_legible(out.unit_status.message)


class TestLogIn:
    """The issue: a wrong password said `ready` until `start`, and a grant was not noticed for minutes."""

    ACCESS: ClassVar = {"endpoints": "https://192.0.2.7:2379", "username": "bob", "password": "hunter2"}
    READY: ClassVar = testing.ActiveStatus("ready: etcd (at https://192.0.2.7:2379)")

    def after(self, unit: Unit, agent: ScriptedAgent, problem: str, refused: bool) -> testing.State:
        agent.answers["access"] = lambda _: {"problem": problem, "refused": refused}
        return unit.agent_changed(state_of(unit, access=secret(**self.ACCESS)))

    def test_in_progress_is_a_status_of_its_own_and_not_ready(self, unit: Unit, agent: ScriptedAgent) -> None:
        agent.answers["access"] = lambda _: {"problem": "", "refused": False, "trying": True}
        state = state_of(unit, access=secret(**self.ACCESS))
        out = unit.run(unit.on.config_changed(), state)
        assert out.unit_status == testing.WaitingStatus("trying the login: etcd (at https://192.0.2.7:2379)")
        assert self.after(unit, agent, "", refused=False).unit_status == self.READY

    def test_is_the_agent_s_which_is_told_of_the_access_in_every_hook_between_runs(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        out = unit.run(unit.on.update_status(), state_of(unit, access=secret(**self.ACCESS)))
        assert out.unit_status == self.READY
        (asked,) = agent.requests("access")
        assert asked["target"]["credentials"] == "{credentials}/etcd.yaml"
        assert "hunter2" in asked["files"]["etcd.yaml"]
        assert asked["awaits"] is False
        # and nothing of it is on the disk before a run
        assert not (unit.state / "credentials").exists()

    def test_that_is_refused_blocks_with_the_command_that_helps(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        out = self.after(unit, agent, "the password of user bob is refused: no\nsuch", True)
        (given,) = out.secrets
        assert isinstance(out.unit_status, testing.BlockedStatus)
        command, _, why = out.unit_status.message.partition(": the")
        assert command.startswith(f"juju update-secret {given.id} ")
        assert len(command) <= LEGIBLE
        assert why == " password of user bob is refused: no such"

    def test_that_is_refused_names_all_keys_of_a_secret_where_they_fit(self, spawner: Unit) -> None:
        login = {"user": "admin", "password": "hunter2", "addresses": "192.0.2.7:17070", "cacert": "-"}
        for keys, command in (
            (["user", "password"], "user=admin password#file=FILE"),
            ([*login], "KEY#file=FILE..."),
        ):
            given = secret(**{key: login[key] for key in keys})
            with (
                ScriptedAgent(spawner).at_its_socket() as agent,
                pytest.MonkeyPatch.context() as patched,
            ):
                patched.setenv("JUJU_API_ADDRESSES", "192.0.2.7:17070")
                patched.setattr("tippingpoint_charm.access._own_controller", own_controller)
                patched.setattr("tippingpoint_charm.access._check", untried)
                agent.answers["access"] = lambda _: {"problem": "refused", "refused": True}
                state = state_of(spawner, access=given, config={"target": "juju"})
                out = spawner.run(spawner.on.config_changed(), state)
            assert out.unit_status.message == f"juju update-secret {given.id} {command}: refused"

    def test_that_finds_nobody_is_told_and_blocks_no_start(self, unit: Unit, agent: ScriptedAgent) -> None:
        out = self.after(unit, agent, "192.0.2.7:2379: connection refused", False)
        assert out.unit_status == testing.WaitingStatus(
            "etcd cannot be reached: 192.0.2.7:2379: connection refused"
        )
        assert unit.act("start", out, plan="etcd-leases-small")

    def test_is_not_asked_of_an_agent_of_before(self, unit: Unit, agent: ScriptedAgent) -> None:
        agent.refuse("access", "do: access: expected one of orders")
        assert unit.run(unit.on.update_status(), state_of(unit)).unit_status == READY

    def test_a_secret_that_is_not_granted_is_looked_for_every_so_often(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        # given a secret that is not granted, then the agent is to wake us
        state = state_of(unit, config={"credentials": "secret:cr9hvkvmp25c7bmrl7tg"})
        out = unit.run(unit.on.config_changed(), state)
        assert isinstance(out.unit_status, testing.BlockedStatus)
        (asked,) = agent.requests("access")
        assert (asked["awaits"], asked["target"]) == (True, {})
        # when it is granted, which is no event
        out = unit.agent_changed(state_of(unit))
        assert out.unit_status == READY
        assert agent.requests("access")[-1]["awaits"] is False

    def test_nor_does_a_part_in_a_run_wait_for_an_event(self, unit: Unit, agent: ScriptedAgent) -> None:
        run = a_run([unit.name])
        gone = state_of(unit, run=run, config={"credentials": "secret:cr9hvkvmp25c7bmrl7tg"})
        out = unit.run(unit.on.config_changed(), gone)
        assert out.unit_status.message.endswith(f"takes no part in {run.id}")
        assert agent.requests("access")[-1]["awaits"] is True

    @pytest.mark.parametrize("awaits", [True, False])
    def test_only_one_that_waits_is_woken(
        self, unit: Unit, monkeypatch: pytest.MonkeyPatch, awaits: bool
    ) -> None:
        monkeypatch.setattr("tippingpoint.agent.service.BEAT", 0.05)
        beats: list[float] = []
        monkeypatch.setattr("tippingpoint.agent.service.wake", lambda _: beats.append(time.monotonic()))
        asked = threading.Event()
        sleep = asyncio.sleep

        async def counted(seconds: float) -> None:
            await sleep(seconds)
            ticks.append(seconds)
            if len(ticks) >= 5:
                asked.set()

        ticks: list[float] = []
        with real_agent(unit):
            call(unit.socket, {"do": "access", "awaits": awaits})
            monkeypatch.setattr("tippingpoint.agent.service.asyncio.sleep", counted)
            assert asked.wait(600)
        assert bool(beats) is awaits


class TestCredentialsFiles:
    """The issue: they outlived a secret that was taken back in mid-run by minutes."""

    def test_go_with_a_secret_that_was_taken_back_in_mid_run_as_soon_as_the_run_is_over(
        self, unit: Unit, agent: ScriptedAgent
    ) -> None:
        run = a_run([unit.name, "load-claimer/1"])
        access = secret(endpoints="https://192.0.2.7:2379", username="bob", password="hunter2")
        state = unit.run(
            unit.on.config_changed(), state_of(unit, run=run, access=access, leader=False, peers={1: {}})
        )
        written = unit.state / "credentials/etcd.yaml"
        gone = state_of(unit, run=run, config={"credentials": None}, leader=False, peers={1: {}})
        state = dataclasses.replace(state, config=gone.config, secrets=[])
        state = unit.run(unit.on.config_changed(), state)
        assert written.exists()  # which removes what the run made
        over = state_of(
            unit,
            run=run.model_copy(update={"over": True}),
            config={"credentials": None},
            leader=False,
            peers={1: {}},
        )
        state = dataclasses.replace(state, relations=over.relations)
        unit.agent_changed(state)
        assert not written.exists()


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
        assert [request["do"] for request in agent.asked] == ["leave", "ping", "clean", "task"]
        assert out.unit_status == testing.MaintenanceStatus("cleaning up the target")

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
        assert [request["do"] for request in agent.asked] == ["leave"]
        # Nobody but itself is missing from now on, which the next leader finds.
        now = run_in(out)
        assert now is not None
        assert now.missing == {goes.name: "the unit was removed"}
        assert not now.over


class TestLastWord:
    """A unit that is removed in mid-run: the issue's 100 leases of which 60 were real, and results that were lost."""

    def leaves(self, root: Path, *, leader: bool = False) -> tuple[Unit, testing.State, SharedRun]:
        unit = Unit(root, number=3)
        run = a_run([unit.name, "load-claimer/1"])
        collector = testing.Relation(
            "scale-run", remote_app_name="metrics-collector", remote_units_data={0: {}}
        )
        state = state_of(unit, run=run, peers={1: {}}, leader=leader, others=[collector])
        return unit, state, run

    def test_is_told_in_the_first_hook_that_says_so_and_nothing_else_is_waited_for(self, root: Path) -> None:
        unit, state, run = self.leaves(root)
        word = unit.word(run, "over", leaves=True, problem="the unit was removed")
        with ScriptedAgent(unit).at_its_socket() as agent:
            agent.answers["leave"] = lambda _: {
                "word": word.model_dump(mode="json"),
                "result": {"run": run.id, "digest": "D3"},
            }
            # On a real Juju scale-run is left first; ops.testing has nobody depart there but the remote units.
            event = unit.on.relation_departed(units_of(state), remote_unit=1, departing_unit=3)
            out = unit.run(event, state)
            assert [request["do"] for request in agent.asked] == ["leave"]
            for bag in (units_of(out).local_unit_data, out.get_relations("scale-run")[0].local_unit_data):
                assert read_word(bag["word"]) == word
                assert json.loads(bag["result"]) == {"run": run.id, "digest": "D3"}
            # The removal of what it made is the next hook's, which may last.
            out = unit.run(unit.on.relation_broken(out.get_relations("scale-run")[0]), out)
            assert [request["do"] for request in agent.asked] == ["leave", "ping", "clean", "task"]
            unit.run(unit.on.stop(), out)
            assert len(agent.asked) == 4

    def test_waits_for_an_agent_that_sums_up_what_it_had_no_time_to_end(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unit, state, run = self.leaves(root)
        for what in ("HOOK_WAITS", "LAST_WORD_WITHIN"):
            monkeypatch.setattr(exchange, what, 0.1)
        word = unit.word(run, "over", leaves=True, problem="the unit was removed")

        def late(_: dict[str, Any]) -> dict[str, Any]:
            time.sleep(1.0)
            return {"word": word.model_dump(mode="json"), "result": {"run": run.id, "digest": "D3"}}

        with ScriptedAgent(unit).at_its_socket() as agent:
            agent.answers["leave"] = late
            event = unit.on.relation_departed(units_of(state), remote_unit=1, departing_unit=3)
            out = unit.run(event, state)
        assert read_word(units_of(out).local_unit_data["word"]) == word

    def test_of_a_unit_without_peers_comes_as_its_own_relation_breaks(self, root: Path) -> None:
        unit = Unit(root)
        state = state_of(unit, run=a_run([unit.name]))
        with ScriptedAgent(unit).at_its_socket() as agent:
            out = unit.run(unit.on.relation_broken(units_of(state)), state)
            assert [request["do"] for request in agent.asked] == ["leave"]
        assert out.unit_status == testing.MaintenanceStatus("cleaning up the target")
