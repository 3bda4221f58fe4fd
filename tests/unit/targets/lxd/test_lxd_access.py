"""Where LXD is and who we are there: a remote of the lxc client, a socket, a credentials file."""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.targets.lxd.lxd_files import (
    CLIENT,
    DAY,
    OTHER,
    SERVER,
    configuration,
    credentials,
    that_ends,
    written,
)
from tippingpoint.errors import UserError
from tippingpoint.targets.lxd.access import (
    LxdAccess,
    addresses_of,
    config_directory,
    der,
    fingerprint,
    from_file,
    from_remote,
    from_socket,
    local_socket,
)
from tippingpoint.util.secret_files import LARGEST_FILE


def refused(make: Callable[[], LxdAccess], place: str) -> str:
    """What a refusal says: one line that begins with the plan's field and has no secret in it."""
    with pytest.raises(UserError) as error:
        make()
    text = str(error.value)
    assert "\n" not in text
    assert text.startswith(f"{place}: ")
    for line in CLIENT.key.splitlines()[1:-1]:
        assert line not in text
    return text


@pytest.fixture
def listening(tmp_path: Path) -> Path:
    """The path of a socket."""
    path = tmp_path / "unix.socket"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
    return path


# A remote of the lxc client


def test_a_remote_is_found_by_its_name(tmp_path: Path) -> None:
    other = {"addr": "https://lxd.example:9443", "protocol": "lxd"}
    access = from_remote("other", configuration(tmp_path / "lxc", other=other))
    assert (access.name, access.addresses) == ("other", ("https://lxd.example:9443",))
    assert (access.server_certificate, access.certificate) == (SERVER.certificate, CLIENT.certificate)
    assert (access.key, access.socket) == (CLIENT.key, None)


def test_without_a_name_the_current_remote_is_taken(tmp_path: Path) -> None:
    assert from_remote(None, configuration(tmp_path / "lxc")).name == "cluster"


def test_a_key_is_never_shown(tmp_path: Path) -> None:
    access = from_remote(None, configuration(tmp_path / "lxc"))
    assert CLIENT.key.splitlines()[1] not in repr(access)


@pytest.mark.parametrize("address", ["unix://", "unix:", "unix://{}", "unix:{}"])
def test_a_remote_on_this_machine_is_its_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listening: Path, address: str
) -> None:
    monkeypatch.setenv("LXD_SOCKET", str(listening))
    made = configuration(tmp_path / "lxc", here={"addr": address.format(listening), "public": False})
    access = from_remote("here", made)
    assert (access.socket, access.addresses, access.key) == (listening, (), "")


def test_without_any_configuration_the_local_server_is_the_remote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listening: Path
) -> None:
    """Given no config.yml, when the default remote is asked for, then it is `local`, as lxc has it."""
    monkeypatch.setenv("LXD_SOCKET", str(listening))
    assert from_remote(None, tmp_path / "none").socket == listening


def test_an_unknown_remote_is_refused_with_those_there_are(tmp_path: Path) -> None:
    images = {"addr": "https://images.example", "protocol": "simplestreams", "public": True}
    made = configuration(tmp_path / "lxc", images=images)
    told = refused(lambda: from_remote("nowhere", made), "target.remote")
    assert told == "target.remote: nowhere: expected one of cluster, local (lxc remote list)"


@pytest.mark.parametrize(
    ("remote", "accepted"),
    [
        ({"addr": "https://images.example", "protocol": "simplestreams"}, "image server"),
        ({"addr": "https://192.0.2.9:8443", "protocol": "lxd", "public": True}, "image server"),
        ({"addr": "https://192.0.2.9:8443", "auth_type": "oidc"}, "auth_type tls"),
        ({"addr": "https://192.0.2.9:8443", "auth_type": "candid"}, "auth_type tls"),
        ({"addr": "http://192.0.2.9:8443"}, "addr https://host:port"),
        ({"addr": "https://192.0.2.9:port"}, "addr https://host:port"),
        ({"addr": "https://user@192.0.2.9:8443"}, "addr https://host:port"),
        ({"addr": 7}, "addr https://host:port"),
        ({}, "addr https://host:port"),
        ("text", "addr https://host:port"),
        (None, "addr https://host:port"),
    ],
)
def test_a_remote_that_cannot_be_used_is_refused(tmp_path: Path, remote: Any, accepted: str) -> None:
    made = configuration(tmp_path / "lxc", odd=remote)
    told = refused(lambda: from_remote("odd", made), "target.remote")
    assert told.startswith("target.remote: odd: expected ")
    assert accepted in told


