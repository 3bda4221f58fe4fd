"""The page's certificate by the relation `certificates`: asked for, used, renewed, and replaced by our own."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from ops import testing

from tests.charms.collector import context, on_machine, state_of
from tests.charms.generators import Directory

SERVICE = "tippingpoint-metrics-collector-0-page"
TOKEN = testing.Secret({"token": "correct-horse-battery-staple"}, owner=None)
PEM = serialization.Encoding.PEM


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Directory:
    return on_machine(monkeypatch, tmp_path / "machine")


class Authority:
    """An authority at the other end of the relation."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "an authority")])
        self.certificate = self._signed(self._name, self._key.public_key())

    def _signed(self, who: x509.Name, key: Any, *extensions: x509.Extension[Any]) -> str:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(who).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now).not_valid_after(now + timedelta(days=30))
        for each in extensions:
            builder = builder.add_extension(each.value, each.critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(PEM).decode().strip()

    def answer(self, request: str) -> dict[str, str]:
        """What its bag has once it has certified a request."""
        asked = x509.load_pem_x509_csr(request.encode())
        leaf = self._signed(asked.subject, asked.public_key(), *asked.extensions)
        chain = [leaf, self.certificate]
        told = {"certificate": leaf, "certificate_signing_request": request, "ca": self.certificate}
        return {"certificates": json.dumps([{**told, "chain": chain}])}


def related(**fields: Any) -> testing.State:
    """A unit whose page is on, with the relation."""
    relation = testing.Relation("certificates", remote_app_name="authority")
    return testing.State(
        config={"page-token": TOKEN.id}, secrets=[TOKEN], relations=[relation], leader=True, **fields
    )


def relation_of(state: testing.State) -> testing.Relation:
    (relation,) = state.get_relations("certificates")
    assert isinstance(relation, testing.Relation)
    return relation


def request_of(state: testing.State) -> str:
    (asked,) = json.loads(relation_of(state).local_unit_data["certificate_signing_requests"])
    return asked["certificate_signing_request"]


def run(
    event: str, state: testing.State, answer: dict[str, str] | None = None, **named: Any
) -> testing.State:
    """Run an event, of the relation if its name says so, with what the authority answers from then on."""
    ctx = context()
    if answer is not None:
        relation = dataclasses.replace(relation_of(state), remote_app_data=answer)
        state = dataclasses.replace(state, relations=[relation])
    about = [relation_of(state)] if event.startswith("relation") else []
    return ctx.run(getattr(ctx.on, event)(*about, **named), state)


def certificate(machine: Directory) -> x509.Certificate:
    """What the page shows: the file that systemd passes to it."""
    unit = machine.path(f"/etc/systemd/system/{SERVICE}.service").read_text()
    name = next(line for line in unit.splitlines() if line.startswith("LoadCredential=certificate:"))
    return x509.load_pem_x509_certificate((state_of(machine) / "page" / Path(name).name).read_bytes())


def issuer(machine: Directory) -> str:
    return certificate(machine).issuer.rfc4514_string()


def test_the_page_asks_for_its_address_and_has_its_own_certificate_until_it_gets_one(
    machine: Directory,
) -> None:
    out = run("relation_created", related())

    asked = x509.load_pem_x509_csr(request_of(out).encode())
    names = asked.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["192.0.2.0"]
    assert issuer(machine) == "CN=Tipping Point"


def test_an_issued_certificate_is_used_with_those_that_lead_to_its_authority(machine: Directory) -> None:
    authority = Authority()
    out = run("relation_created", related())
    machine.commands.clear()

    out = run("relation_changed", out, authority.answer(request_of(out)), remote_unit=0)

    assert issuer(machine) == "CN=an authority"
    whole = (state_of(machine) / "page/given.crt").read_text()
    assert whole.count("BEGIN CERTIFICATE") == 2
    assert authority.certificate in whole
    assert f"systemctl restart {SERVICE}.service" in machine.commands
    # and its key is in a secret and in root's file, and in no bag
    key = (state_of(machine) / "page/given.key").read_text().strip()
    assert key not in json.dumps(relation_of(out).local_unit_data)

    machine.commands.clear()
    run("update_status", out)
    assert f"systemctl restart {SERVICE}.service" not in machine.commands


def test_it_is_renewed_before_it_expires_and_the_page_goes_on_with_the_old_one(machine: Directory) -> None:
    authority = Authority()
    out = run("relation_created", related())
    before = request_of(out)
    out = run("relation_changed", out, authority.answer(before), remote_unit=0)
    serial = certificate(machine).serial_number
    (kept,) = [each for each in out.secrets if each.expire is not None]
    assert kept.expire is not None
    left = kept.expire.replace(tzinfo=UTC) - datetime.now(UTC)
    assert timedelta(days=20) < left < timedelta(days=30)

    out = run("secret_expired", out, secret=kept, revision=1)

    assert request_of(out) != before
    assert certificate(machine).serial_number == serial
    out = run("relation_changed", out, authority.answer(request_of(out)), remote_unit=0)
    assert certificate(machine).serial_number != serial


def test_without_the_relation_the_page_has_its_own_again(machine: Directory) -> None:
    out = run("relation_created", related())
    out = run("relation_changed", out, Authority().answer(request_of(out)), remote_unit=0)

    run("relation_broken", out)

    assert issuer(machine) == "CN=Tipping Point"
    assert not (state_of(machine) / "page/given.key").exists()


def test_a_certificate_of_the_secret_goes_before_that_of_the_relation(machine: Directory) -> None:
    from tippingpoint.util.key_pair import make_pair

    own, key = make_pair("a page", serves=["192.0.2.0"])
    secret = testing.Secret(
        {"token": "correct-horse-battery-staple", "certificate": own.decode(), "private-key": key.decode()},
        owner=None,
    )
    state = dataclasses.replace(related(), config={"page-token": secret.id}, secrets=[secret])

    out = run("relation_created", state)
    run("relation_changed", out, Authority().answer(request_of(out)), remote_unit=0)

    assert issuer(machine) == "CN=a page"
