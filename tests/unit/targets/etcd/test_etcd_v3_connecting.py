"""Connections to an etcd that are given up while they are made."""

from __future__ import annotations

import asyncio
import time
from typing import Any, cast

import pytest

from tippingpoint.targets.etcd import http2, v3_link
from tippingpoint.targets.etcd.access import access
from tippingpoint.targets.etcd.claim import clean
from tippingpoint.targets.etcd.http2 import frame
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.etcd.v3_link import Link, Login
from tippingpoint.util.patience import LOCAL_STALL_TOLERANCE

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


async def test_a_member_that_answered_while_this_process_stood_still_is_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a member that is given little time, and answers in that time
    monkeypatch.setattr(v3_link, "ANSWER_WITHIN", 0.05)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Greeting, "127.0.0.1", 0)
    target = EtcdTarget(endpoints=[f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"])
    link = Link(
        access(target).endpoints[0],
        None,
        Login(None, lambda: None),
        on_up=lambda: None,
        on_down=lambda link: None,
    )
    # when this process stands still past that time, then the member counts as connected
    loop.call_soon(time.sleep, 0.05 + LOCAL_STALL_TOLERANCE + 0.1)
    await link.connect()
    assert link.live
    link.close("closed")
    server.close()
