"""A clouds.yaml is read as OpenStack's own clients read it: what they merge, where they look, and how they spell.

The expected values are openstacksdk 4.22's, of openstack.config and the plugins of keystoneauth1 5.18.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tippingpoint.errors import UserError
from tippingpoint.targets.openstack.access import CloudAccess, from_clouds
from tippingpoint.targets.openstack.clouds import clouds_file
from tippingpoint.targets.openstack.plan import OpenstackTarget
from tippingpoint.targets.openstack.tokens import read_token

URL = "https://cloud.example:5000/v3"
LOGIN = {"auth_url": URL, "username": "ann", "password": "hush", "project_name": "shop"}
DOMAINS = {"user_domain_name": "corp", "project_domain_name": "corp"}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clients' files of this machine and of its user are not looked at."""
    for name in ("OS_CLOUD", "OS_CLIENT_CONFIG_FILE", "OS_CLIENT_SECURE_FILE", "SNAP_REAL_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home/config"))
    monkeypatch.chdir(tmp_path / "work")


def write(path: Path, document: object, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False))
    path.chmod(mode)
    return path


def read(directory: Path, written: object, **fields: Any) -> CloudAccess:
    path = write(
        directory / "clouds.yaml", {"clouds": {"c": written}} if isinstance(written, dict) else written
    )
    return from_clouds(OpenstackTarget(kind="openstack", credentials=path, **fields))


def who(access: CloudAccess) -> dict[str, Any]:
    user: dict[str, Any] = access.identity["password"]["user"]
    return user


def test_a_domain_beside_auth_is_the_users(tmp_path: Path) -> None:
    access = read(tmp_path, {"auth": LOGIN, **DOMAINS})
    assert who(access)["domain"] == {"name": "corp"}
    assert access.scope == {"project": {"name": "shop", "domain": {"name": "corp"}}}


@examples(200)
@given(
    above=st.sets(st.sampled_from([*LOGIN, *DOMAINS])), hyphens=st.sets(st.sampled_from([*LOGIN, *DOMAINS]))
)
def test_a_login_may_stand_in_auth_or_beside_it(
    tmp_path_factory: pytest.TempPathFactory, above: set[str], hyphens: set[str]
) -> None:
    # given a login, parts of which are beside `auth`, or are written with hyphens
    directory = tmp_path_factory.mktemp("c")
    cloud: dict[str, Any] = {}
    auth: dict[str, Any] = {}
    for name, value in (LOGIN | DOMAINS).items():
        (cloud if name in above else auth)[name.replace("_", "-") if name in hyphens else name] = value
    # when it is read, then it is the login with everything in `auth`
    together = read(directory, {"auth": LOGIN | DOMAINS})
    assert read(directory, {**cloud, **({"auth": auth} if auth else {})}) == together


@pytest.mark.parametrize(
    ("text", "password", "project"),
    [
        ("password: 12345678, project_name: 77", "12345678", "77"),
        ("password: 0123, project_name: 1_000", "83", "1000"),  # YAML's octal, as the clients read it
        ("password: 1.50, project_name: '0123'", "1.5", "0123"),
        ("password: 1e5, tenant_name: old", "1e5", "old"),
    ],
)
def test_what_yaml_reads_as_a_number_is_a_text(
    tmp_path: Path, text: str, password: str, project: str
) -> None:
    access = read(tmp_path, f"clouds: {{c: {{auth: {{auth_url: '{URL}', username: ann, {text}}}}}}}")
    assert (who(access)["password"], (access.scope or {})["project"]["name"]) == (password, project)


@pytest.mark.parametrize("value", ["yes", "2024-01-01", "[a]"])
def test_what_is_no_text_in_yaml_is_refused_in_one_line(tmp_path: Path, value: str) -> None:
    text = f"clouds: {{c: {{auth: {{auth_url: '{URL}', username: a, project_name: p, password: {value}}}}}}}"
    with pytest.raises(UserError, match=r"^clouds\.c\.auth\.password: not a text: expected a text"):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("more", "user", "project"),
    [
        ({}, {"id": "default"}, {"id": "default"}),
        ({"domain_id": "d"}, {"id": "d"}, {"id": "d"}),
        ({"domain_name": "d"}, {"name": "d"}, {"name": "d"}),
        ({"domain_name": "d", "user_domain_name": "u"}, {"name": "u"}, {"name": "d"}),
        ({"domain_id": "d", "user_domain_name": "u"}, {"id": "d"}, {"id": "d"}),
        ({"default_domain_name": "d"}, {"name": "d"}, {"name": "d"}),
        ({"default_domain_id": "d", "project_domain_id": "p"}, {"id": "d"}, {"id": "p"}),
    ],
)
def test_domains_are_those_that_the_clients_take(
    tmp_path: Path, more: dict[str, str], user: dict[str, str], project: dict[str, str]
) -> None:
    for access in (read(tmp_path, {"auth": LOGIN | more}), read(tmp_path, {"auth": LOGIN, **more})):
        assert who(access)["domain"] == user
        assert (access.scope or {})["project"]["domain"] == project