@pytest.mark.parametrize(
    ("missing", "accepted"),
    [
        ("client.crt", "the lxc client's certificate (No such file or directory)"),
        ("client.key", "the lxc client's key (No such file or directory)"),
    ],
)
def test_a_file_that_is_missing_is_named(tmp_path: Path, missing: str, accepted: str) -> None:
    made = configuration(tmp_path / "lxc")
    (made / missing).unlink()
    told = refused(lambda: from_remote(None, made), "target.remote")
    assert str(made / missing) in told
    assert accepted in told


# As the clients read their own file: lxc/config of LXD 6, shared/cliconfig of Incus 7


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remotes of this machine are not looked at."""
    for name in ("LXC_REMOTE", "INCUS_REMOTE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("LXD_GLOBAL_CONF", "INCUS_GLOBAL_CONF"):
        monkeypatch.setenv(name, str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("addr", "last", "addresses"),
    [
        ("https://a:8443,https://b:8443", None, ("https://a:8443", "https://b:8443")),
        ("https://a:8443, https://b:8443", "https://b:8443", ("https://b:8443", "https://a:8443")),
        ("https://a:1,https://b:2,https://[::1]:3", "https://b:2", ("https://b:2", "https://[::1]:3", "https://a:1")),
        ("https://a:8443,https://b:8443", "https://gone:8443", ("https://a:8443", "https://b:8443")),
        ("https://a", None, ("https://a:443",)),
        ("https://a:8443,unix:///run/x", None, ("https://a:8443",)),
    ],
)  # fmt: skip
def test_a_remote_may_have_several_addresses(
    tmp_path: Path, addr: str, last: str | None, addresses: tuple[str, ...]
) -> None:
    remote = {"addr": addr, "protocol": "incus"} | ({"last_working_address": last} if last else {})
    assert from_remote("far", configuration(tmp_path / "incus", far=remote)).addresses == addresses


@pytest.mark.parametrize(
    "addr", ["https://a:8443,http://b:8443", "https://a:8443,b:8443", ",", "https://a:x,"]
)
def test_addresses_that_are_not_https_are_refused(tmp_path: Path, addr: str) -> None:
    made = configuration(tmp_path / "incus", far={"addr": addr})
    assert "expected a remote with addr https://host:port" in refused(
        lambda: from_remote("far", made), "target.remote"
    )


def test_a_remote_may_have_a_client_certificate_of_its_own(tmp_path: Path) -> None:
    # given a certificate for one remote, whose key comes later
    made = configuration(tmp_path / "incus", far={"addr": "https://a:8443"})
    (made / "clientcerts").mkdir()
    written(made / "clientcerts/far.crt", OTHER.certificate, 0o644)
    assert from_remote("far", made).certificate == CLIENT.certificate
    written(made / "clientcerts/far.key", OTHER.key)
    # then it is shown to that one only
    assert (from_remote("far", made).certificate, from_remote("far", made).key) == (
        OTHER.certificate,
        OTHER.key,
    )
    assert from_remote("cluster", made).certificate == CLIENT.certificate


def test_a_remote_without_a_certificate_kept_is_verified_by_the_authorities(tmp_path: Path) -> None:
    # given a server whose certificate a public authority has signed, which the clients do not keep
    made = configuration(tmp_path / "incus")
    (made / "servercerts/cluster.crt").unlink()
    # when it is read, then its name is verified, by the system's authorities or the client's own
    access = from_remote(None, made)
    assert access.tls().check_hostname
    assert access.tls().verify_mode is ssl.CERT_REQUIRED
    written(made / "client.ca", SERVER.certificate, 0o644)
    assert len(from_remote(None, made).tls().get_ca_certs(binary_form=True)) <= 1
    assert from_remote(None, made).authority == SERVER.certificate


def test_a_remote_may_have_a_number_for_a_name(tmp_path: Path) -> None:
    made = configuration(tmp_path / "lxc")
    written(made / "servercerts/2024.crt", SERVER.certificate)
    written(made / "config.yml", {"default-remote": 2024, "remotes": {2024: {"addr": "https://a:8443"}}})
    assert from_remote(None, made).name == "2024"
    assert from_remote("2024", made).addresses == ("https://a:8443",)


def test_the_environment_may_name_the_remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = configuration(tmp_path / "lxc", far={"addr": "https://a:8443"})
    monkeypatch.setenv("LXC_REMOTE", "far")
    assert from_remote(None, made).name == "far"


def test_a_remote_may_be_everybodys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a remote for all users of this machine, and one of the same name as a user's own
    ours = configuration(tmp_path / "incus")
    theirs = configuration(tmp_path / "etc", shared={"addr": "https://shared:8443"})
    written(theirs / "servercerts/shared.crt", OTHER.certificate)
    monkeypatch.setenv("INCUS_GLOBAL_CONF", str(theirs))
    access = from_remote("shared", ours)
    assert (access.addresses, access.server_certificate) == (("https://shared:8443",), OTHER.certificate)
    assert access.certificate == CLIENT.certificate
    assert from_remote("cluster", ours).addresses == ("https://192.0.2.1:8443",)


def test_the_clients_own_remote_is_not_changed_by_their_file(
    tmp_path: Path, listening: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LXD_SOCKET", str(listening))
    made = configuration(tmp_path / "lxc", local={"addr": "https://elsewhere:8443"})
    assert from_remote("local", made).socket == listening


@pytest.mark.parametrize(
    ("more", "said"), [({"protocol": "oci"}, "image server"), ({"auth_type": "oidc"}, "tls")]
)
def test_a_remote_that_we_cannot_use_is_refused(tmp_path: Path, more: dict[str, str], said: str) -> None:
    made = configuration(tmp_path / "incus", odd={"addr": "https://a:8443", **more})
    assert said in refused(lambda: from_remote("odd", made), "target.remote")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_key_that_others_could_read_is_refused(tmp_path: Path, mode: int) -> None:
    made = configuration(tmp_path / "lxc")
    (made / "client.key").chmod(mode)
    assert "mode 0600" in refused(lambda: from_remote(None, made), "target.remote")


@pytest.mark.parametrize("content", ["remotes: [", "- a list", "\0", "1", "&a [*a]"])
def test_a_configuration_that_is_none_is_refused(tmp_path: Path, content: str) -> None:
    made = configuration(tmp_path / "lxc")
    (made / "config.yml").write_text(content)
    assert "config.yml" in refused(lambda: from_remote(None, made), "target.remote")


@pytest.mark.parametrize(
    "content", ["remotes: 3", "remotes: [a]", "default-remote: [b]", "default-remote: 3"]
)
def test_a_configuration_without_what_is_asked_for_is_refused(tmp_path: Path, content: str) -> None:
    made = configuration(tmp_path / "lxc")
    (made / "config.yml").write_text(f"{content}\n")
    refused(lambda: from_remote("nowhere" if "remotes" in content else None, made), "target.remote")


# Certificates


@pytest.mark.parametrize("file", ["client.crt", "servercerts/cluster.crt"])
def test_a_certificate_that_has_expired_is_refused_with_its_file_and_date(tmp_path: Path, file: str) -> None:
    made = configuration(tmp_path / "lxc")
    written(made / file, that_ends(after=-DAY).certificate)
    told = refused(lambda: from_remote(None, made), "target.remote")
    assert f"{made / file}: expected a valid certificate: this one expired on 20" in told
    assert told.endswith(" UTC")


def test_a_certificate_that_is_not_valid_yet_is_refused(tmp_path: Path) -> None:
    made = configuration(tmp_path / "lxc")
    written(made / "client.crt", that_ends(after=40 * DAY).certificate)
    told = refused(lambda: from_remote(None, made), "target.remote")
    assert "client.crt: expected a valid certificate: this one is valid from 20" in told


@pytest.mark.parametrize(
    "content",
    [
        "",
        "junk",
        "-----BEGIN CERTIFICATE-----\nAAAA",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\n\xe4\n-----END CERTIFICATE-----\n",
        "-----BEGIN CERTIFICATE-----\n\n-----END CERTIFICATE-----\n",
        CLIENT.key,
    ],
)
@pytest.mark.parametrize("file", ["client.crt", "servercerts/cluster.crt"])
def test_what_is_no_certificate_is_refused(tmp_path: Path, file: str, content: str) -> None:
    made = configuration(tmp_path / "lxc")
    written(made / file, content)
    told = refused(lambda: from_remote(None, made), "target.remote")
    assert f"{made / file}: expected a certificate (PEM)" in told


@pytest.mark.parametrize(
    ("key", "accepted"),
    [
        (OTHER.key, "client.key: expected the key of "),
        ("junk", "client.key: expected a PEM key without a password"),
        ("", "client.key: expected a PEM key without a password"),
        (SERVER.certificate, "client.key: expected a PEM key without a password"),
    ],
)
def test_a_key_that_does_not_fit_is_refused(tmp_path: Path, key: str, accepted: str) -> None:
    made = configuration(tmp_path / "lxc")
    written(made / "client.key", key)
    assert accepted in refused(lambda: from_remote(None, made), "target.remote")


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    made = configuration(tmp_path / "lxc")
    locked = serialization.load_pem_private_key(CLIENT.key.encode(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"a password"),
    )
    written(made / "client.key", locked.decode())
    told = refused(lambda: from_remote(None, made), "target.remote")
    assert "expected a PEM key without a password" in told


def test_keys_are_handed_to_tls_without_a_file_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given nowhere to write to, when the TLS context is made, then it is made."""
    access = from_file(written(tmp_path / "lxd.yaml", credentials()))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    before = set(os.listdir("/proc/self/fd"))
    assert access.tls().verify_mode is ssl.CERT_REQUIRED
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_fingerprint_is_the_sha256_that_lxd_shows() -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    parsed = x509.load_pem_x509_certificate(SERVER.certificate.encode())
    assert fingerprint(der(SERVER.certificate)) == parsed.fingerprint(hashes.SHA256()).hex()
    assert fingerprint(der(f"a comment before\n{SERVER.certificate}{OTHER.certificate}")) == fingerprint(
        der(SERVER.certificate)
    )


