"""The client's own key pair, and a trust token (`lxc config trust add`) that makes an LXD server trust it."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import orjson
from cryptography import x509

from tippingpoint.errors import TargetError, UserError
from tippingpoint.rundir.files import replace_file
from tippingpoint.targets.lxd.access import LxdAccess, addresses_of, checked, der, fingerprint
from tippingpoint.targets.lxd.client import LxdClient
from tippingpoint.targets.lxd.errors import LxdError
from tippingpoint.targets.lxd.product import trust_request
from tippingpoint.targets.lxd.retrying import REFUSED, insist
from tippingpoint.util import timing
from tippingpoint.util.key_pair import LONGEST_NAME, make_pair
from tippingpoint.util.network_errors import in_words
from tippingpoint.util.patience import answers_within
from tippingpoint.util.rest import CONNECT_WITHIN
from tippingpoint.util.secret_files import read_text

_CERTIFICATE, _KEY, _SERVER, _ADDRESSES = FILES = "client.crt", "client.key", "server.crt", "addresses"


@dataclass(frozen=True)
class Token:
    """A trust token's content: the server's addresses, its certificate's SHA-256, and a secret, valid once."""

    name: str
    addresses: tuple[str, ...]
    fingerprint: str
    text: str = field(repr=False)


def read_token(text: str) -> Token:
    """Parse a token of `lxc config trust add`, base64 of JSON; UserError, without its text, if it is invalid."""
    place, accepted = "target.token", "a trust token, as `lxc config trust add` prints it"
    text = "".join(text.split())
    try:
        content: object = orjson.loads(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        raise UserError(place, "(not shown)", f"{accepted}: base64 of JSON") from None
    known = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    name, print_, secret = (known.get(each) for each in ("client_name", "fingerprint", "secret"))
    addresses = addresses_of(known.get("addresses"))
    if not isinstance(name, str) or not isinstance(print_, str) or not isinstance(secret, str) or not secret:
        raise UserError(place, "(not shown)", f"{accepted}: with client_name, fingerprint and secret")
    if addresses is None:
        raise UserError(place, name, f"{accepted}: with addresses of the server (core.https_address)")
    if len(print_) != 64 or not set(print_.lower()) <= set("0123456789abcdef"):
        raise UserError(place, name, f"{accepted}: with a SHA-256 fingerprint")
    ends = known.get("expires_at")
    with suppress(ValueError, TypeError):
        # Go writes year 1 for a token that does not expire, and nanoseconds, which Python drops.
        expires = datetime.fromisoformat(cast("str", ends))
        if expires.year > 1 and expires < datetime.fromtimestamp(timing.wall(), UTC):
            raise UserError(place, name, f"a valid token: this one expired on {expires:%Y-%m-%d %H:%M %Z}")
    return Token(name, addresses, print_.lower(), text)


def make_identity(directory: Path, name: str) -> str:
    """Create a key pair in a directory unless it exists, both files 0600; returns its certificate's fingerprint."""
    certificate = directory / _CERTIFICATE
    if not certificate.exists():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        made, key = make_pair(name)
        _write(directory / _KEY, key)
        _write(certificate, made)  # written last, so that it implies the key
    place = "target.token"
    text = read_text(place, certificate, "the client certificate")
    try:
        return fingerprint(der(text))
    except ssl.SSLError:
        raise UserError(place, str(certificate), "the client certificate (PEM)") from None


async def redeem(token: str, directory: Path, name: str) -> LxdAccess:
    """Make the token's server trust the key pair in a directory (make_identity); returns the access to the server.

    The server's certificate is compared with the token and then kept beside the key pair for from_identity. UserError
    if the token is invalid or has expired. TargetError if no server shows the certificate it names, or the server
    refuses it.
    """
    read = read_token(token)
    make_identity(directory, name)
    problems: dict[str, str] = {}
    # A token has every address of a server, including those on bridges and other networks: all are tried at once.
    asked = {asyncio.create_task(_certificate(address)): address for address in read.addresses}
    try:
        while pending := [each for each in asked if asked[each] not in problems]:
            done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                address = asked[each]
                problem = each.exception()
                if isinstance(problem, TimeoutError):
                    problems[address] = f"no answer within {CONNECT_WITHIN:g} s"
                elif isinstance(problem, OSError):
                    problems[address] = in_words(problem)
                elif fingerprint(certificate := each.result()) != read.fingerprint:
                    problems[address] = "its certificate is not that of the token"
                else:
                    _write(directory / _SERVER, ssl.DER_cert_to_PEM_cert(certificate).encode())
                    others = [each for each in read.addresses if each != address]
                    _write(directory / _ADDRESSES, "\n".join((address, *others, "")).encode())
                    access = from_identity(directory)
                    await _ask_for_trust(access, read)
                    return access
    finally:
        for each in asked:
            each.cancel()
        await asyncio.wait(asked)
    shown = "; ".join(f"{urlsplit(address).netloc}: {problem}" for address, problem in problems.items())
    raise TargetError("target.token", shown, "a server that answers and shows the token's certificate")


def from_identity(directory: Path) -> LxdAccess:
    """Return the server for which redeem() was used with this directory; UserError if it was not."""
    place, accepted = "target.token", "a file that was written when the trust token was redeemed"
    urls = addresses_of(read_text(place, directory / _ADDRESSES, accepted).split())
    if urls is None:
        raise UserError(place, str(directory / _ADDRESSES), accepted)
    access = LxdAccess(
        name=urlsplit(urls[0]).netloc,
        addresses=urls,
        server_certificate=read_text(place, directory / _SERVER, accepted),
        certificate=read_text(place, directory / _CERTIFICATE, accepted),
        key=read_text(place, directory / _KEY, accepted, private=True),
    )
    files = (str(directory / _SERVER), str(directory / _CERTIFICATE), str(directory / _KEY))
    return checked(place, access, *files)


def is_named(access: LxdAccess, name: str) -> bool:
    """Whether the client certificate is the one that make_identity created under this name."""
    said = x509.load_pem_x509_certificate(access.certificate.encode()).subject
    return [each.value for each in said] == [name[:LONGEST_NAME]]


async def is_restricted(client: LxdClient, access: LxdAccess) -> bool:
    """Whether the server reports that the client certificate is restricted to projects; False over a socket."""
    if access.socket is not None:
        return False
    path = f"/1.0/certificates/{fingerprint(der(access.certificate))}"
    try:
        ours = await insist(lambda: client.get(path))
    except LxdError as problem:
        if problem.code == 404:  # trusted for a reason other than this certificate
            return False
        if problem.code != REFUSED:
            raise
        return True
    return bool(ours.get("restricted"))


async def end(client: LxdClient, access: LxdAccess) -> int:
    """Remove the client certificate from the server's trusted ones, which must be the last call; returns the number
    of entries removed. It is 0 if the certificate is restricted to projects, which cannot end its own trust."""
    path = f"/1.0/certificates/{fingerprint(der(access.certificate))}"
    try:
        await insist(lambda: client.operate("DELETE", path))
    except LxdError as problem:
        if problem.code != REFUSED:
            raise
        return 0
    return 1


async def _ask_for_trust(access: LxdAccess, token: Token) -> None:
    client = LxdClient(access)
    try:
        server = await client.get("/1.0")
        if server.get("auth") != "trusted":
            # The server will trust the certificate that this connection shows.
            body = trust_request(token.text, server.get("api_extensions"))
            await client.send("POST", "/1.0/certificates", body)
    except LxdError as problem:
        accepted = "an unused token (lxc config trust list-tokens)"
        raise TargetError("target.token", f"{access.name}: {problem}", accepted) from None
    finally:
        await client.close()


async def _certificate(address: str) -> bytes:
    """Return a server's certificate (DER), not verified: the caller compares its fingerprint."""
    parts = urlsplit(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    async with answers_within(CONNECT_WITHIN):
        _, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=context)
        try:
            shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
    return shown or b""


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically; only its owner can read it."""
    replace_file(path, content, mode=0o600)
