"""One of several addresses is chosen by who answers first: a silent one is not waited for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tippingpoint.util.racing import first_to_accept

Address = tuple[str, int]


@pytest.fixture
def silent() -> Iterator[Address]:
    """An address that answers no SYN, because its backlog is full."""
    with socket.socket() as server, ExitStack() as callers:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            with suppress(BlockingIOError):
                caller.connect(server.getsockname())
        yield server.getsockname()


@pytest.fixture
def listening() -> Iterator[Address]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()


@pytest.fixture
def refusing() -> Address:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return unused.getsockname()


async def test_a_silent_address_is_not_waited_for(silent: Address, listening: Address) -> None:
    # given a silent address first, and a limit for each that no test waits for
    assert await first_to_accept([silent, silent, listening], within=3600.0) == 2


async def test_the_first_that_accepts_is_taken(refusing: Address, listening: Address) -> None:
    assert await first_to_accept([listening, listening], within=3600.0) == 0
    assert await first_to_accept([refusing, listening], within=3600.0) == 1


async def test_nobody_may_answer(silent: Address, refusing: Address) -> None:
    assert await first_to_accept([silent, refusing], within=0.01) is None
    assert await first_to_accept([], within=0.01) is None


async def test_what_is_under_way_is_given_up(silent: Address, listening: Address) -> None:
    others = len(asyncio.all_tasks())
    await first_to_accept([silent, listening], within=3600.0)
    assert len(asyncio.all_tasks()) == others
