"""Where the Juju controller is and who we are: the juju client's store, a credentials file, an agent.conf."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tippingpoint.errors import UserError
from tippingpoint.targets.juju.api.access import (
    ControllerAccess,
    from_agent_conf,
    from_file,
    from_store,
    store_directory,
)
from tippingpoint.util.secret_files import LARGEST_FILE

CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
SECRET = "a-password-nobody-may-see"
CONTROLLERS = {
    "controllers": {
        "small": {"uuid": "u1", "api-endpoints": ["192.0.2.10:17070", "[2001:db8::1]:17070"], "ca-cert": CA},
        "other": {"uuid": "u2", "api-endpoints": ["juju.example:443"], "ca-cert": CA},
        "bare": {"uuid": "u3", "api-endpoints": ["192.0.2.11:17070"], "ca-cert": ""},
        "macaroons": {"uuid": "u4", "api-endpoints": ["192.0.2.12:17070"], "ca-cert": CA},
        "stranger": {"uuid": "u5", "api-endpoints": ["192.0.2.13:17070"], "ca-cert": CA},
    },
    "current-controller": "small",
}
ACCOUNTS = {
    "controllers": {
        "small": {"user": "admin", "password": SECRET, "last-known-access": "superuser"},
        "other": {"user": "bob@external", "password": SECRET},
        "bare": {"user": "admin", "password": SECRET},
        "macaroons": {"user": "carol"},
    }
}
AGENT = {
    "tag": "unit-app-3",
    "model": "model-5c1b3d8e-4a47-4c9c-8e7c-0d1f4f1e5d11",
    "apiaddresses": ["192.0.2.10:17070"],
    "cacert": CA,
    "apipassword": SECRET,
    "oldpassword": "older",
    "nonce": "",
}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A juju client's store that JUJU_DATA points to."""
    directory = tmp_path / "store"
    directory.mkdir()
    written(directory / "controllers.yaml", CONTROLLERS)
    written(directory / "accounts.yaml", ACCOUNTS)
    monkeypatch.setenv("JUJU_DATA", str(directory))
    return directory


def written(path: Path, content: object, mode: int = 0o600) -> Path:
    text = content if isinstance(content, str) else yaml.safe_dump(content)
    path.write_text(text)
    path.chmod(mode)
    return path


def credentials(**changed: Any) -> dict[str, Any]:
    whole = {"addresses": ["192.0.2.10:17070"], "ca": CA, "user": "admin", "password": SECRET}
    return {name: value for name, value in (whole | changed).items() if value is not None}


def refusal(error: pytest.ExceptionInfo[UserError]) -> str:
    """The refusal's text, which is one line and shows no secret."""
    text = str(error.value)
    assert "\n" not in text
    assert SECRET not in text
    return text


def test_a_controller_of_the_store_is_found_by_name(store: Path) -> None:
    access = from_store("other", store_directory())
    assert access.controller_name == "other"
    assert access.addresses == ("juju.example:443",)
    assert access.ca == CA
    assert (access.user.tag, access.user.password) == ("user-bob@external", SECRET)
    assert access.user_name == "bob@external"


def test_without_a_name_the_current_controller_is_taken(store: Path) -> None:
    access = from_store(None, store_directory())
    assert access.controller_name == "small"
    assert access.addresses == ("192.0.2.10:17070", "[2001:db8::1]:17070")
    assert access.user.tag == "user-admin"


