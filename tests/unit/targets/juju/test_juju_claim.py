"""Units' connections and waits on a Juju controller, against a server of a few lines."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.targets.juju.juju_stub import Peer, Stub, login_reply, server_frame, stub
from tests.unit.targets.juju.test_juju_client import MODEL, UNIT
from tippingpoint.targets.juju import claim
from tippingpoint.targets.juju.api.access import AgentAccess, ControllerAccess
from tippingpoint.targets.juju.api.errors import ApiError
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.targets.juju.claim import AgentLeases, HollowLeases

LOOPS = ("asyncio", "uvloop")


def nothing() -> None:
    pass


@asynccontextmanager
async def served(answer: Callable[[Peer, dict[str, Any]], None]) -> AsyncIterator[tuple[AgentLeases, Stub]]:
    """Leases of a server that answers logins, and everything else as given; the event loop complains of nothing."""

    def answered(peer: Peer, request: dict[str, Any]) -> None:
        if request["request"] == "Login":
            peer.reply(request, login_reply())
        else:
            answer(peer, request)

    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with stub(answered) as server:
        leases = AgentLeases(AgentAccess((server.address,), server.ca, MODEL, UNIT), "tp0", 5.0)
        yield leases, server
        await leases.close()
        await asyncio.sleep(0)
    gc.collect()
    assert complaints == []


@pytest.mark.parametrize("end", ["drop", "disconnect", "cut"])
async def test_waits_end_quietly_with_their_connections(end: str) -> None:
    async with served(lambda peer, request: None) as (leases, server):
        # given units that wait for a release
        lost: asyncio.Queue[str] = asyncio.Queue()
        released: list[int] = []
        for unit in range(3):
            await leases.connect(0, unit, nothing, lost.put_nowait)
            leases.watch_release(0, unit, lambda: released.append(0))
        # when their connections end
        match end:
            case "drop":
                await leases.drop()
            case "disconnect":
                for unit in range(3):
                    leases.disconnect(0, unit)
            case _:
                for peer in server.peers:
                    peer.cut()
                for _ in range(3):
                    await lost.get()
        await asyncio.sleep(0)
        # then nobody is told of a release, nor of a future that nobody looked at
        assert released == []


async def test_connections_are_dropped_a_few_in_a_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "_CLOSED_AT_A_TIME", 2)

    async with served(lambda peer, request: None) as (leases, _):
        links = [await leases.connect(0, unit, nothing, lambda reason: None) for unit in range(6)]
        open_then: list[int] = []

        def look() -> None:
            open_then.append(sum(not link.closed for link in links))
            if open_then[-1]:
                asyncio.get_running_loop().call_soon(look)

        look()
        await leases.drop()
        await asyncio.sleep(0)
        assert open_then == [6, 4, 2, 0]


async def test_a_login_that_is_given_up_in_the_moment_of_its_answer_leaves_no_connection() -> None:
    async with served(lambda peer, request: None) as (leases, server):
        # given a login that has been answered, which nobody has noticed
        login = leases.connect(0, 0, nothing, lambda reason: None)
        while not login.done():  # noqa: ASYNC110 - an event would come after what is to be met
            await asyncio.sleep(0)
        # when the unit is disconnected
        leases.disconnect(0, 0)
        # then its connection is closed
        await server.peers[0].closed.wait()
        assert login.result().closed
        assert str((leases.claim(0, 0)).exception()) == "not connected"


async def test_a_release_that_the_controller_tells_in_no_words_we_know_is_one() -> None:
    def answer(peer: Peer, request: dict[str, Any]) -> None:
        peer.raw(server_frame(0x1, b'{"request-id":%d,"response":null}' % request["request-id"]))

    async with served(answer) as (leases, _):
        await leases.connect(0, 0, nothing, lambda reason: None)
        released = asyncio.Event()
        leases.watch_release(0, 0, released.set)
        await released.wait()


def status_told(*errors: tuple[str, str]) -> Callable[[Peer, dict[str, Any]], None]:
    """A controller that answers so many requests for the status with these errors and codes, and then with a status."""
    left = list(errors)

    def answer(peer: Peer, request: dict[str, Any]) -> None:
        if request["request"] == "Login":
            return peer.reply(request, login_reply(facades=[{"name": "Client", "versions": [8]}]))
        message, code = left.pop(0) if left else ("", "")
        if message:
            return peer.reply(request, error=message, **{"error-code": code})
        return peer.reply(request, {"machines": {}, "applications": {}})

    return answer


async def prepared(answer: Callable[[Peer, dict[str, Any]], None]) -> int:
    """How often the status was asked for, until the leases were prepared."""
    async with stub(answer) as server:
        access = ControllerAccess("stub", (server.address,), server.ca, Identity("user-admin", "password"))
        leases = HollowLeases(access, MODEL, "tp0", "worker", 5.0)
        try:
            await leases.prepare([], 1, lambda what, done, goal: None)
        finally:
            await leases.close()
        return sum(request["request"] == "FullStatus" for peer in server.peers for request in peer.requests)


@pytest.mark.parametrize(
    "message",
    [
        "sql: database is closed",
        "database is dead",
        "change-stream worker is dying",
        "context deadline exceeded",
        'getting model "x": context canceled',
    ],
)
async def test_leases_are_prepared_once_the_controller_has_its_database_again(
    message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a controller whose database is away for two answers, as it is when its workers start again
    monkeypatch.setattr(claim, "_PAUSE", (0.0, 0.0))
    # when leases are prepared, then that goes on until the database is there
    assert await prepared(status_told((message, ""), (message, ""))) == 3


async def test_a_refusal_ends_the_preparation_of_leases_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "_PAUSE", (0.0, 0.0))
    with pytest.raises(ApiError, match="permission denied"):
        await prepared(status_told(("permission denied", "unauthorized access")))


async def test_a_database_that_stays_away_ends_the_preparation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim, "_PAUSE", (0.0, 0.0))
    monkeypatch.setattr(claim, "_PREPARE_PATIENCE", 0.0)
    with pytest.raises(ApiError, match="database is closed"):
        await prepared(status_told(*[("sql: database is closed", "")] * 3))
