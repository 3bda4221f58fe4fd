"""WebSocket framing of the Juju client: what arrives is read however it is cut, what is sent can be read."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.targets.juju.juju_stub import read_client_frame, server_frame
from tippingpoint.targets.juju.api import websocket
from tippingpoint.targets.juju.api.websocket import FrameReader, Upgrade, WebSocketError

payloads = st.one_of(
    st.binary(max_size=200),
    st.integers(0, 3).map(lambda more: b"x" * (125 + more)),
    st.integers(0, 3).map(lambda more: b"y" * (2**16 - 1 + more)),
)


def feed_in_pieces(reader: FrameReader, data: bytes, cuts: list[int]) -> list[tuple[int, bytes]]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    frames: list[tuple[int, bytes]] = []
    for begin, end in itertools.pairwise(edges):
        frames += reader.feed(data[begin:end])
    return frames


@given(st.lists(payloads, max_size=6), st.lists(st.integers(min_value=0), max_size=8))
def test_messages_are_read_however_the_bytes_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    data = b"".join(server_frame(websocket.TEXT, message) for message in messages)
    assert feed_in_pieces(FrameReader(), data, cuts) == [(websocket.TEXT, message) for message in messages]


@given(st.lists(payloads, min_size=2, max_size=4), st.lists(st.integers(min_value=0), max_size=8))
def test_a_fragmented_message_is_put_together_with_control_frames_between_its_parts(
    parts: list[bytes], cuts: list[int]
) -> None:
    data = b""
    for number, part in enumerate(parts):
        opcode = websocket.CONTINUATION if number else websocket.TEXT
        data += server_frame(opcode, part, final=number == len(parts) - 1)
        if number < len(parts) - 1:
            data += server_frame(websocket.PING, b"between")
    frames = feed_in_pieces(FrameReader(), data, cuts)
    pings = [(websocket.PING, b"between")] * (len(parts) - 1)
    assert frames == [*pings, (websocket.TEXT, b"".join(parts))]


@given(payloads)
async def test_what_we_send_is_what_a_server_reads(payload: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(websocket.frame(websocket.TEXT, payload))
    reader.feed_eof()
    frame = await read_client_frame(reader)
    assert not await reader.read()
    assert frame == (websocket.TEXT, payload)


def test_every_frame_has_a_masking_key_of_its_own() -> None:
    keys = {websocket.frame(websocket.TEXT, b"")[2:6] for _ in range(3000)}
    assert len(keys) > 2990


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\xc1\x00", "reserved bits"),
        (b"\x81\x80\x00\x00\x00\x00", "masked"),
        (server_frame(websocket.CONTINUATION, b"x"), "out of order"),
        (
            server_frame(websocket.TEXT, b"x", final=False) + server_frame(websocket.TEXT, b"y"),
            "out of order",
        ),
        (server_frame(0x3, b""), "out of order"),
        (server_frame(0xB, b""), "control frame"),
        (server_frame(websocket.PING, b"", final=False), "control frame"),
        (server_frame(websocket.PING, b"x" * 126), "control frame"),
        (b"\x81\x7f" + (64 * 2**20 + 1).to_bytes(8, "big"), "expected at most 67108864"),
        (b"\x81\x7f" + b"\xff" * 8, "expected at most 67108864"),
    ],
)
def test_what_the_standard_forbids_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(WebSocketError, match=said):
        FrameReader().feed(data)


def test_a_message_too_long_in_parts_is_refused_before_it_is_held() -> None:
    part = bytes(2**20)
    reader = FrameReader()
    reader.feed(server_frame(websocket.TEXT, part, final=False))
    for _ in range(63):
        reader.feed(server_frame(websocket.CONTINUATION, part, final=False))
    with pytest.raises(WebSocketError, match="67108865 bytes"):
        reader.feed(server_frame(websocket.CONTINUATION, b"x", final=False))


@pytest.mark.parametrize(
    "frame",
    [
        server_frame(websocket.PING, b"x"),
        server_frame(websocket.PONG, b""),
        server_frame(websocket.CONTINUATION, b"", final=False),
    ],
)
def test_a_flood_of_frames_that_carry_nothing_is_refused(frame: bytes) -> None:
    # given a server in the middle of a message
    reader = FrameReader()
    reader.feed(server_frame(websocket.TEXT, b"begun", final=False))
    # when it sends frames of one kind without end, then it is refused after a bounded number
    for _ in range(websocket.FLOOD // 100):
        reader.feed(frame * 100)
    with pytest.raises(WebSocketError, match="sent a flood of frames that carry nothing"):
        reader.feed(frame)


def test_a_server_that_pings_between_messages_floods_nobody() -> None:
    reader = FrameReader()
    for _ in range(3):
        reader.feed(server_frame(websocket.PING, b"x") * (websocket.FLOOD - 1))
        assert reader.feed(server_frame(websocket.TEXT, b"whole")) == [(websocket.TEXT, b"whole")]
        reader.feed(server_frame(websocket.PING, b"x") * (websocket.FLOOD - 1))
        assert reader.feed(server_frame(websocket.TEXT, b"")) == [(websocket.TEXT, b"")]
        reader.feed(server_frame(websocket.TEXT, b"", final=False))
        assert reader.feed(server_frame(websocket.CONTINUATION, b"x")) == [(websocket.TEXT, b"x")]


def test_close_frames_say_why() -> None:
    assert websocket.close_reason(websocket.close_payload(1001)) == "1001 going away"
    assert websocket.close_reason(b"\x03\xf3because") == "1011 because"
    assert websocket.close_reason(b"\x0f\xa0") == "4000"
    assert websocket.close_reason(b"") == "no reason given"


def accepting(upgrade: Upgrade) -> bytes:
    key = upgrade.request.split(b"Sec-WebSocket-Key: ")[1].split(b"\r\n")[0]
    accept = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: WebSocket\r\nSEC-WEBSOCKET-ACCEPT: "
        + accept
        + b"\r\n\r\n"
    )


@given(st.integers(min_value=1))
def test_the_handshake_may_come_in_pieces_and_what_follows_it_is_kept(cut: int) -> None:
    upgrade = Upgrade("192.0.2.1:17070", "/model/x/api")
    assert upgrade.request.startswith(b"GET /model/x/api HTTP/1.1\r\nHost: 192.0.2.1:17070\r\n")
    answer = accepting(upgrade)
    cut %= len(answer)
    assert upgrade.feed(answer[:cut]) is None
    assert upgrade.feed(answer[cut:] + b"first frame") == b"first frame"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\nstarting up", "503 Service Unavailable starting up"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1\r\n\r\n", "not HTTP"),
        (accepting(Upgrade("another", "/")), "handshake incorrectly"),
        (b"x" * 20000, "did not answer with HTTP"),
    ],
)
def test_a_server_that_refuses_a_websocket_is_quoted(answer: bytes, said: str) -> None:
    with pytest.raises(WebSocketError, match=said):
        Upgrade("192.0.2.1:17070", "/api").feed(answer)


def test_a_long_refusal_is_quoted_in_part_and_in_one_line() -> None:
    with pytest.raises(WebSocketError) as refused:
        Upgrade("192.0.2.1:17070", "/api").feed(b"HTTP/1.1 503 " + b"no\x07way " * 5000 + b"\r\n\r\nbody")
    assert len(str(refused.value)) < 1000
    assert str(refused.value).isprintable()