@pytest.mark.parametrize(
    ("cloud", "identity", "scope"),
    [
        (
            {"auth": {"auth_url": URL, "username": "ann", "password": "hush", "system_scope": "all"}},
            {"methods": ["password"]},
            {"system": {"all": True}},
        ),
        (
            {"auth": {"auth_url": URL, "user_id": "u", "password": "hush", "domain_id": "d"}},
            {"password": {"user": {"id": "u", "password": "hush"}}},
            {"domain": {"id": "d"}},
        ),
        (
            {"auth_type": "v3token", "auth": {"auth_url": URL, "token": "t", "project_id": 7}},
            {"methods": ["token"], "token": {"id": "t"}},
            {"project": {"id": "7"}},
        ),
        (
            {"auth_type": "token", "auth_token": "t", "auth": {"auth_url": URL, "trust_id": "x"}},
            {"methods": ["token"], "token": {"id": "t"}},
            {"OS-TRUST:trust": {"id": "x"}},
        ),
        (
            {
                "auth_type": "v3applicationcredential",
                "auth": {
                    "auth_url": URL,
                    "application_credential_name": "n",
                    "application_credential_secret": 99,
                    "username": "ann",
                    "user_domain_id": "d",
                },
            },
            {
                "methods": ["application_credential"],
                "application_credential": {
                    "name": "n",
                    "secret": "99",
                    "user": {"name": "ann", "domain": {"id": "d"}},
                },
            },
            None,
        ),
        ({"auth_type": "v3password", "auth": LOGIN | {"project_id": "p"}}, {}, {"project": {"id": "p"}}),
    ],
)
def test_logins_of_every_supported_kind(
    tmp_path: Path, cloud: dict[str, Any], identity: dict[str, Any], scope: dict[str, Any] | None
) -> None:
    access = read(tmp_path, cloud)
    assert {**access.identity, **identity} == access.identity
    assert access.scope == scope


