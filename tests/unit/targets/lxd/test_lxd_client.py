"""A client of several addresses: it goes to one that accepts connections, and a silent one costs its calls no time."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from socket import socket

import pytest
from aiohttp import web

from tests.unit.targets.lxd.lxd_files import CLIENT, SERVER
from tippingpoint.targets.lxd import client as lxd_client
from tippingpoint.targets.lxd.access import LxdAccess
from tippingpoint.targets.lxd.client import LxdClient


@asynccontextmanager
async def server() -> AsyncIterator[str]:
    """An LXD that answers every call with its own port: its address."""

    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        port = request.transport.get_extra_info("sockname")[1]
        return web.json_response({"type": "sync", "metadata": port})

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as pem:
        pem.write(SERVER.certificate + SERVER.key)
        pem.flush()
        context.load_cert_chain(pem.name)
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    try:
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("prefer", [0, 1])
async def test_a_silent_address_is_passed_over(prefer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lxd_client, "CONNECT_WITHIN", 3600.0)
    # given a remote whose first address answers no SYN
    with socket() as hole, ExitStack() as callers:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        for _ in range(4):
            caller = callers.enter_context(socket())
            caller.setblocking(False)
            with suppress(BlockingIOError):
                caller.connect(hole.getsockname())
        async with server() as there:
            addresses = (f"https://127.0.0.1:{hole.getsockname()[1]}", there)
            access = LxdAccess("far", None, addresses, SERVER.certificate, CLIENT.certificate, CLIENT.key)
            client = LxdClient(access, prefer)
            # when calls are made, whichever address a worker begins with, then the other one has them all
            answers = [await client.get("/1.0") for _ in range(3)]
            assert {f"https://127.0.0.1:{port}" for port in answers} == {there}
            assert (await client.send("POST", "/1.0/projects", {})) == answers[0]
            await client.close()


async def test_workers_still_spread_over_addresses_that_answer() -> None:
    async with server() as one, server() as other:
        access = LxdAccess("far", None, (one, other), SERVER.certificate, CLIENT.certificate, CLIENT.key)
        for prefer, expected in enumerate((one, other, one)):
            client = LxdClient(access, prefer)
            assert f"https://127.0.0.1:{await client.get('/1.0')}" == expected
            await client.close()
