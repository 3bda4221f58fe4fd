"""The page of the metrics-collector charm: switched on by a secret, known by a fingerprint, and without privileges."""

from __future__ import annotations

import re
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ops import testing

from tests.charms.collector import context, on_machine, state_of
from tests.charms.generators import Directory
from tests.charms.systemd import exposure, misunderstood, needs_systemd
from tippingpoint.util.key_pair import make_pair

TOKEN = "correct-horse-battery-staple"
"""It must show nowhere."""
SERVICE = "tippingpoint-metrics-collector-0-page"
PAGE = "https://192.0.2.0:9480"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Directory:
    return on_machine(monkeypatch, tmp_path / "machine")


def unit_file(machine: Directory) -> Path:
    return machine.path(f"/etc/systemd/system/{SERVICE}.service")


def with_secret(**content: str) -> dict[str, Any]:
    """Configuration and secret with this content, granted to us; `_` in names is `-`."""
    secret = testing.Secret({name.replace("_", "-"): text for name, text in content.items()}, owner=None)
    return {"config": {"page-token": secret.id}, "secrets": [secret]}


def after(event: str = "config_changed", **state: Any) -> testing.State:
    ctx = context()
    return ctx.run(getattr(ctx.on, event)(), testing.State(**state))


def status(**state: Any) -> dict[str, Any]:
    """The results of the action."""
    ctx = context()
    ctx.run(ctx.on.action("status"), testing.State(**state))
    assert ctx.action_results is not None
    return ctx.action_results


def test_without_a_secret_it_is_off_and_the_action_says_how_to_switch_it_on(machine: Directory) -> None:
    out = after("install")

    assert not unit_file(machine).exists()
    assert out.opened_ports == frozenset()
    told = status()
    assert told["page"] == "off"
    assert told["then"] == (
        "(umask 077; openssl rand -hex 24 > token)\n"
        "juju add-secret tippingpoint-page token#file=token\n"
        "juju grant-secret tippingpoint-page metrics-collector\n"
        "juju config metrics-collector page-token=secret:ID\n"
    )


@pytest.mark.parametrize("event", ["install", "config_changed", "upgrade_charm", "start", "update_status"])
def test_with_a_secret_it_is_on_and_known_by_its_fingerprint(machine: Directory, event: str) -> None:
    out = after(event, **with_secret(token=TOKEN))

    assert f"systemctl restart {SERVICE}.service" in machine.commands
    assert out.opened_ports == {testing.TCPPort(9480)}
    told = status(**with_secret(token=TOKEN))
    assert told["page"] == PAGE
    certificate = state_of(machine) / "page/page.crt"
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", certificate],
        capture_output=True,
        text=True,
    )
    assert shown.stdout.strip().rpartition("=")[2] == told["fingerprint"]


def test_what_is_secret_is_roots_alone_and_in_nothing_that_is_told(machine: Directory) -> None:
    out = after(**with_secret(token=TOKEN))

    secrets = state_of(machine) / "page"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in secrets.iterdir()}
    assert modes == {"token": 0o600, "page.crt": 0o600, "page.key": 0o600}
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    assert (secrets / "token").read_text() == TOKEN
    told = [unit_file(machine).read_text(), str(out.unit_status), *machine.commands]
    told += map(str, status(**with_secret(token=TOKEN)).values())
    assert not any(TOKEN in text for text in told)


def test_another_token_is_handed_over_and_the_same_one_is_not(machine: Directory) -> None:
    after(**with_secret(token=TOKEN))
    machine.commands.clear()

    after("update_status", **with_secret(token=TOKEN))
    assert f"systemctl restart {SERVICE}.service" not in machine.commands
    assert f"systemctl start {SERVICE}.service" in machine.commands
    after(**with_secret(token=f"{TOKEN}-2"))

    assert f"systemctl restart {SERVICE}.service" in machine.commands
    assert (state_of(machine) / "page/token").read_text() == f"{TOKEN}-2"


