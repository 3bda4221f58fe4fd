"""What is accepted as the way to a MAAS, and in which words the rest is refused."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from lab.certificates import make_certificates
from tippingpoint.errors import UserError
from tippingpoint.targets.maas.access import access
from tippingpoint.targets.maas.plan import MaasTarget
from tippingpoint.targets.maas.target import TARGET

KNOWN = {"url": "https://maas.example:5443/MAAS", "api_key": "consumer:token:hush"}


def target(directory: Path, mode: int = 0o600, **changed: Any) -> MaasTarget:
    path = directory / "maas.yaml"
    path.touch(mode)
    path.chmod(mode)
    known = {name: value for name, value in {**KNOWN, **changed}.items() if value is not None}
    path.write_text(yaml.safe_dump(known))
    return MaasTarget(kind="maas", credentials=path)


def test_a_file_with_url_and_key_is_enough(tmp_path: Path) -> None:
    found = access(target(tmp_path))
    assert found.api == "https://maas.example:5443/MAAS/api/2.0/"
    assert "token" not in repr(found)
    assert "hush" not in repr(found)
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert found.tls.check_hostname


@pytest.mark.parametrize(
    "url",
    [
        "http://10.0.0.1:5240",
        "http://10.0.0.1:5240/",
        "http://10.0.0.1:5240/MAAS/",
        "http://10.0.0.1:5240/MAAS/r",
        "http://10.0.0.1:5240/MAAS/api/2.0/",
        "http://10.0.0.1:5240/MAAS/api/2.0",
        "http://10.0.0.1:5240/MAAS/api/1.0/",
        "http://10.0.0.1:5240/MAAS/r/machines",
        "http://10.0.0.1:5240/MAAS/r/machines?status=%3Dready",
        "http://10.0.0.1:5240/MAAS/l/",
        "http://10.0.0.1:5240/MAAS/l/machine/abc",
        "http://10.0.0.1:5240/MAAS/#/machines",
        "http://10.0.0.1:5240/MAAS/accounts/login/?next=/MAAS/r/",
        "http://10.0.0.1:5240//MAAS//",
        "http://10.0.0.1:5240/api/2.0/",
        "http://10.0.0.1:5240/r/machines",
        " http://10.0.0.1:5240/MAAS/\n",
    ],
)
def test_every_address_that_people_have_of_a_region_leads_to_its_api(tmp_path: Path, url: str) -> None:
    assert access(target(tmp_path, url=url)).api == "http://10.0.0.1:5240/MAAS/api/2.0/"


@pytest.mark.parametrize("page", ["", "/", "/r/machines", "/l", "/api/1.0/", "/api/2.0/machines/"])
@pytest.mark.parametrize("place", ["/MAAS", "/site/MAAS", "/region", "/MAAS-test"])
def test_a_region_behind_a_proxy_keeps_its_path(tmp_path: Path, place: str, page: str) -> None:
    assert (
        access(target(tmp_path, url=f"https://[::1]:5443{place}{page}")).url == f"https://[::1]:5443{place}"
    )


def test_each_call_is_signed_by_the_key_with_a_nonce_of_its_own(tmp_path: Path) -> None:
    """Given a key, then the signature is its last part after an empty secret of the consumer (RFC 5849, 3.4.4)."""
    found = access(target(tmp_path, api_key="c0n:t0k:s3c\n"))
    headers = [found.authorization() for _ in range(100)]
    signed = [dict(re.findall(r'(\w+)="([^"]*)"', header)) for header in headers]
    assert headers[0].startswith("OAuth ")
    assert signed[0]["oauth_consumer_key"] == "c0n"
    assert signed[0]["oauth_token"] == "t0k"
    assert signed[0]["oauth_signature"] == "%26s3c"
    assert signed[0]["oauth_signature_method"] == "PLAINTEXT"
    assert len({each["oauth_nonce"] for each in signed}) == 100


def test_a_private_authority_replaces_the_systems(tmp_path: Path) -> None:
    made = make_certificates(tmp_path, "maas")
    found = access(target(tmp_path, ca=made.ca.read_text()))
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    assert len(found.tls.get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"url": None}, "url: missing: expected http(s)://HOST:PORT/MAAS, in target.credentials"),
        (
            {"url": "maas.example"},
            "url: maas.example: expected http(s)://HOST:PORT/MAAS, in target.credentials",
        ),
        (
            {"url": "http://ann:hush@maas/MAAS"},
            "url: with a user in it: expected http(s)://HOST:PORT/MAAS, in target.credentials",
        ),
        (
            {"api_key": "hush:hush"},
            "api_key: 2 parts: expected three parts with colons in between, as `maas apikey --username=USER` shows "
            "them, in target.credentials",
        ),
        (
            {"api_key": None},
            "api_key: missing: expected three parts with colons in between, as `maas apikey --username=USER` shows "
            "them, in target.credentials",
        ),
        (
            {"ca": "hush"},
            "ca: unusable: expected certificates of an authority (PEM), in target.credentials",
        ),
    ],
)
def test_an_unusable_file_is_refused_in_one_line_without_its_secrets(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError) as problem:
        access(target(tmp_path, **changed))
    assert str(problem.value) == said
    assert "hush" not in said


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a file that only its owner can read \(mode 0600\)"):
        access(target(tmp_path, 0o640))


def test_an_unknown_field_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match="with `insecure`: expected a YAML file with `url`, `api_key`, perhaps"
    ):
        access(target(tmp_path, insecure=True))


def test_a_plan_without_a_file_is_told_what_it_has() -> None:
    with pytest.raises(UserError, match=r"target.credentials: none: expected a YAML file with `url`"):
        access(MaasTarget(kind="maas"))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://10.0.0.1:5240/MAAS", "the API key goes to MAAS without TLS and can be read on the way: private"),
        ("http://localhost:5240/MAAS", ""),
        ("https://10.0.0.1:5443/MAAS", ""),
    ],
)  # fmt: skip
def test_a_key_that_can_be_read_on_the_way_is_said(tmp_path: Path, url: str, said: str) -> None:
    danger = TARGET.danger(target(tmp_path, url=url))
    assert danger.startswith(said)
    assert bool(danger) == bool(said)
