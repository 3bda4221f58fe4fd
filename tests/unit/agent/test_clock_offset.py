"""Clock offsets: measured on loopback against servers whose clocks are shifted."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tippingpoint.agent.clock_offset import REQUEST, ClockServer, measure_offset
from tippingpoint.errors import UserError

LOOPS = ("asyncio", "uvloop")


def ahead(seconds: float) -> float:
    return time.time() + seconds


@pytest.mark.parametrize("theirs", [-3600.0, -0.25, 0.0, 7.5])
async def test_an_offset_is_how_far_our_clock_is_ahead_of_theirs(theirs: float) -> None:
    # given a server whose clock is so many seconds ahead of ours
    server = await ClockServer.listen("127.0.0.1", now=lambda: ahead(theirs))
    found = await measure_offset(server.address)
    server.close()
    # then ours is that much behind, within what the measurement says of itself
    assert found is not None
    offset, error = found
    assert 0 < error <= 1.0
    assert abs(offset + theirs) <= error + 0.001


async def test_both_sides_measure_the_same_with_opposite_signs() -> None:
    one = await ClockServer.listen("127.0.0.1", now=lambda: ahead(100))
    other = await ClockServer.listen("127.0.0.1")
    ours = await measure_offset(other.address, now=lambda: ahead(100))
    theirs = await measure_offset(one.address)
    one.close()
    other.close()
    assert ours is not None
    assert theirs is not None
    assert ours[0] == pytest.approx(100, abs=ours[1] + 0.001)
    assert theirs[0] == pytest.approx(-100, abs=theirs[1] + 0.001)


async def test_an_ipv6_address_has_brackets() -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        server = await ClockServer.listen("::1")
    except UserError:
        pytest.skip("no IPv6 here")
    found = await measure_offset(server.address)
    server.close()
    assert server.address.startswith("[::1]:")
    assert found is not None


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":",
        "nonsense",
        "localhost:123",
        "127.0.0.1",
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1:99999",
        "::1:80:",
    ],
)
async def test_what_is_no_address_has_no_offset(address: str) -> None:
    assert await measure_offset(address) is None


async def test_where_nobody_answers_there_is_no_offset() -> None:
    # given a socket that takes everything and says nothing
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        assert await measure_offset(f"127.0.0.1:{silent.getsockname()[1]}", probes=1) is None


async def test_a_server_cannot_listen_on_what_is_not_ours_and_says_so_in_one_line() -> None:
    with pytest.raises(UserError, match=r"clock: 203\.0\.113\.1:0: expected an address of this machine"):
        await ClockServer.listen("203.0.113.1")


class Liar(asyncio.DatagramProtocol):
    """Answers each request with something else."""

    def __init__(self, lies: list[bytes]) -> None:
        self.lies = lies

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: object) -> None:
        for lie in self.lies:
            self.transport.sendto(lie, addr)


LIES = [b"", b"x" * 28, b"tpc!" + bytes(16) + bytes(8), b"tpc!", bytes(65_000), b"tpc?" + bytes(28)]


async def test_an_answer_to_another_question_is_none() -> None:
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Liar(LIES), local_addr=("127.0.0.1", 0)
    )
    host, port = transport.get_extra_info("sockname")
    found = await measure_offset(f"{host}:{port}", probes=1)
    transport.close()
    assert found is None


@examples(30)
@given(
    st.lists(
        st.one_of(st.binary(max_size=100), st.binary(min_size=28, max_size=28).map(lambda b: b"tpc?" + b))
    )
)
async def test_a_server_never_says_more_than_it_was_told_and_survives_garbage(garbage: list[bytes]) -> None:
    server = await ClockServer.listen("127.0.0.1")
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ours:
        ours.setblocking(False)
        host, port = server.address.rsplit(":", 1)
        await loop.sock_connect(ours, (host, int(port)))
        answers: list[bytes] = []
        for datagram in garbage:
            await loop.sock_sendall(ours, datagram)
        found = await measure_offset(server.address, probes=1)  # by then it has heard all of that
        while True:
            try:
                answers.append(ours.recv(65536))
            except BlockingIOError:
                break
    server.close()
    asked = [datagram for datagram in garbage if len(datagram) == REQUEST and datagram.startswith(b"tpc?")]
    assert len(answers) == len(asked)
    assert all(len(answer) < REQUEST for answer in answers)
    assert [answer[4:20] for answer in answers] == [datagram[4:20] for datagram in asked]
    assert found is not None
