"""Where an OpenStack is and who we are there, from a clouds.yaml: each mistake is one line, and no secret is shown."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lab.certificates import make_certificates
from tests.examples import examples
from tippingpoint.errors import UserError
from tippingpoint.targets.openstack.access import CloudAccess, from_clouds
from tippingpoint.targets.openstack.clouds import clouds_file
from tippingpoint.targets.openstack.plan import OpenstackTarget

SECRET = "hush-hush"
PASSWORD: dict[str, Any] = {
    "auth": {
        "auth_url": "https://cloud.example:5000",
        "username": "ann",
        "password": SECRET,
        "project_name": "shop",
        "user_domain_name": "Default",
        "project_domain_id": "default",
    },
    "region_name": "RegionOne",
}
APPLICATION: dict[str, Any] = {
    "auth_type": "v3applicationcredential",
    "auth": {
        "auth_url": "https://cloud.example:5000/v3/",
        "application_credential_id": "abc",
        "application_credential_secret": SECRET,
    },
    "interface": "internal",
}


def written(directory: Path, content: object, mode: int = 0o600) -> Path:
    path = directory / "clouds.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), encoding="utf-8")
    path.chmod(mode)
    return path


def read(directory: Path, cloud: object, **fields: Any) -> CloudAccess:
    path = written(directory, {"clouds": {"only": cloud}})
    return from_clouds(OpenstackTarget(kind="openstack", credentials=path, **fields))


def refusal(directory: Path, cloud: object, **fields: Any) -> str:
    with pytest.raises(UserError) as refused:
        read(directory, cloud, **fields)
    message = str(refused.value)
    assert "\n" not in message
    assert SECRET not in message
    return message


def without(cloud: dict[str, Any], *path: str) -> dict[str, Any]:
    """The cloud without one of its values."""
    first, *rest = path
    if not rest:
        return {key: value for key, value in cloud.items() if key != first}
    return {**cloud, first: without(cloud[first], *rest)}


def with_auth(cloud: dict[str, Any], **changes: object) -> dict[str, Any]:
    return {**cloud, "auth": {**cloud["auth"], **changes}}


def test_a_password_is_shown_for_a_project(tmp_path: Path) -> None:
    access = read(tmp_path, PASSWORD)
    assert access.auth_url == "https://cloud.example:5000/v3"
    assert access.identity["password"]["user"] == {
        "password": SECRET,
        "name": "ann",
        "domain": {"name": "Default"},
    }
    assert access.scope == {"project": {"name": "shop", "domain": {"id": "default"}}}
    assert (access.name, access.region, access.interface, access.ca) == ("only", "RegionOne", "public", None)


def test_an_application_credential_has_its_own_project(tmp_path: Path) -> None:
    access = read(tmp_path, APPLICATION)
    assert access.auth_url == "https://cloud.example:5000/v3"
    assert access.identity["methods"] == ["application_credential"]
    assert access.scope is None
    assert access.interface == "internal"


def test_a_secret_is_in_no_text_of_the_access(tmp_path: Path) -> None:
    assert SECRET not in repr(read(tmp_path, PASSWORD))
    assert SECRET not in repr(read(tmp_path, APPLICATION))


def test_the_plan_says_more_than_the_cloud(tmp_path: Path) -> None:
    access = read(tmp_path, PASSWORD, region="North", interface="admin")
    assert (access.region, access.interface) == ("North", "admin")


@pytest.mark.parametrize(
    ("cloud", "line"),
    [
        (without(PASSWORD, "auth"), "clouds.only.auth.auth_url: missing: expected http"),
        ("x", "clouds.only.auth: missing"),
        (without(PASSWORD, "auth", "auth_url"), "auth.auth_url: missing: expected http(s)://host:port/v3"),
        (with_auth(PASSWORD, auth_url="https://[::1"), "auth.auth_url: unusable"),
        (with_auth(PASSWORD, auth_url="https://cloud:port"), "auth.auth_url: unusable"),
        (with_auth(PASSWORD, auth_url="cloud:5000"), "auth.auth_url: unusable"),
        (with_auth(PASSWORD, auth_url=f"https://a:{SECRET}@c:5000"), "auth.auth_url: with a user in it"),
        (without(PASSWORD, "auth", "password"), "auth.password: missing"),
        (without(PASSWORD, "auth", "username"), "auth.username: missing: expected a name, or user_id"),
        (without(PASSWORD, "auth", "project_name"), "auth.project_name: missing"),
        (with_auth(PASSWORD, password=True), "auth.password: not a text: expected a text"),
        (without(APPLICATION, "auth", "application_credential_secret"), "application_credential_secret: missing"),
        ({**PASSWORD, "auth_type": "v3oidcpassword"}, "auth_type: v3oidcpassword: expected one of password"),
        ({**PASSWORD, "verify": False}, "verify: false: expected TLS that is verified"),
        ({**PASSWORD, "insecure": True}, "insecure: true: expected TLS that is verified"),
        ({**PASSWORD, "interface": "secret"}, "interface: secret: expected one of public, internal, admin"),
        ({**PASSWORD, "cacert": "nowhere.pem"}, "nowhere.pem: expected a PEM file with an authority"),
    ],
)  # fmt: skip
def test_what_is_missing_or_unusable_is_one_line(tmp_path: Path, cloud: object, line: str) -> None:
    assert line in refusal(tmp_path, cloud)


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, {"clouds": {"only": PASSWORD}}, mode=0o640)
    with pytest.raises(UserError, match="mode 0600"):
        from_clouds(OpenstackTarget(kind="openstack", credentials=path))


@pytest.mark.parametrize("content", ["", "[]", "clouds: 7", "clouds: {}", "a: [", "\x00"])
def test_what_is_no_clouds_file_is_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(UserError, match=r"clouds\.yaml"):
        from_clouds(OpenstackTarget(kind="openstack", credentials=written(tmp_path, content)))


VALUES = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=12) | st.just("https://c/v3") | st.just([])
)
KEYS = st.sampled_from(
    [
        "auth_url",
        "username",
        "password",
        "project_name",
        "user_domain_id",
        "user_id",
        "project_id",
        "domain_name",
        "application_credential_id",
        "application_credential_secret",
    ]
)
ABOVE = st.sampled_from(
    ["auth_type", "region_name", "interface", "endpoint_type", "cacert", "verify", "insecure"]
)


@examples(200)
@given(auth=st.dictionaries(KEYS, VALUES) | VALUES, above=st.dictionaries(ABOVE, VALUES))
def test_any_cloud_is_read_or_refused(tmp_path: Path, auth: object, above: dict[str, object]) -> None:
    told = "https://c/v3"
    with contextlib.suppress(UserError):
        told = read(tmp_path, {**above, "auth": auth}).auth_url
    assert told.endswith("/v3")


def test_of_several_clouds_one_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OS_CLOUD", raising=False)
    path = written(tmp_path, {"clouds": {"north": PASSWORD, "south": APPLICATION}})
    with pytest.raises(UserError, match=r"target\.cloud: missing: expected one of north, south"):
        from_clouds(OpenstackTarget(kind="openstack", credentials=path))
    with pytest.raises(UserError, match=r"target\.cloud: west: expected one of north, south"):
        from_clouds(OpenstackTarget(kind="openstack", credentials=path, cloud="west"))
    assert from_clouds(OpenstackTarget(kind="openstack", credentials=path, cloud="south")).name == "south"
    monkeypatch.setenv("OS_CLOUD", "north")
    assert from_clouds(OpenstackTarget(kind="openstack", credentials=path)).name == "north"


def test_the_environment_may_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "mine.yaml"))
    assert clouds_file() == tmp_path / "mine.yaml"


def test_an_authority_is_found_beside_the_file(tmp_path: Path) -> None:
    made = make_certificates(tmp_path, "ann")
    access = read(tmp_path, {**PASSWORD, "cacert": made.ca.name})
    assert access.ca == made.ca
    assert access.tls().check_hostname