# A file


def test_a_file_names_the_addresses_and_who_we_are(tmp_path: Path) -> None:
    access = from_file(written(tmp_path / "lxd.yaml", credentials()))
    assert access.name == "192.0.2.1:8443"
    assert access.addresses == ("https://192.0.2.1:8443", "https://192.0.2.2:8443")
    assert (access.certificate, access.key) == (CLIENT.certificate, CLIENT.key)


@pytest.mark.parametrize(
    ("given_", "read"),
    [
        ("192.0.2.1:8443,192.0.2.2:8443", ("https://192.0.2.1:8443", "https://192.0.2.2:8443")),
        ("192.0.2.1:8443, [2001:db8::1]:8443", ("https://192.0.2.1:8443", "https://[2001:db8::1]:8443")),
        (["https://lxd.example:443/"], ("https://lxd.example:443",)),
        (["lxd.example"], ("https://lxd.example:8443",)),
    ],
)
def test_addresses_are_taken_as_people_and_the_relation_write_them(
    tmp_path: Path, given_: object, read: tuple[str, ...]
) -> None:
    assert from_file(written(tmp_path / "lxd.yaml", credentials(addresses=given_))).addresses == read


@pytest.mark.parametrize(
    "addresses",
    ["", ",", [], {}, 7, True, [7], ["192.0.2.1:8443", ""], "a:b", ["http://a:1"], ["a:70000"], ["a:1/path"],
     ["[::1"], "a b", ["https://a:1?x=y"], ["u:p@host:1"]],
)  # fmt: skip
def test_what_is_no_address_is_refused(tmp_path: Path, addresses: object) -> None:
    file = written(tmp_path / "lxd.yaml", credentials(addresses=addresses))
    told = refused(lambda: from_file(file), "target.credentials")
    assert "expected `addresses` with at least one host:port" in told


