"""container-spawner on a MAAS: from the secret to a run, and what a plan of virtme needs of the unit's machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml
from ops import testing

from tests.charms.generators import ScriptedAgent, Unit, a_run, run_in, secret, state_of, with_peer
from tests.charms.related import SERVER
from tippingpoint.conduct.run_state import SharedRun
from tippingpoint.plan.shipped import shipped_plans

API_KEY = "consumer:token:hush"
URL = "https://192.0.2.9:5443/MAAS"
PACKAGES = ["python3-libvirt", "libvirt-daemon-system", "qemu-system-x86", "qemu-utils", "ipxe-qemu"]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFhkhGZnc6Wrj0nWVzOUq1SnLB6u1ZyFjWyWEd9bYxQd"
LACKING = (
    "juju run container-spawner/0 prepare plan=maas-virtme: it lacks python3-libvirt, libvirt-daemon-system, "
    "qemu-system-x86, qemu-utils, ipxe-qemu, tippingpoint in group libvirt"
)
NO_KVM = (
    "no /dev/kvm on this machine: expected one that virtualises (VT-x or AMD-V; in a virtual machine, nested)"
)
LENT = f'restrict,command="/usr/bin/virt-ssh-helper qemu:///system" {KEY} tippingpoint:container-spawner/0\n'


@pytest.fixture
def agent(spawner: Unit) -> Iterator[ScriptedAgent]:
    with ScriptedAgent(spawner).at_its_socket() as agent:
        yield agent


@pytest.fixture
def virtualises(spawner: Unit) -> None:
    """A machine with KVM, and nothing else that virtme needs."""
    spawner.machine.path("/root").mkdir()
    kvm = spawner.machine.path("/dev/kvm")
    kvm.parent.mkdir(parents=True, exist_ok=True)
    kvm.touch()


@pytest.fixture
def prepared(spawner: Unit, virtualises: None) -> None:
    spawner.machine.packages |= {*PACKAGES}
    spawner.machine.members.add(("tippingpoint", "libvirt"))


def given(unit: Unit, more: Mapping[str, str] | None = None, run: SharedRun | None = None) -> testing.State:
    """A unit that has a secret for a MAAS."""
    content = {"url": URL, "api-key": API_KEY, "cacert": SERVER.certificate, **(more or {})}
    return state_of(unit, run=run, config={"target": "maas"}, access=secret(**content))


def authorized(unit: Unit) -> Path:
    return unit.machine.path("/root/.ssh/authorized_keys")


class TestAccess:
    @pytest.mark.parametrize(
        ("url", "said"),
        [
            (URL, f"ready: maas (at {URL})"),
            (
                "http://192.0.2.9:5240/MAAS",
                "ready: maas (at http://192.0.2.9:5240/MAAS; the API key goes to MAAS without TLS and can be read on "
                "the way: private networks only)",
            ),
        ],
    )
    def test_the_status_says_where_it_is_and_what_is_dangerous(
        self, spawner: Unit, agent: ScriptedAgent, url: str, said: str
    ) -> None:
        out = spawner.run(spawner.on.config_changed(), given(spawner, {"url": url}))
        assert out.unit_status == testing.ActiveStatus(said)

    def test_without_a_secret_it_says_how_to_add_one(self, spawner: Unit, agent: ScriptedAgent) -> None:
        before = state_of(spawner, config={"target": "maas", "credentials": None})
        out = spawner.run(spawner.on.config_changed(), before)
        assert isinstance(out.unit_status, testing.BlockedStatus)
        assert out.unit_status.message.startswith(
            "juju add-secret tippingpoint url=https://HOST:5443/MAAS api-key#file=FILE cacert#file=FILE"
        )

    def test_a_key_that_is_none_is_named_and_not_shown(self, spawner: Unit, agent: ScriptedAgent) -> None:
        out = spawner.run(spawner.on.config_changed(), given(spawner, {"api-key": "hush"}))
        assert out.unit_status == testing.BlockedStatus(
            "credentials: api-key: expected three parts with colons in between, as `maas apikey --username=USER` "
            "shows them"
        )

    def test_a_run_has_the_key_in_a_file_of_mode_0600_only(self, spawner: Unit, agent: ScriptedAgent) -> None:
        before = given(spawner, {"power": "power_pass: hush-power"})
        assert spawner.act("start", before, plan="maas-register-small")["units"] == "1"

        written = spawner.state / "credentials/maas.yaml"
        assert agent.orders["target"] == {"kind": "maas", "credentials": str(written)}
        content = yaml.safe_load(written.read_text())
        assert (content["url"], content["api_key"]) == (URL, API_KEY)
        assert written.stat().st_mode & 0o777 == 0o600
        trials = agent.requests("access")
        told = [asked for asked in agent.asked if asked not in trials]
        assert "hush" not in str(
            [*told, *spawner.after.relations, *spawner.context.juju_log, spawner.after.unit_status]
        )

    @pytest.mark.parametrize("plan", [name for name in shipped_plans() if name.startswith("maas-")])
    def test_shipped_plans_begin_and_only_virtme_needs_a_prepared_machine(
        self, spawner: Unit, agent: ScriptedAgent, plan: str
    ) -> None:
        said = spawner.attempt("start", given(spawner), plan=plan)
        assert said == (f"{spawner.name}: {NO_KVM}" if "virtme" in plan else "")
        assert not [command for command in spawner.machine.commands if command.startswith("apt-get")]


class TestPrepare:
    """`start` needs a prepared machine, `prepare` installs, and neither does anything with other plans."""

    def test_installs_what_is_lacking_and_starts_the_agent_anew_in_its_groups(
        self, spawner: Unit, agent: ScriptedAgent, virtualises: None
    ) -> None:
        # Given a machine that lacks everything but KVM
        assert spawner.refused("start", given(spawner), plan="maas-virtme") == LACKING
        spawner.machine.packages.add("qemu-utils")
        before = len(spawner.machine.commands)

        # When it is prepared
        said = spawner.act("prepare", given(spawner), plan="maas-virtme")["result"]

        # Then the packages that were lacking are installed, the user is in the group, and the agent started anew
        lacked = [package for package in PACKAGES if package != "qemu-utils"]
        assert said == f"installed {', '.join(lacked)}; tippingpoint is in group libvirt"
        apt = [command for command in spawner.machine.commands[before:] if command.startswith("apt-get")]
        assert apt[0].endswith(" update")
        assert apt[1].endswith(f" install --no-install-recommends {' '.join(lacked)}")
        assert spawner.machine.commands[-2:] == [
            "usermod --append --groups libvirt tippingpoint",
            f"systemctl restart {spawner.service}.service",
        ]
        # and a run begins
        assert spawner.act("start", given(spawner), plan="maas-virtme")["units"] == "1"

    def test_a_machine_that_is_prepared_is_left_as_it_is(
        self, spawner: Unit, agent: ScriptedAgent, prepared: None
    ) -> None:
        spawner.act("status", given(spawner))
        before = [*spawner.machine.commands]
        assert spawner.act("prepare", spawner.after, plan="maas-virtme")["result"] == "nothing was lacking"
        assert spawner.machine.commands == before

    @pytest.mark.parametrize(
        "asked",
        [
            {"plan": "maas-register"},
            {"plan": "lxd-cluster-small"},
        ],
    )
    def test_other_plans_need_nothing(
        self, spawner: Unit, agent: ScriptedAgent, asked: dict[str, str]
    ) -> None:
        assert spawner.act("prepare", given(spawner), **asked)["result"] == "nothing was lacking"
        assert not [command for command in spawner.machine.commands if command.startswith("apt-get")]

    def test_a_libvirt_elsewhere_needs_the_binding_only(self, spawner: Unit, agent: ScriptedAgent) -> None:
        said = spawner.act(
            "prepare",
            given(spawner),
            plan="maas-virtme",
            overrides="target.made.libvirt=qemu+tls://192.0.2.4/system",
        )
        assert said["result"] == "installed python3-libvirt"

    def test_a_machine_that_cannot_virtualise_is_refused_before_anything_is_installed(
        self, spawner: Unit, agent: ScriptedAgent
    ) -> None:
        assert spawner.refused("prepare", given(spawner), plan="maas-virtme") == NO_KVM
        assert not [command for command in spawner.machine.commands if command.startswith("apt-get")]

    def test_what_apt_refuses_is_one_line(
        self, spawner: Unit, agent: ScriptedAgent, virtualises: None
    ) -> None:
        spawner.machine.refuses = "apt-get"
        assert spawner.refused("prepare", given(spawner), plan="maas-virtme") == "apt-get: refused"

    def test_a_run_in_progress_is_not_disturbed(
        self, spawner: Unit, agent: ScriptedAgent, virtualises: None
    ) -> None:
        agent.running = "20261123-maas"
        said = spawner.refused("prepare", given(spawner), plan="maas-virtme")
        assert said == "run 20261123-maas is in progress: prepare the machine when it is over"

    def test_another_unit_that_is_not_prepared_takes_no_part_and_says_why(
        self, spawner: Unit, agent: ScriptedAgent
    ) -> None:
        """Given a run that another unit leads, then this one's status says what to do, and the agent has no run."""
        run = a_run(["container-spawner/1", spawner.name], shipped_plans()["maas-virtme"])
        before = given(spawner, run=run)
        state = dataclasses.replace(with_peer(before, 1), leader=False, planned_units=2)
        out = spawner.run(spawner.on.config_changed(), state)
        assert out.unit_status == testing.BlockedStatus(
            f"{spawner.name}: {NO_KVM}: takes no part in {run.id}"
        )
        assert agent.requests("orders") == []


