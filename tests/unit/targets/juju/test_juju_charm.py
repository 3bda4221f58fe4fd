"""The hollow charm's archive and its upload."""

from __future__ import annotations

import asyncio
import io
import ssl
import tempfile
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import yaml

from tests.unit.targets.juju.juju_stub import certificates
from tests.unit.targets.juju.test_juju_client import MODEL
from tippingpoint.targets.juju.api.charm import NAME, PEER, PROVIDES, REQUIRES, archive, upload
from tippingpoint.targets.juju.api.errors import ApiError, ConnectionLost
from tippingpoint.targets.juju.api.login import Identity


def test_the_archive_is_the_same_bytes_every_time() -> None:
    assert archive() == archive()


def test_the_archive_is_what_a_controller_takes_for_a_charm() -> None:
    """Given the archive, then it has a name, a base, and a dispatch that may be executed."""
    charm = zipfile.ZipFile(io.BytesIO(archive()))
    assert charm.testzip() is None
    metadata = yaml.safe_load(charm.read("metadata.yaml"))
    assert metadata["name"] == NAME
    assert metadata["summary"]
    assert metadata["description"]
    bases = yaml.safe_load(charm.read("manifest.yaml"))["bases"]
    assert {base["channel"] for base in bases} == {"22.04", "24.04"}
    assert all("amd64" in base["architectures"] for base in bases)
    assert (charm.getinfo("dispatch").external_attr >> 16) & 0o111 == 0o111


def test_any_two_applications_of_it_can_be_related() -> None:
    """Given the endpoints, then what one provides another requires, with one interface, and there is a peer."""
    charm = zipfile.ZipFile(io.BytesIO(archive()))
    metadata = yaml.safe_load(charm.read("metadata.yaml"))
    assert metadata["provides"][PROVIDES]["interface"] == metadata["requires"][REQUIRES]["interface"]
    assert list(metadata["peers"]) == [PEER]


@asynccontextmanager
async def answering(status: str, body: str, kind: str) -> AsyncIterator[str]:
    """The address of a controller that answers every upload with this."""
    made = certificates()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as pem:
        pem.write(made.cert + made.key)
        pem.flush()
        context.load_cert_chain(pem.name)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(len(archive()))
        head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write((head + body).encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def uploaded(server: str) -> str:
    return await upload(server, certificates().ca, Identity("user-admin", "secret"), MODEL)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        ("401 Unauthorized", "authentication failed: db is dead\n"),
        ("503 Service Unavailable", "apiserver shutdown in progress\n"),
    ],
)
async def test_a_controller_that_stops_in_an_upload_is_a_lost_connection(status: str, body: str) -> None:
    """Given a controller on its way down, which tells any error of its database as a wrong login, then the upload can
    be tried again, and the error has the controller's words."""
    async with answering(status, body, "text/plain") as server:
        with pytest.raises(ConnectionLost, match=body.strip()):
            await uploaded(server)


@pytest.mark.parametrize("status", ["400 Bad Request", "401 Unauthorized"])
async def test_a_refusal_of_the_charm_is_an_error_of_the_controller(status: str) -> None:
    """Given a controller that refuses a charm in its own words, then nothing is tried again."""
    body = '{"error": "no such charm", "error-code": "bad request"}'
    async with answering(status, body, "application/json") as server:
        with pytest.raises(ApiError, match="no such charm"):
            await uploaded(server)


async def test_a_refusal_in_plain_words_is_told_in_them() -> None:
    async with answering(
        "403 Forbidden", "authorization failed: permission denied\n", "text/plain"
    ) as server:
        with pytest.raises(ApiError, match="answers HTTP 403: authorization failed: permission denied"):
            await uploaded(server)