@given(st.one_of(st.none(), st.text(), st.lists(st.one_of(st.text(), st.integers()))))
def test_addresses_are_either_https_urls_or_refused(given_: object) -> None:
    read = addresses_of(given_)
    assert read is None or (read and all(url.startswith("https://") and "@" not in url for url in read))


@pytest.mark.parametrize("field", ["addresses", "certificate", "client_certificate", "client_key"])
def test_a_field_that_is_missing_is_refused(tmp_path: Path, field: str) -> None:
    file = written(tmp_path / "lxd.yaml", credentials(**{field: None}))
    assert "`client_key`, and nothing else" in refused(lambda: from_file(file), "target.credentials")


@pytest.mark.parametrize("field", ["certificate", "client_certificate", "client_key"])
def test_a_field_that_is_no_text_is_refused(tmp_path: Path, field: str) -> None:
    file = written(tmp_path / "lxd.yaml", credentials(**{field: 7}))
    assert "PEM texts" in refused(lambda: from_file(file), "target.credentials")


def test_a_field_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "lxd.yaml", credentials(password="x"))
    assert "and nothing else" in refused(lambda: from_file(file), "target.credentials")


@pytest.mark.parametrize(
    ("fields", "accepted"),
    [
        ({"client_certificate": that_ends(after=-DAY).certificate}, "(client_certificate): expected a valid "
         "certificate: this one expired on "),
        ({"certificate": that_ends(after=-DAY).certificate}, "(certificate): expected a valid certificate"),
        ({"certificate": "junk"}, "(certificate): expected a certificate (PEM)"),
        ({"client_key": OTHER.key}, "(client_key): expected the key of "),
    ],
)  # fmt: skip
def test_a_certificate_in_a_file_that_is_unusable_is_named(
    tmp_path: Path, fields: dict[str, str], accepted: str
) -> None:
    file = written(tmp_path / "lxd.yaml", credentials(**fields))
    assert accepted in refused(lambda: from_file(file), "target.credentials")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_file_that_others_could_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = written(tmp_path / "lxd.yaml", credentials(), mode)
    assert "mode 0600" in refused(lambda: from_file(file), "target.credentials")


