"""What is accepted as the way to a cluster, and in which words the rest is refused."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.certificates import make_certificates
from tippingpoint.errors import UserError
from tippingpoint.plan.read import parse_plan
from tippingpoint.rundir.manifest import Manifest, TargetEntry
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.targets.pacemaker.access import PORT, access
from tippingpoint.targets.pacemaker.ledger import PacemakerEntry
from tippingpoint.targets.pacemaker.plan import PacemakerTarget
from tippingpoint.targets.pacemaker.secret import SECRET
from tippingpoint.targets.secret import PLACE

KNOWN: dict[str, Any] = {"addresses": ["10.0.0.1", "10.0.0.2"], "user": "hacluster", "password": "s3cret"}


def target(directory: Path, mode: int = 0o600, tls: str = "anonymous", **changed: Any) -> PacemakerTarget:
    path = directory / "credentials.yaml"
    path.touch(mode)
    path.chmod(mode)
    known = {name: value for name, value in {**KNOWN, **changed}.items() if value is not None}
    path.write_text(yaml.safe_dump(known))
    return PacemakerTarget.model_validate({"kind": "pacemaker", "credentials": path, "tls": tls})


def pems(directory: Path) -> dict[str, str]:
    made = make_certificates(directory, "tippingpoint")
    texts = {"ca": made.ca, "cert": made.client_cert, "key": made.client_key}
    return {name: path.read_text() for name, path in texts.items()}


def test_the_port_of_pacemakers_documents_is_the_usual_one(tmp_path: Path) -> None:
    found = access(target(tmp_path))
    assert (found.addresses, found.port, found.user) == (["10.0.0.1", "10.0.0.2"], PORT, "hacluster")
    assert "s3cret" not in repr(found)


def test_certificates_are_verified(tmp_path: Path) -> None:
    found = access(target(tmp_path, tls="verified", **pems(tmp_path)))
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert found.tls.check_hostname


def test_anonymous_tls_is_refused_unless_the_plan_allows_it(tmp_path: Path) -> None:
    with pytest.raises(UserError) as problem:
        access(target(tmp_path, tls="verified"))
    assert str(problem.value) == (
        "target.tls: verified, and the credentials have no `ca`: expected a `ca`, or tls: anonymous (on a private "
        "network: a man in the middle can read the password)"
    )
    assert access(target(tmp_path)).tls.verify_mode is ssl.CERT_NONE


def test_certificates_are_not_thrown_away_for_anonymous_tls(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^target\.tls: anonymous: expected verified"):
        access(target(tmp_path, **pems(tmp_path)))


@pytest.mark.parametrize(
    "changed",
    [
        {"addresses": None},
        {"addresses": []},
        {"addresses": "10.0.0.1"},
        {"addresses": [""]},
        {"port": 0},
        {"port": "9898"},
        {"port": 65536},
        {"user": None},
        {"password": None},
        {"password": 5},
        {"passwort": "x"},
    ],
)
def test_an_incomplete_file_is_refused_without_its_content(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(
        UserError, match="expected a YAML file with `addresses`, `user`, `password`"
    ) as problem:
        access(target(tmp_path, **changed))
    assert "s3cret" not in str(problem.value)


@pytest.mark.parametrize("changed", [{"ca": "no PEM"}, {"key": "no PEM"}, {"key": None}, {"cert": None}])
def test_unusable_pem_texts_are_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"^target\.credentials"):
        access(target(tmp_path, tls="verified", **{**pems(tmp_path), **changed}))


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="mode 0600"):
        access(target(tmp_path, mode=0o640))


def test_a_plan_without_credentials_is_refused() -> None:
    with pytest.raises(UserError, match=r"^target\.credentials: none"):
        access(PacemakerTarget(kind="pacemaker"))


def test_thresholds_on_what_is_read_back_are_for_targets_that_read_back() -> None:
    text = "name: a\ntarget: {{kind: {kind}}}\nstages: [{{leases: 1}}]\nthresholds: [{{operation: visible, p99: 1s}}]"
    assert parse_plan(text.format(kind="pacemaker")).thresholds[0].operation == "visible"
    with pytest.raises(UserError, match="visible: expected one of claim, extend"):
        parse_plan(text.format(kind="etcd"))


def test_a_ledger_names_only_what_its_run_made(tmp_path: Path) -> None:
    manifest = Manifest.model_construct(id="20261123-a", target=TargetEntry(kind="pacemaker", version=""))
    ours = PacemakerEntry(
        run="20261123-a", prefix=name_prefix("20261123-a"), target=PacemakerTarget(kind="pacemaker")
    )
    assert ours.own(tmp_path, manifest) == ours
    with pytest.raises(UserError, match="expected what run 20261123-a made, named tp"):
        ours.model_copy(update={"prefix": "cib-bootstrap"}).own(tmp_path, manifest)


def test_a_secret_becomes_a_file_of_credentials(tmp_path: Path) -> None:
    content = {"addresses": "10.0.0.1, 10.0.0.2", "user": "hacluster", "password": "s3cret", "port": "9899"}
    found = SECRET.reached({**content, "tls": "anonymous"}, 2)
    assert found.fields == {"credentials": f"{PLACE}/pacemaker.yaml", "tls": "anonymous"}
    assert found.address == "10.0.0.1"
    path = tmp_path / "pacemaker.yaml"
    path.touch(0o600)
    path.write_text(found.files["pacemaker.yaml"])
    SECRET.read(
        PacemakerTarget(kind="pacemaker", credentials=path, tls="anonymous"), {"pacemaker.yaml": path}
    )
    assert access(PacemakerTarget(kind="pacemaker", credentials=path, tls="anonymous")).port == 9899


@pytest.mark.parametrize(("key", "value"), [("port", "many"), ("port", "70000"), ("tls", "no")])
def test_a_secret_that_is_wrong_is_refused_by_its_key(key: str, value: str) -> None:
    content = {"addresses": "10.0.0.1", "user": "hacluster", "password": "s3cret"}
    with pytest.raises(UserError) as problem:
        SECRET.reached({**content, key: value}, 1)
    assert problem.value.field == key
