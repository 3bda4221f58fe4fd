"""Which server's certificate passes: the one that is pinned, while it is valid, and no other."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from lab.certificates import make_certificates
from tests.unit.targets.lxd.lxd_files import CLIENT, DAY, OTHER, SERVER, that_ends, written
from tippingpoint.targets.lxd.access import LxdAccess
from tippingpoint.targets.lxd.client import LxdClient
from tippingpoint.targets.lxd.errors import LxdError

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\n{"type":"sync","metadata":"yes"}'


async def asked(directory: Path, shown: str, key: str, pinned: str) -> str:
    """What a client that has `pinned` for its server's certificate gets from one that shows `shown`."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(written(directory / "shown.pem", shown), written(directory / "key.pem", key))
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = LxdClient(LxdAccess("it", None, (address,), pinned, CLIENT.certificate, CLIENT.key))
        try:
            return await client.get("/1.0")
        except LxdError as problem:
            return f"{problem.kind}: {str(problem).partition(': ')[2]}"
        finally:
            await client.close()


async def test_the_pinned_certificate_passes_whatever_its_names_and_its_issuer(tmp_path: Path) -> None:
    """Given certificates for another host, signed by their own key or by an authority, when they are the pinned ones,
    then they pass."""
    made = make_certificates(tmp_path, "root")
    signed, key = made.server_cert.read_text(), made.server_key.read_text()
    assert await asked(tmp_path, SERVER.certificate, SERVER.key, SERVER.certificate) == "yes"
    assert await asked(tmp_path, signed, key, signed) == "yes"


async def test_another_certificate_does_not_pass(tmp_path: Path) -> None:
    assert (await asked(tmp_path, OTHER.certificate, OTHER.key, SERVER.certificate)).startswith(
        "trust: the server's certificate is not signed by a trusted authority: "
    )


@pytest.mark.parametrize("chain", [False, True])
async def test_what_a_pinned_authority_has_signed_does_not_pass(tmp_path: Path, chain: bool) -> None:
    """Given an authority's certificate for the server's, when the server shows one it signed, then it is refused."""
    made = make_certificates(tmp_path, "root")
    authority = made.ca.read_text()
    shown = made.server_cert.read_text() + (authority if chain else "")
    told = await asked(tmp_path, shown, made.server_key.read_text(), authority)
    assert told == "trust: the server's certificate: not the expected certificate"


async def test_the_pinned_certificate_does_not_pass_once_it_has_expired(tmp_path: Path) -> None:
    expired = that_ends(after=-DAY)
    told = await asked(tmp_path, expired.certificate, expired.key, expired.certificate)
    assert told == "trust: the server's certificate has expired"