def test_a_certificate_of_ones_own_is_shown_as_long_as_the_secret_has_it(machine: Directory) -> None:
    certificate, key = make_pair("page", serves=["page.example"])
    own = {"certificate": certificate.decode(), "private_key": key.decode()}
    after(**with_secret(token=TOKEN))
    made = status(**with_secret(token=TOKEN))["fingerprint"]

    after(**with_secret(token=TOKEN, **own))
    given = status(**with_secret(token=TOKEN, **own))["fingerprint"]
    assert "page/given.crt" in unit_file(machine).read_text()
    after(**with_secret(token=TOKEN))

    assert given != made
    assert status(**with_secret(token=TOKEN))["fingerprint"] == made
    assert not (state_of(machine) / "page/given.key").exists()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (
            {"token": "short"},
            "page-token: token: (not shown): expected 16 to 1000 characters of printable ASCII",
        ),
        (
            {"password": TOKEN},
            "page-token: expected a secret with token; or token, certificate, private-key; and",
        ),
        ({"token": TOKEN, "certificate": "x"}, "page-token: expected a secret with token; or "),
        (
            {"token": TOKEN, "certificate": "x", "private_key": "y"},
            "page-token: certificate: (not shown): expected a",
        ),
    ],
)
def test_a_secret_that_cannot_be_used_is_told_and_the_page_is_off(
    machine: Directory, content: dict[str, str], line: str
) -> None:
    after(**with_secret(token=TOKEN))

    out = after(**with_secret(**content))

    assert isinstance(out.unit_status, testing.BlockedStatus)
    assert out.unit_status.message.startswith(line)
    assert TOKEN not in out.unit_status.message
    assert not unit_file(machine).exists()
    assert out.opened_ports == frozenset()
    assert not (state_of(machine) / "page/token").exists()


def test_a_secret_that_was_not_granted_is_told_with_the_command_that_does(machine: Directory) -> None:
    out = after(config={"page-token": "secret:cvq5s2vmp25c7vv6fp3g"})

    assert out.unit_status == testing.BlockedStatus(
        "juju grant-secret secret:cvq5s2vmp25c7vv6fp3g metrics-collector: "
        "config page-token names a secret that is not granted"
    )


def test_without_the_option_it_is_off_again_and_its_token_gone(machine: Directory) -> None:
    after(**with_secret(token=TOKEN))

    out = after()

    assert f"systemctl disable --now {SERVICE}.service" in machine.commands
    assert not unit_file(machine).exists()
    assert not (state_of(machine) / "page/token").exists()
    assert out.opened_ports == frozenset()


def test_a_machine_that_refuses_is_told_and_asked_again(machine: Directory) -> None:
    machine.refuses = "systemctl enable"
    out = after(**with_secret(token=TOKEN))
    assert out.unit_status == testing.BlockedStatus("systemctl: refused")

    machine.refuses = ""
    machine.commands.clear()
    out = after("update_status", **with_secret(token=TOKEN))

    assert isinstance(out.unit_status, testing.WaitingStatus)
    assert f"systemctl restart {SERVICE}.service" in machine.commands


def test_removing_the_charm_leaves_nothing(machine: Directory) -> None:
    after("install", **with_secret(token=TOKEN))
    assert [*machine.path("/opt/tippingpoint").iterdir()]

    after("remove", **with_secret(token=TOKEN))

    left = [
        path
        for path in machine.path("/").rglob("*")
        if "tippingpoint" in path.name and "pack" not in str(path)
    ]
    assert left == []


class TestUnitFile:
    @pytest.fixture
    def text(self, machine: Directory) -> str:
        after(**with_secret(token=TOKEN))
        return unit_file(machine).read_text()

    def test_the_page_runs_as_nobody_in_particular_from_a_copy_of_the_pack(self, text: str) -> None:
        assert "DynamicUser=yes" in text
        assert re.search(r"PYTHONPATH=/opt/tippingpoint/[0-9a-f]{16} ", text)
        assert "CapabilityBoundingSet=\n" in text

    def test_its_secrets_are_handed_over_by_systemd(self, text: str) -> None:
        assert re.findall("^LoadCredential=([a-z]+):", text, re.MULTILINE) == ["token", "certificate", "key"]

    @needs_systemd
    def test_systemd_understands_it_and_rates_its_exposure_under_3(
        self, machine: Directory, text: str, tmp_path: Path
    ) -> None:
        assert misunderstood({f"{SERVICE}.service": text}, tmp_path / "verified") == []
        assert exposure(unit_file(machine)) < 3
