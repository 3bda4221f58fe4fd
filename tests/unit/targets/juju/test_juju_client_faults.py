"""What becomes of logins, calls and connections when servers fail, refuse, hang or talk nonsense."""

from __future__ import annotations

import asyncio
import re
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest

from lab.juju.tls import Certificate
from tests.unit.targets.juju.juju_stub import (
    Peer,
    certificates,
    login_reply,
    obliging,
    server_frame,
    stub,
)
from tests.unit.targets.juju.test_juju_client import MODEL, UNIT, hosts
from tippingpoint.targets.juju.api import dialling, pings
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.connection import Connection
from tippingpoint.targets.juju.api.errors import ConnectionLost
from tippingpoint.targets.juju.api.pings import PingClock

LOOPS = ("asyncio", "uvloop")


@asynccontextmanager
async def deaf_server() -> AsyncIterator[tuple[str, list[asyncio.StreamWriter], asyncio.Condition]]:
    """Accepts TCP connections and says nothing: its address, what it accepted, and a bell rung at each."""
    accepted: list[asyncio.StreamWriter] = []
    bell = asyncio.Condition()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.append(writer)
        async with bell:
            bell.notify_all()

    server = await asyncio.start_server(accept, "127.0.0.1", 0, backlog=500)
    yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", accepted, bell
    server.close()
    for writer in accepted:
        writer.transport.abort()


@asynccontextmanager
async def deaf_address() -> AsyncIterator[str]:
    """The address of a server that accepts and says nothing."""
    async with deaf_server() as (address, _, _):
        yield address


