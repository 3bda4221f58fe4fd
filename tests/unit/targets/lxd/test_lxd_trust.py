"""Trust tokens, and the key pair that a server is asked to trust."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.targets.lxd.lxd_files import OTHER, SERVER, written
from tippingpoint.errors import TargetError, UserError
from tippingpoint.targets.lxd.access import der, fingerprint
from tippingpoint.targets.lxd.trust import from_identity, make_identity, read_token, redeem

SECRET = "0123456789abcdef-a-secret-nobody-may-see"


def token(**changed: Any) -> str:
    """A token as `lxc config trust add` prints it; a field that is None is left out."""
    whole = {
        "client_name": "tippingpoint",
        "fingerprint": fingerprint(der(SERVER.certificate)),
        "addresses": ["192.0.2.1:8443", "[2001:db8::1]:8443"],
        "secret": SECRET,
        "expires_at": "0001-01-01T00:00:00Z",
    }
    known = {name: value for name, value in (whole | changed).items() if value is not None}
    return base64.b64encode(json.dumps(known).encode()).decode()


def refusal(text: str) -> str:
    """What a token's refusal says: one line, and never the token or its secret."""
    with pytest.raises(UserError) as error:
        read_token(text)
    told = str(error.value)
    assert told.startswith("target.token: ")
    assert "\n" not in told
    assert SECRET not in told
    assert len(text) < 8 or text not in told
    return told


def test_a_token_says_where_the_server_is_and_what_it_shows() -> None:
    read = read_token(token())
    assert read.addresses == ("https://192.0.2.1:8443", "https://[2001:db8::1]:8443")
    assert read.fingerprint == fingerprint(der(SERVER.certificate))
    assert read.name == "tippingpoint"
    assert SECRET not in repr(read)
    assert token() not in repr(read)


def test_a_token_that_was_copied_with_line_breaks_is_read() -> None:
    whole = token()
    assert read_token(f"\n {whole[:50]}\n{whole[50:]} \n") == read_token(whole)


@pytest.mark.parametrize(
    "ends", ["0001-01-01T00:00:00Z", "2999-03-23T17:38:37.753398689-04:00", "", "never", None, 7]
)
def test_a_token_without_an_end_or_before_it_is_valid(ends: Any) -> None:
    assert read_token(token(expires_at=ends)).name == "tippingpoint"


@pytest.mark.parametrize("ends", ["2021-03-23T17:38:37.753398689-04:00", "2021-03-23T17:38:37Z"])
def test_a_token_that_has_expired_is_refused_with_its_date(ends: str) -> None:
    told = refusal(token(expires_at=ends))
    assert "expected a valid token: this one expired on 2021-03-23 17:38" in told


@pytest.mark.parametrize(
    "text", ["", "x", "no base64!", "äöü", token()[:-9], base64.b64encode(b"[1, 2").decode(), "//79"]
)
def test_what_is_no_token_is_refused(text: str) -> None:
    assert "a trust token, as `lxc config trust add` prints it" in refusal(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"client_name": None},
        {"fingerprint": None},
        {"fingerprint": "abc"},
        {"fingerprint": "z" * 64},
        {"secret": None},
        {"secret": ""},
        {"addresses": None},
        {"addresses": []},
        {"addresses": ["no port:"]},
    ],
)
def test_a_token_with_a_field_missing_is_refused(fields: dict[str, Any]) -> None:
    refusal(token(**fields))


@given(st.one_of(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists)))
def test_whatever_a_token_is_it_is_refused_in_one_line(content: object) -> None:
    refusal(content if isinstance(content, str) else base64.b64encode(json.dumps(content).encode()).decode())


def test_a_key_pair_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    """Given no key pair, when it is made twice, then it is the same, whose fingerprint is known before it is used."""
    directory = tmp_path / "identity"
    first = make_identity(directory, "tippingpoint-run")
    key = (directory / "client.key").read_text()
    assert make_identity(directory, "tippingpoint-run") == first
    assert (directory / "client.key").read_text() == key
    assert first == fingerprint(der((directory / "client.crt").read_text()))
    assert {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()} == {
        "client.crt": 0o600,
        "client.key": 0o600,
    }
    assert directory.stat().st_mode & 0o777 == 0o700


def test_a_key_pair_that_was_half_made_is_made_again(tmp_path: Path) -> None:
    """Given a key without its certificate, as a crash leaves it, when the pair is made, then it fits."""
    written(tmp_path / "client.key", "half")
    written(tmp_path / "client.crt.part", "half")
    make_identity(tmp_path, "tippingpoint")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")


def test_a_long_name_makes_a_certificate_all_the_same(tmp_path: Path) -> None:
    assert len(make_identity(tmp_path, "n" * 200)) == 64


def test_what_was_redeemed_is_found_again(tmp_path: Path) -> None:
    make_identity(tmp_path, "tippingpoint")
    written(tmp_path / "server.crt", SERVER.certificate)
    written(tmp_path / "addresses", "https://192.0.2.1:8443\nhttps://192.0.2.2:8443\n")
    access = from_identity(tmp_path)
    assert access.addresses == ("https://192.0.2.1:8443", "https://192.0.2.2:8443")
    assert (access.name, access.server_certificate) == ("192.0.2.1:8443", SERVER.certificate)
    assert access.tls().verify_mode is ssl.CERT_REQUIRED


def test_what_was_not_redeemed_is_refused(tmp_path: Path) -> None:
    make_identity(tmp_path, "tippingpoint")
    with pytest.raises(UserError, match=r"^target\.token: .*/addresses: expected a file that was written"):
        from_identity(tmp_path)


async def test_a_token_whose_server_is_not_there_is_one_line(tmp_path: Path) -> None:
    """Given a port that nobody listens on, when the token is redeemed, then the error names it and the reason."""
    with socket.socket() as bound:  # and does not listen
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(TargetError) as error:
            await redeem(token(addresses=[address]), tmp_path, "tippingpoint")
    assert str(error.value) == (
        f"target.token: {address}: Connection refused: expected a server that answers and shows the token's certificate"
    )


async def serve_with(certificate: str, key: str, directory: Path) -> asyncio.Server:
    """A TLS server on loopback that shows this certificate and says nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(written(directory / "c.pem", certificate), written(directory / "k.pem", key))
    return await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)


async def test_a_token_is_not_shown_to_a_server_with_another_certificate(tmp_path: Path) -> None:
    """Given a server that is not the token's, when the token is redeemed, then it is refused and nothing is kept."""
    server = await serve_with(OTHER.certificate, OTHER.key, tmp_path)
    async with server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(TargetError) as error:
            await redeem(token(addresses=[f"{host}:{port}"]), tmp_path / "identity", "tippingpoint")
    assert "its certificate is not that of the token" in str(error.value)
    assert not (tmp_path / "identity" / "server.crt").exists()