@pytest.mark.usefixtures("prepared")
class TestVirtme:
    """The unit's server is MAAS's to switch, over SSH, for as long as a run lasts."""

    @pytest.fixture
    def begun(self, spawner: Unit, agent: ScriptedAgent) -> SharedRun:
        override = f"target.made.authorized_key={KEY} maas@rack"
        spawner.act("start", given(spawner), plan="maas-virtme", overrides=override)
        run = run_in(spawner.after)
        assert run is not None
        return run

    def test_the_agent_has_the_units_address_and_no_key(self, begun: SharedRun, agent: ScriptedAgent) -> None:
        assert agent.orders["target"]["made"] == {
            "kind": "virtme",
            "libvirt": "qemu:///system",
            "power_address": "qemu+ssh://root@192.0.2.0/system",
            "authorized_key": "",
        }

    def test_an_address_of_the_plans_stays(self, spawner: Unit, agent: ScriptedAgent) -> None:
        address = "qemu+tls://server.example/system"
        override = f"target.made.power_address={address}"
        spawner.act("start", given(spawner), plan="maas-virtme", overrides=override)
        assert agent.orders["target"]["made"]["power_address"] == address
        assert not authorized(spawner).exists()

    def test_the_key_reaches_libvirt_only_and_goes_when_what_the_run_made_is_removed(
        self, spawner: Unit, agent: ScriptedAgent, begun: SharedRun
    ) -> None:
        # Given a run that has begun: its key may do one thing
        assert authorized(spawner).read_text() == LENT
        assert authorized(spawner).stat().st_mode & 0o777 == 0o600
        # When the run is over, and something may be left of it, then MAAS still needs the key
        over = begun.model_copy(update={"over": True})
        agent.word = spawner.word(begun, "over", left="juju run ... clean")
        spawner.run(spawner.on.update_status(), given(spawner, run=over))
        assert authorized(spawner).read_text() == LENT
        # When nothing is left, then the key is gone, and so is the file that had nothing else
        agent.word = spawner.word(begun, "over")
        spawner.run(spawner.on.update_status(), given(spawner, run=over))
        assert not authorized(spawner).exists()

    def test_others_keys_stay(self, spawner: Unit, agent: ScriptedAgent) -> None:
        theirs = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExz someone@else\n"
        authorized(spawner).parent.mkdir(parents=True)
        authorized(spawner).write_text(theirs)
        spawner.act(
            "start", given(spawner), plan="maas-virtme", overrides=f"target.made.authorized_key={KEY}"
        )
        assert authorized(spawner).read_text() == theirs + LENT
        spawner.run(spawner.on.remove(), given(spawner))
        assert authorized(spawner).read_text() == theirs

    @pytest.mark.parametrize("key", ["hush", f'command="sh" {KEY}', f"{KEY}\\nssh-ed25519 AAAA"])
    def test_more_than_a_key_is_refused(self, spawner: Unit, agent: ScriptedAgent, key: str) -> None:
        said = spawner.refused(
            "start", given(spawner), plan="maas-virtme", overrides=f'target.made.authorized_key="{key}"'
        )
        assert said.startswith("target.made.virtme.authorized_key") or said.startswith(
            "target.made.authorized_key"
        )
        assert not authorized(spawner).exists()