@pytest.mark.parametrize(
    ("cloud", "line"),
    [
        ({"auth": LOGIN | {"system_scope": "all"}}, "clouds.c.auth: for project and system: expected a token for one"),
        ({"auth": LOGIN | {"system_scope": "some"}}, "clouds.c.auth.system_scope: some: expected all"),
        ({"auth": LOGIN, "username": "bob"}, "clouds.c.username: given twice: expected either username or auth."),
        ({"auth": LOGIN, "verify": "no"}, "clouds.c.verify: no: expected TLS that is verified"),
        ({"auth": LOGIN, "insecure": "true"}, "clouds.c.insecure: true: expected TLS that is verified"),
        ({"auth": LOGIN, "compute_region_name": "B"}, "clouds.c.compute_region_name: B: expected the region of the"),
        ({"auth": LOGIN, "image_interface": "admin"}, "clouds.c.image_interface: admin: expected the interface of the"),
        ({"auth": LOGIN, "regions": [{"values": {}}]}, "clouds.c.regions: unusable: expected names, or mappings"),
        ({"auth": LOGIN, "cacert": "/no\0where"}, "clouds.c.cacert: not a path: expected a PEM file"),
        ({"auth": LOGIN | {"auth_url": "https://{region_name}.x"}}, "auth_url: with {region_name}: expected names of"),
        ({"profile": "nowhere", "auth": {"username": "a"}}, "clouds.c.profile: nowhere: expected a profile of a"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_in_one_line(tmp_path: Path, cloud: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as refused:
        read(tmp_path, cloud)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "hush" not in str(refused.value)


def test_the_first_region_counts_and_has_its_own_values(tmp_path: Path) -> None:
    north = {"name": "north", "values": {"interface": "internal", "auth": {"project_name": "there"}}}
    cloud = {"auth": LOGIN, "regions": [north, "south"], "region_name": "elsewhere"}
    access = read(tmp_path, cloud)
    assert (access.region, access.interface) == ("north", "internal")
    assert (access.scope or {})["project"]["name"] == "there"
    access = read(tmp_path, cloud, region="south")
    assert (access.region, access.interface) == ("south", "public")
    assert (access.scope or {})["project"]["name"] == "shop"


@pytest.mark.parametrize(("name", "region"), [("R1,R2", "R1"), (["R1", "R2"], "R1"), (7, "7"), ("R", "R")])
def test_a_region_name_may_be_a_list(tmp_path: Path, name: object, region: str) -> None:
    assert read(tmp_path, {"auth": LOGIN, "region_name": name}).region == region


@pytest.mark.parametrize("chosen", [None, "2024"])
def test_a_cloud_may_have_a_number_for_a_name(tmp_path: Path, chosen: str | None) -> None:
    assert read(tmp_path, yaml.safe_dump({"clouds": {2024: {"auth": LOGIN}}}), cloud=chosen).name == "2024"


def test_an_older_spelling_of_the_interface_counts(tmp_path: Path) -> None:
    cloud = {"auth": LOGIN, "endpoint_type": "internalURL", "interface": "admin"}
    assert read(tmp_path, cloud).interface == "internal"


def test_a_secret_may_be_in_a_file_of_its_own(tmp_path: Path) -> None:
    # given a clouds.yaml for everybody, and a secure.yaml beside it
    public = {name: value for name, value in LOGIN.items() if name != "password"}
    path = write(tmp_path / "clouds.yaml", {"clouds": {"c": {"auth": public}}}, 0o644)
    write(tmp_path / "secure.yaml", {"clouds": {"c": {"auth": {"password": 42}}}})
    # when it is read, then the password is that of the secure.yaml
    target = OpenstackTarget(kind="openstack", credentials=path)
    assert who(from_clouds(target))["password"] == "42"
    # and a secure.yaml that others can read is refused, as a clouds.yaml with a secret in it is
    (tmp_path / "secure.yaml").chmod(0o644)
    with pytest.raises(UserError, match=r"secure\.yaml: expected .*mode 0600"):
        from_clouds(target)


def test_an_empty_secure_file_is_none(tmp_path: Path) -> None:
    write(tmp_path / "secure.yaml", "# nothing yet\n")
    assert who(read(tmp_path, {"auth": LOGIN}))["password"] == "hush"


def test_the_environment_may_name_the_secure_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = write(tmp_path / "other/mine.yaml", {"clouds": {"c": {"auth": {"password": "there"}}}})
    monkeypatch.setenv("OS_CLIENT_SECURE_FILE", str(there))
    assert who(read(tmp_path, {"auth": LOGIN}))["password"] == "there"


def test_a_profile_is_of_a_file_of_public_clouds(tmp_path: Path) -> None:
    profile = {"auth": {"auth_url": URL, "user_domain_name": "corp"}, "region_name": "east"}
    write(tmp_path / "clouds-public.yaml", {"public-clouds": {"corp": profile}}, 0o644)
    login = {name: value for name, value in LOGIN.items() if name != "auth_url"}
    for key in ("profile", "cloud"):
        access = read(tmp_path, {key: "corp", "auth": login})
        assert (access.auth_url, access.region) == (URL, "east")
        assert who(access)["domain"] == {"name": "corp"}


def test_an_address_may_name_the_region(tmp_path: Path) -> None:
    auth = LOGIN | {"auth_url": "https://{region_name}.cloud.example:5000"}
    access = read(tmp_path, {"auth": auth, "regions": ["east", "west"]}, region="west")
    assert access.auth_url == "https://west.cloud.example:5000/v3"


def test_an_endpoint_of_the_cloud_counts_instead_of_the_catalogues(tmp_path: Path) -> None:
    access = read(tmp_path, {"auth": LOGIN, "compute_endpoint_override": "https://nova.example/v2.1/"})
    catalogue = [
        {
            "type": kind,
            "endpoints": [{"interface": "public", "region_id": "R", "url": f"https://{kind}.example"}],
        }
        for kind in ("compute", "network")
    ]
    times = {"issued_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-01T01:00:00Z"}
    token = read_token(access, "t", {"token": {**times, "user": {"id": "u"}, "catalog": catalogue}}, 0.0)
    assert token.endpoints == {"compute": "https://nova.example/v2.1", "network": "https://network.example"}


@pytest.mark.parametrize("place", ["work/clouds.yml", "home/config/openstack/clouds.json"])
def test_the_file_is_found_where_the_clients_find_it(tmp_path: Path, place: str) -> None:
    path = write(tmp_path / place, '{"clouds": {\n\t"c": {"auth": {"auth_url": "https://x/v3"}}}}')
    if path.suffix == ".yml":
        path.write_text("clouds: {c: {}}")
    assert clouds_file().absolute() == path


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(URL),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(max_size=3), some, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(
    [
        *LOGIN,
        *DOMAINS,
        *("auth", "auth_type", "regions", "region_name", "profile", "cloud", "verify", "insecure", "cacert", "cert"),
        *("key", "interface", "endpoint_type", "domain_id", "token", "system_scope", "default_domain"),
        *("compute_endpoint_override", "image_interface"),
    ]
)  # fmt: skip


@examples(300)
@given(
    cloud=st.dictionaries(NAMES, JUNK | st.dictionaries(NAMES, JUNK), max_size=8),
    profile=st.dictionaries(NAMES, JUNK, max_size=4) | JUNK,
)
def test_any_cloud_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, cloud: dict[str, object], profile: object
) -> None:
    directory = tmp_path_factory.mktemp("c")
    write(directory / "clouds-public.yaml", {"public-clouds": {"corp": profile}})
    told = "https://c/v3"
    with contextlib.suppress(UserError):
        told = read(directory, {"profile": "corp", **cloud}).auth_url
    assert told.endswith("/v3")