def nobody() -> str:
    """An address where nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{unused.getsockname()[1]}"


@pytest.mark.parametrize(
    ("kind", "said", "accepted"),
    [
        ("expired", "certificate has expired", "a renewed certificate"),
        ("other-name", "not valid for 'juju-apiserver'", "a name in the server's certificate"),
        (
            "other-authority",
            "not signed by a trusted authority",
            "a certificate of the controller's own CA",
        ),
    ],
)
async def test_a_certificate_that_does_not_hold_loses_the_login_and_says_so(
    kind: Certificate, said: str, accepted: str
) -> None:
    async with stub(kind=kind) as server:
        client = ApiClient([server.address], server.ca)
        with pytest.raises(ConnectionLost) as caught:
            await client.login(UNIT, MODEL)
        text = str(caught.value)
        assert text.startswith(f"{server.address}: the server's certificate ")
        assert said in text
        assert text.endswith(f": expected {accepted}")
        assert not server.peers
        await client.close()


async def test_a_server_that_refuses_tcp_is_named() -> None:
    address = nobody()
    client = ApiClient([address], certificates().ca)
    with pytest.raises(ConnectionLost) as caught:
        await client.login(UNIT, MODEL)
    assert str(caught.value) == f"{address}: Connection refused"
    await client.close()


async def test_a_server_that_speaks_no_tls_is_named() -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n")
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    client = ApiClient([address], certificates().ca)
    with pytest.raises(ConnectionLost, match=f"^{address}: TLS: wrong version number$"):
        await client.login(UNIT, MODEL)
    await client.close()
    server.close()


async def test_logins_go_round_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a client that dials no second server beside one that is slow to answer, as on a busy machine
    monkeypatch.setattr(dialling, "_STAGGER", 3600.0)
    async with stub() as one, stub() as two, stub() as three:
        servers = [one, two, three]
        client = ApiClient([server.address for server in servers], one.ca)
        for _ in range(6):
            await client.login(UNIT, MODEL)
        assert [len(server.peers) for server in servers] == [2, 2, 2]
        await client.close()


async def test_a_server_that_is_gone_is_passed_over() -> None:
    async with stub() as alive:
        client = ApiClient([nobody(), alive.address], alive.ca)
        made = await asyncio.gather(*(client.login(UNIT, MODEL) for _ in range(20)))
        assert {connection.server for connection in made} == {alive.address}
        await client.close()


async def test_a_server_that_hangs_is_passed_over_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # given few places, so that the other server answers all logins long before the dials to this one end
    monkeypatch.setattr(dialling, "_AT_ONCE", 16)
    monkeypatch.setattr(dialling, "_WITHIN", 12.0)

    async with stub() as alive, deaf_server() as (deaf, accepted, _):
        client = ApiClient([deaf, alive.address], alive.ca)
        made = await asyncio.gather(*(client.login(UNIT, MODEL) for _ in range(40)))
        assert {connection.server for connection in made} == {alive.address}
        # It had only its share of the places, and none after it had failed.
        assert 0 < len(accepted) <= 8
        await client.close()


@asynccontextmanager
async def silent_address() -> AsyncIterator[str]:
    """An address that answers no SYN: its backlog is full, as an address in another network answers none."""
    with socket.socket() as server, ExitStack() as callers:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            caller = callers.enter_context(socket.socket())
            caller.setblocking(False)
            with suppress(BlockingIOError):
                caller.connect(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("silent", [silent_address, deaf_address])
async def test_a_silent_address_costs_no_login_its_time(
    silent: Callable[[], AbstractAsyncContextManager[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # given a controller whose first address is silent, which a dial would wait for far longer than this test runs
    monkeypatch.setattr(dialling, "_WITHIN", 3600.0)
    async with stub() as server, silent() as hole:
        client = ApiClient([hole, server.address], server.ca)
        # when units log in, one after the other and together, then all of them come in by the other address
        connections = [await client.login(UNIT, MODEL) for _ in range(3)]
        connections += await asyncio.gather(*(client.login(UNIT, MODEL) for _ in range(20)))
        assert {connection.server for connection in connections} == {server.address}
        await client.close()


async def test_an_address_that_was_silent_is_not_dialled_by_later_logins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given an address that was silent for the first login
    monkeypatch.setattr(dialling, "_WITHIN", 3600.0)
    async with stub() as server, deaf_server() as (deaf, accepted, _):
        client = ApiClient([deaf, server.address], server.ca)
        await client.login(UNIT, MODEL)
        assert len(accepted) == 1
        # when others log in without a second chance, then nobody has dialled it
        monkeypatch.setattr(dialling, "_STAGGER", 3600.0)
        await asyncio.gather(*(client.login(UNIT, MODEL) for _ in range(20)))
        assert len(accepted) == 1
        await client.close()


async def test_an_address_that_is_back_is_dialled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # given two servers, one of which was away at the first login
    monkeypatch.setattr(dialling, "_LOOK_AGAIN", 0.0)
    away = nobody()
    async with stub() as there:
        client = ApiClient([away, there.address], there.ca)
        await client.login(UNIT, MODEL)
        # when it is back and logins go on, then one of them has it looked at, and later ones go there
        async with stub(port=int(away.rpartition(":")[2])) as back:
            while not back.peers:
                await client.login(UNIT, MODEL)
        await client.close()


async def test_each_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a name of two addresses, at the first of which nobody listens
    async with stub() as server:
        port = int(server.address.rpartition(":")[2])

        async def found(*_: Any, **__: Any) -> list[Any]:
            return [(0, 0, 0, "", (host, port)) for host in ("127.0.0.9", "127.0.0.1")]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
        client = ApiClient([f"controller.example:{port}"], server.ca)
        connection = await client.login(UNIT, MODEL)
        assert connection.server == f"controller.example:{port}"
        await client.close()


async def test_a_hanging_server_alone_loses_the_login_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialling, "_WITHIN", 0.2)

    async with deaf_server() as (deaf, _, _):
        client = ApiClient([deaf], certificates().ca)
        with pytest.raises(ConnectionLost, match=f"^{deaf}: no answer within 0.2 s$"):
            await client.login(UNIT, MODEL)
        await client.close()


async def test_a_loop_that_was_late_gives_a_dial_another_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    # Every look comes when the time is up, long before a server can have answered, and counts as late.
    monkeypatch.setattr(dialling, "_WITHIN", 0.0)
    monkeypatch.setattr(dialling, "LOCAL_STALL_TOLERANCE", -1.0)

    async with stub() as server:
        client = ApiClient([server.address], server.ca)
        assert (await client.login(UNIT, MODEL)).server == server.address
        await client.close()


async def test_servers_that_the_controller_named_are_tried_when_ours_are_gone() -> None:
    async with stub() as other:

        def answer(peer: Peer, request: dict[str, Any]) -> None:
            peer.reply(request, login_reply(servers=hosts(other.address)))

        async with stub(answer) as given:
            client = ApiClient([given.address], given.ca)
            assert (await client.login(UNIT, MODEL)).server == given.address
            assert (await client.login(UNIT, MODEL)).server == given.address
        assert (await client.login(UNIT, MODEL)).server == other.address
        await client.close()


async def test_a_server_given_by_name_is_looked_up() -> None:
    async with stub() as server:
        port = server.address.split(":")[1]
        client = ApiClient([f"localhost:{port}"], server.ca)
        assert (await client.login(UNIT, MODEL)).server == f"localhost:{port}"
        await client.close()


async def test_a_name_that_leads_nowhere_loses_the_login() -> None:
    client = ApiClient(["controller.invalid:17070"], certificates().ca)
    with pytest.raises(ConnectionLost, match=r"^controller.invalid:17070: "):
        await client.login(UNIT, MODEL)
    await client.close()


async def test_no_more_than_256_handshakes_are_under_way_and_a_cancelled_login_makes_room() -> None:
    begun: set[int] = set()

    async with deaf_server() as (deaf, accepted, bell):
        client = ApiClient([deaf], certificates().ca)
        logins = [client.login(UNIT, MODEL, begun=partial(begun.add, number)) for number in range(300)]
        async with bell:
            await bell.wait_for(lambda: len(accepted) >= 256)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(accepted) == 256
        # Who has begun to dial is told so, and nobody else.
        assert begun == set(range(256))
        for login in logins[:10]:
            login.cancel()
        async with bell:
            await bell.wait_for(lambda: len(accepted) >= 266)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(accepted) == 266
        assert begun == set(range(266))
        await client.close()
        results = await asyncio.gather(*logins, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results[:10])
        assert all(isinstance(result, ConnectionLost) for result in results[10:])


async def test_tls_sessions_are_resumed_and_a_restarted_server_that_knows_none_is_met_afresh() -> None:
    async with stub() as server:
        client = ApiClient([server.address], server.ca)
        for _ in range(3):
            await client.login(UNIT, MODEL)
        assert [peer.resumed for peer in server.peers] == [False, True, True]
    async with stub(port=int(server.address.split(":")[1])) as again:
        for _ in range(2):
            await client.login(UNIT, MODEL)
        assert [peer.resumed for peer in again.peers] == [False, True]
        await client.close()


async def test_a_process_without_files_left_says_so_and_blames_no_server() -> None:
    async with stub() as server:
        client = ApiClient([server.address], server.ca)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with socket.socket() as highest:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest.fileno(), hard))
        try:
            with pytest.raises(ConnectionLost, match=f"^{server.address}: Too many open files$"):
                await client.login(UNIT, MODEL)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (await client.login(UNIT, MODEL)).server == server.address
        await client.close()


async def test_cancelling_a_login_closes_its_socket() -> None:
    asked = asyncio.Event()

    async with stub(lambda peer, request: asked.set()) as server:
        client = ApiClient([server.address], server.ca)
        login = client.login(UNIT, MODEL)
        await asked.wait()
        login.cancel()
        await server.peers[0].closed.wait()
        assert client.connections == 0
        await client.close()


async def losing(
    client: ApiClient, harm: Callable[[Connection], object]
) -> tuple[list[str], list[BaseException | Any]]:
    """Log in, make two calls that get no answer, do harm; what `closed` heard and how the calls ended."""
    heard: list[str] = []
    lost = asyncio.Event()

    def closed(reason: str) -> None:
        heard.append(reason)
        lost.set()

    connection = await client.login(UNIT, MODEL, closed)
    calls = [connection.call("LeadershipService", "Block", {"n": n}) for n in range(2)]
    assert not connection.closed
    harm(connection)
    results = await asyncio.gather(*calls, return_exceptions=True)
    await lost.wait()
    assert connection.closed
    with pytest.raises(ConnectionLost, match="the connection is closed"):
        await connection.call("LeadershipService", "Block", {})
    connection.close()
    assert client.connections == 0
    return heard, results


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda peer: peer.raw(server_frame(0x8, b"\x03\xe9")), "closed by the server: 1001 going away"),
        (lambda peer: peer.raw(server_frame(0x8, b"")), "closed by the server: no reason given"),
        (lambda peer: peer.cut(), "connection closed by the server|Connection reset by peer"),
        (lambda peer: peer.raw(server_frame(0x1, b"{garbage")), "sent a message that is not a reply"),
        (lambda peer: peer.raw(server_frame(0x1, b"[1]")), "sent a message that is not a reply"),
        (lambda peer: peer.raw(server_frame(0x1, b'{"request":"x"}')), "sent a message that is not a reply"),
        (
            lambda peer: peer.raw(server_frame(0x1, b'{"request-id":[3]}')),
            "sent a message that is not a reply",
        ),
        (
            lambda peer: peer.raw(server_frame(0x1, b'{"request-id":"3"}')),
            "sent a message that is not a reply",
        ),
        (lambda peer: peer.raw(b"\xff\xff\xff\xff"), "sent a WebSocket frame with reserved bits"),
        (lambda peer: peer.raw(b"\x81\x7f" + b"\x01" * 8), "expected at most 67108864"),
    ],
)
async def test_a_lost_connection_ends_its_calls_and_says_why_once(
    harm: Callable[[Peer], object], said: str
) -> None:
    def answer(peer: Peer, request: dict[str, Any]) -> None:
        if request["request"] == "Login":
            obliging(peer, request)
        elif request["params"]["n"] == 1:
            harm(peer)

    async with stub(answer) as server:
        client = ApiClient([server.address], server.ca)
        heard, results = await losing(client, lambda connection: None)
        assert len(heard) == 1
        assert heard[0].startswith(f"{server.address}: ")
        assert re.search(said, heard[0])
        assert [type(result) for result in results] == [ConnectionLost, ConnectionLost]
        assert {str(result) for result in results} == set(heard)
        await client.close()


async def test_a_login_that_is_cut_off_is_lost() -> None:
    async with stub(lambda peer, request: peer.cut()) as server:
        client = ApiClient([server.address], server.ca)
        with pytest.raises(ConnectionLost, match=server.address):
            await client.login(UNIT, MODEL)
        await client.close()


async def test_a_server_that_does_not_read_loses_the_connection_before_memory_fills() -> None:
    def answer(peer: Peer, request: dict[str, Any]) -> None:
        peer.silent = True
        obliging(peer, request)

    async with stub(answer) as server:
        client = ApiClient([server.address], server.ca)

        def flood(connection: Connection) -> None:
            big = "x" * 2**20
            for _ in range(40):
                connection.call("LeadershipService", "Echo", {"x": big}).add_done_callback(
                    lambda call: call.exception()
                )

        heard, results = await losing(client, flood)
        assert len(heard) == 1
        assert "does not read" in heard[0]
        assert [type(result) for result in results] == [ConnectionLost, ConnectionLost]
        await client.close()


async def test_messages_of_many_megabytes_arrive_whole_both_ways() -> None:
    async with stub() as server:
        client = ApiClient([server.address], server.ca)
        connection = await client.login(UNIT, MODEL)
        big = {"text": "0123456789" * 1_200_000}
        small = connection.call("LeadershipService", "Echo", {"n": 1})
        assert await connection.call("LeadershipService", "Echo", big) == big
        assert await small == {"n": 1}
        await client.close()


async def test_a_response_in_fragments_with_pings_between_is_read_and_the_pings_are_answered() -> None:
    def answer(peer: Peer, request: dict[str, Any]) -> None:
        if request["request"] == "Login":
            obliging(peer, request)
            return
        text = b'{"request-id":%d,"response":{"n":7}}' % request["request-id"]
        peer.raw(server_frame(0x1, text[:9], final=False) + server_frame(0x9, b"there?"))
        peer.raw(server_frame(0x0, text[9:]))

    async with stub(answer) as server:
        client = ApiClient([server.address], server.ca)
        connection = await client.login(UNIT, MODEL)
        assert await connection.call("LeadershipService", "Echo", {}) == {"n": 7}
        assert await connection.call("LeadershipService", "Echo", {}) == {"n": 7}
        assert (0xA, b"there?") in server.peers[0].frames
        await client.close()


async def test_closing_says_goodbye_and_ends_what_is_under_way() -> None:
    def answer(peer: Peer, request: dict[str, Any]) -> None:
        if request["request"] == "Login":
            obliging(peer, request)

    async with stub(answer) as server:
        heard: list[str] = []
        client = ApiClient([server.address], server.ca)
        connection = await client.login(UNIT, MODEL, heard.append)
        call = connection.call("LeadershipService", "Block", {})
        other = await client.login(UNIT, MODEL, heard.append)
        blocked = other.call("LeadershipService", "Block", {})
        connection.close()
        with pytest.raises(ConnectionLost, match="closed by the client"):
            await call
        assert client.connections == 1
        await client.close()
        with pytest.raises(ConnectionLost, match="closed by the client"):
            await blocked
        for peer in server.peers:
            await peer.closed.wait()
            assert peer.frames[-1] == (0x8, b"\x03\xe8")
        with pytest.raises(ConnectionLost, match="the client is closed"):
            await client.login(UNIT, MODEL)
        assert heard == []


async def test_each_connection_is_pinged_from_its_login_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tippingpoint.targets.juju.api.client.PERIOD", 0.02)
    pinged = asyncio.Event()

    def answer(peer: Peer, request: dict[str, Any]) -> None:
        obliging(peer, request)
        if all(len(one.requests) >= 4 for one in peer.server.peers):
            pinged.set()

    async with stub(answer) as server:
        client = ApiClient([server.address], server.ca)
        await client.login(UNIT, MODEL)
        await client.login(UNIT, None)
        await pinged.wait()
        for peer in server.peers:
            ping = peer.requests[3]
            assert (ping["type"], ping["version"], ping["request"]) == ("Pinger", 1, "Ping")
        assert client.connections == 2
        await client.close()


async def test_a_ping_without_an_answer_loses_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tippingpoint.targets.juju.api.client.PERIOD", 0.1)
    monkeypatch.setattr("tippingpoint.targets.juju.api.client.PATIENCE", 0.05)

    def answer(peer: Peer, request: dict[str, Any]) -> None:
        if request["request"] == "Login":
            obliging(peer, request)

    async with stub(answer) as server:
        client = ApiClient([server.address], server.ca)
        heard, results = await losing(client, lambda connection: None)
        assert heard == [f"{server.address}: no answer to a ping within 0.05 s"]
        assert [type(result) for result in results] == [ConnectionLost, ConnectionLost]
        await client.close()


class Listener:
    """A connection to a ping clock: answers pings or not."""

    def __init__(self, answers: bool) -> None:
        self.answers = answers
        self.pings = 0
        self.lost = asyncio.Event()
        self.tenth = asyncio.Event()

    def ping(self) -> int | None:
        if self.lost.is_set():
            return None
        self.pings += 1
        if self.pings == 10:
            self.tenth.set()
        return self.pings

    def unanswered(self, ping: int) -> bool:
        return not self.answers and not self.lost.is_set()

    def unreachable(self, seconds: float) -> None:
        self.lost.set()


async def test_a_loop_that_was_late_gives_a_ping_another_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pings, "LOCAL_STALL_TOLERANCE", 0.0)

    silent, answering = Listener(answers=False), Listener(answers=True)
    clock = PingClock(asyncio.get_running_loop(), 0.01, 0.01)
    clock.start(silent)
    clock.start(answering)
    await answering.tenth.wait()
    # Every look at the answers came late, so none that is missing was held against the connection.
    assert not silent.lost.is_set()
    monkeypatch.setattr(pings, "LOCAL_STALL_TOLERANCE", 10.0)
    await silent.lost.wait()
    assert silent.ping() is None
    assert not answering.lost.is_set()
    clock.close()