@given(st.binary(max_size=300))
def test_whatever_a_file_holds_it_is_refused_in_one_line(content: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        refused(lambda: from_file(Path(file.name)), "target.credentials")


@given(
    st.sampled_from(["certificate", "client_certificate", "client_key"]),
    st.one_of(st.text(), st.integers(), st.none(), st.lists(st.text())),
)
def test_whatever_a_field_holds_it_is_refused_in_one_line(field: str, content: Any) -> None:
    with tempfile.NamedTemporaryFile("w") as file:
        yaml.safe_dump(credentials() | {field: content}, file)
        file.flush()
        refused(lambda: from_file(Path(file.name)), "target.credentials")


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "lxd.yaml", "#" * (LARGEST_FILE + 1))
    assert "at most 1 MiB" in refused(lambda: from_file(file), "target.credentials")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    told = refused(lambda: from_file(tmp_path / "none"), "target.credentials")
    assert "No such file or directory" in told


# A socket


def test_a_socket_needs_no_certificate(listening: Path) -> None:
    access = from_socket(listening)
    assert (access.name, access.socket, access.addresses, access.key) == (str(listening), listening, (), "")


def test_a_socket_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "the unix.socket of an LXD server" in refused(
        lambda: from_socket(tmp_path / "none"), "target.socket"
    )
    told = refused(lambda: from_socket(written(tmp_path / "file", "text")), "target.socket")
    assert "(this is another file)" in told
    refused(lambda: from_socket(Path("with a \0 in it")), "target.socket")


def test_a_socket_that_this_user_may_not_open_is_refused(
    listening: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)  # root, who may run this, may open all of them
    assert "a member of the group lxd, or incus-admin" in refused(
        lambda: from_socket(listening), "target.socket"
    )


def test_the_local_socket_is_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LXD_DIR", str(tmp_path))
    assert local_socket() == tmp_path / "unix.socket"
    monkeypatch.setenv("LXD_SOCKET", "/somewhere/else")
    assert local_socket() == Path("/somewhere/else")
    monkeypatch.delenv("LXD_DIR")
    monkeypatch.delenv("LXD_SOCKET")
    assert local_socket() in (
        Path("/var/lib/lxd/unix.socket"),
        Path("/var/snap/lxd/common/lxd/unix.socket"),
        Path("/var/lib/incus/unix.socket"),
        Path("/run/incus/unix.socket"),
    )
    monkeypatch.setenv("INCUS_DIR", str(tmp_path))
    assert local_socket() == tmp_path / "unix.socket"


def test_a_remote_of_the_incus_client_is_found_in_its_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given both clients' configurations, when a remote is named, then it is looked for in both, lxc's first."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("LXD_CONF", "INCUS_CONF"):
        monkeypatch.delenv(name, raising=False)
    incus = configuration(tmp_path / ".config/incus", forked={"addr": "https://10.0.0.9:8443"})
    assert config_directory() == incus
    lxc = configuration(tmp_path / ".config/lxc")
    assert [config_directory(name) for name in (None, "cluster", "forked", "nowhere")] == [
        lxc,
        lxc,
        incus,
        lxc,
    ]
    monkeypatch.setenv("INCUS_CONF", str(incus))
    assert config_directory() == incus


def test_the_configuration_is_where_lxc_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given LXD_CONF, the package's or the snap's directory, when it is looked for, then the first of them is it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("LXD_CONF", raising=False)
    assert config_directory() == tmp_path / ".config/lxc"
    snap = configuration(tmp_path / "snap/lxd/common/config")
    assert config_directory() == snap
    package = configuration(tmp_path / ".config/lxc")
    assert config_directory() == package
    monkeypatch.setenv("LXD_CONF", "~/own")
    assert config_directory() == tmp_path / "own"