def test_without_juju_data_the_store_is_where_the_client_has_it(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given no JUJU_DATA, when the store is read, then $XDG_DATA_HOME/juju and ~/.local/share/juju are the places."""
    monkeypatch.delenv("JUJU_DATA")
    home = tmp_path / "home"
    (home / ".local" / "share").mkdir(parents=True)
    (home / ".local" / "share" / "juju").symlink_to(store)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert from_store("other", store_directory()).controller_name == "other"
    monkeypatch.setenv("XDG_DATA_HOME", str(home / ".local" / "share"))
    assert from_store("other", store_directory()).controller_name == "other"


@pytest.mark.parametrize(
    ("controller", "accepted"),
    [
        ("nowhere", "one of bare, macaroons, other, small, stranger"),
        ("bare", "ca-cert"),
        ("stranger", "juju login -c stranger"),
        ("macaroons", "juju change-user-password"),
    ],
)
def test_a_controller_that_cannot_be_used_is_refused_in_one_line(
    store: Path, controller: str, accepted: str
) -> None:
    with pytest.raises(UserError) as error:
        from_store(controller, store_directory())
    text = refusal(error)
    assert text.startswith(f"target.controller: {controller}: expected ")
    assert accepted in text


def test_a_store_without_a_current_controller_asks_for_a_name(store: Path) -> None:
    written(store / "controllers.yaml", {"controllers": CONTROLLERS["controllers"]})
    with pytest.raises(UserError, match="a controller's name"):
        from_store(None, store_directory())


def test_no_store_at_all_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUJU_DATA", str(tmp_path / "none"))
    with pytest.raises(
        UserError, match=r"controllers\.yaml: expected the juju client's store .*No such file"
    ):
        from_store("small", store_directory())


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_passwords_that_others_could_read_are_refused(store: Path, tmp_path: Path, mode: int) -> None:
    """Given a file with a password that is not 0600, when it is read, then it is refused before its content is."""
    (store / "accounts.yaml").chmod(mode)
    own = written(tmp_path / "own.yaml", credentials(), mode)
    agent = written(tmp_path / "agent.conf", AGENT, mode)
    for attempt in (
        lambda: from_store("small", store_directory()),
        lambda: from_file(own),
        lambda: from_agent_conf(agent),
    ):
        with pytest.raises(UserError, match="only its owner can read") as error:
            attempt()
        refusal(error)


def test_a_credentials_file_says_where_and_who(tmp_path: Path) -> None:
    access = from_file(written(tmp_path / "own.yaml", credentials()))
    assert access.controller_name == "192.0.2.10:17070"
    assert (access.ca, access.user.tag, access.user.password) == (CA, "user-admin", SECRET)


def test_the_ca_may_be_a_file_beside_the_credentials(tmp_path: Path) -> None:
    written(tmp_path / "ca.pem", CA, 0o644)
    assert from_file(written(tmp_path / "own.yaml", credentials(ca=None, **{"ca-file": "ca.pem"}))).ca == CA


@pytest.mark.parametrize(
    "content",
    [
        credentials(addresses=[]),
        credentials(addresses="192.0.2.10:17070"),
        credentials(addresses=["192.0.2.10"]),
        credentials(addresses=["192.0.2.10:0"]),
        credentials(addresses=["192.0.2.10:70000"]),
        credentials(addresses=["2001:db8::1:17070"]),
        credentials(addresses=["https://192.0.2.10:17070"]),
        credentials(addresses=[17070]),
        credentials(ca=None),
        credentials(ca="not a certificate"),
        credentials(ca=7),
        credentials(**{"ca-file": "ca.pem"}),
        credentials(ca=None, **{"ca-file": "missing.pem"}),
        credentials(ca=None, **{"ca-file": 7}),
        credentials() | {7: "a key that is no text", "x": 1},
        credentials(user=None),
        credentials(user=7),
        credentials(user=""),
        credentials(password=None),
        credentials(password=12345678),
        credentials(model="loads"),
        [SECRET],
        SECRET,
        "",
        f"password: {SECRET}\n: [",
        f"password: {SECRET}\x00",
        f"a: &a [{SECRET}]\nb: *c",
    ],
)
def test_a_garbled_credentials_file_is_refused_without_showing_it(tmp_path: Path, content: object) -> None:
    path = written(tmp_path / "own.yaml", content)
    with pytest.raises(UserError) as error:
        from_file(path)
    assert refusal(error).startswith("target.credentials: ")


@pytest.mark.parametrize("name", ["controllers.yaml", "accounts.yaml"])
@pytest.mark.parametrize("content", [b"\xff\xfe", b"[", b"- 1\n", b"a: " + b"x" * LARGEST_FILE])
def test_a_garbled_store_is_refused_in_one_line(store: Path, name: str, content: bytes) -> None:
    (store / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        from_store("small", store_directory())
    assert name in refusal(error)


def test_a_store_may_have_names_that_yaml_takes_for_numbers(store: Path) -> None:
    (store / "controllers.yaml").write_text(yaml.safe_dump({"controllers": {7: {}, "small": {}}}))
    with pytest.raises(UserError) as error:
        from_store("other", store_directory())
    assert "expected one of 7, small" in refusal(error)


def test_an_agent_conf_gives_the_unit_and_its_model(tmp_path: Path) -> None:
    path = written(tmp_path / "agent.conf", "# format 2.0\n" + yaml.safe_dump(AGENT))
    before = path.read_bytes()
    access = from_agent_conf(path)
    assert access.addresses == ("192.0.2.10:17070",)
    assert access.model == "5c1b3d8e-4a47-4c9c-8e7c-0d1f4f1e5d11"
    assert (access.agent.tag, access.agent.password, access.agent.nonce) == ("unit-app-3", SECRET, "")
    assert path.read_bytes() == before


def test_an_agent_that_has_only_its_first_password_uses_that(tmp_path: Path) -> None:
    agent = AGENT | {"apipassword": "", "oldpassword": SECRET, "nonce": "machine-0:abc"}
    access = from_agent_conf(written(tmp_path / "agent.conf", agent))
    assert (access.agent.password, access.agent.nonce) == (SECRET, "machine-0:abc")


@pytest.mark.parametrize(
    "changed",
    [
        {"tag": "machine-0"},
        {"tag": 3},
        {"model": "5c1b3d8e"},
        {"apiaddresses": []},
        {"cacert": ""},
        {"apipassword": "", "oldpassword": ""},
        {"nonce": 3},
    ],
)
def test_an_agent_conf_that_cannot_be_used_is_refused(tmp_path: Path, changed: dict[str, object]) -> None:
    with pytest.raises(UserError, match=r"expected a unit's agent\.conf") as error:
        from_agent_conf(written(tmp_path / "agent.conf", AGENT | changed))
    refusal(error)


@given(text=st.text(max_size=300))
def test_whatever_a_file_holds_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.touch(0o600)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    for read in (from_file, from_agent_conf):
        with pytest.raises(UserError) as error:
            read(path)
        refusal(error)


def test_nobody_sees_the_password_of_an_access(store: Path, tmp_path: Path) -> None:
    access: list[object] = [
        from_store("small", store_directory()),
        from_agent_conf(written(tmp_path / "agent.conf", AGENT)),
    ]
    assert isinstance(access[0], ControllerAccess)
    for one in access:
        assert SECRET not in repr(one)
        assert SECRET not in str(one)
