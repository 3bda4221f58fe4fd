"""TLS sessions that connections resume, by OpenSSL's own copy of a session and by that of Python."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import ssl
import tempfile
from socket import socketpair

import pytest

from tests.unit.targets.juju.juju_stub import certificates, stub
from tippingpoint.targets.juju.api import resumption
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.targets.juju.api.resumption import Resumption

UNIT = Identity("unit-tp1-l0-0", "unit-secret")
SERVER_NAME = "juju-apiserver"
SOCKETS = 100
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


class Heap(ctypes.Structure):
    """The answer of mallinfo2: ten numbers, of which `uordblks` is the eighth."""

    _fields_ = (("figures", ctypes.c_size_t * 10),)


@pytest.fixture(params=["OpenSSL's copy", "Python's copy"])
def copied(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either way to copy a session. The second is that of a Python whose OpenSSL cannot be called."""
    if request.param == "Python's copy":
        monkeypatch.setattr(resumption, "_openssl", lambda: None)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("copied")
async def test_a_connection_that_was_cut_off_leaves_its_session_to_those_after_it(
    version: ssl.TLSVersion,
) -> None:
    async with stub(tls=version) as server:
        client = ApiClient([server.address], server.ca)
        for number in range(4):
            lost = asyncio.Event()
            await client.login(UNIT, None, lambda _reason, lost=lost: lost.set())
            server.peers[number].cut()
            await lost.wait()
        assert [peer.resumed for peer in server.peers] == [False, True, True, True]
        await client.close()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.usefixtures("copied")
async def test_connections_that_share_a_session_end_in_any_order(version: ssl.TLSVersion) -> None:
    async with stub(tls=version) as server:
        client = ApiClient([server.address], server.ca)
        first = await client.login(UNIT, None)
        others = [await client.login(UNIT, None) for _ in range(3)]
        first.close()
        others[1].close()
        for connection in (others[0], others[2]):
            assert await connection.call("LeadershipService", "Echo", {"still": "here"}) == {"still": "here"}
        await client.login(UNIT, None)
        assert [peer.resumed for peer in server.peers] == [False, True, True, True, True]
        await client.close()


def test_openssls_copy_leaves_the_servers_certificate_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    context, session = a_session()
    shared = bytes_each(context, session)
    monkeypatch.setattr(resumption, "_openssl", lambda: None)
    assert bytes_each(context, session) - shared > 3000


def a_session() -> tuple[ssl.SSLContext, ssl.SSLSession]:
    """A session of a server that is in this process, and the context that it can be resumed in."""
    made = certificates()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.maximum_version = ssl.TLSVersion.TLSv1_2  # there a session is whole when the handshake is
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as pem:
        pem.write(made.cert + made.key)
        pem.flush()
        serving.load_cert_chain(pem.name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=made.ca)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(down, up, server_hostname=SERVER_NAME)
    server = serving.wrap_bio(up, down, server_side=True)
    for side in (client, server, client, server, client):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()
    assert client.session is not None
    return context, client.session


def bytes_each(context: ssl.SSLContext, session: ssl.SSLSession) -> float:
    """Bytes of the C library's heap that each of many sockets takes which are about to resume a session."""
    resuming = Resumption(context, SERVER_NAME)
    resuming.keep(session)
    with contextlib.ExitStack() as opened:
        pairs = [socketpair() for _ in range(SOCKETS)]
        for end in (end for pair in pairs for end in pair):
            opened.enter_context(end)
        gc.collect()  # what other tests left is not to be freed meanwhile
        before = heap_in_use()
        for ours, _ in pairs:
            opened.enter_context(resuming.wrap(ours))
        return (heap_in_use() - before) / SOCKETS


def heap_in_use() -> int:
    """Bytes that the C library has given out and not got back (mallinfo2 of glibc)."""
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = Heap
    return ask().figures[7]
