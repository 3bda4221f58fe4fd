"""Connections to an etcd that are given up while they are made."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tippingpoint.targets.etcd import http2
from tippingpoint.targets.etcd.claim import clean
from tippingpoint.targets.etcd.http2 import frame
from tippingpoint.targets.etcd.plan import EtcdTarget

LOOPS = ("uvloop",)
_TURNS = 40
"""More turns of the loop than it takes until a connection is made and the server's first word is heard."""


class Greeting(asyncio.Protocol):
    """A server that says at once what etcd says first, and nothing more."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(frame(http2.SETTINGS, 0, 0))


async def test_a_connection_that_is_given_up_at_any_moment_is_not_written_to() -> None:
    """Given a second Ctrl-C that cuts the removal short, at any turn of the loop, then the loop has nothing to
    complain of: a user would see its words."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    server = await loop.create_server(Greeting, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    target = EtcdTarget(endpoints=[f"http://127.0.0.1:{port}"])
    for turns in range(_TURNS):
        cleaning = asyncio.create_task(clean(target, "/tippingpoint/x/", range(1, 2)))
        for _ in range(turns):
            await asyncio.sleep(0)
        cleaning.cancel()
        await asyncio.wait([cleaning])
        for _ in range(_TURNS):
            await asyncio.sleep(0)
    server.close()
    assert complaints == []
