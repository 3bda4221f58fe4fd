"""HTTP/2 frames and gRPC messages, as a server may send them and as they leave."""

from __future__ import annotations

import asyncio
import itertools
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.etcd import grpc as rpc
from tippingpoint.targets.etcd import http2
from tippingpoint.targets.etcd import messages as pb
from tippingpoint.targets.etcd.access import Endpoint
from tippingpoint.targets.etcd.http2 import Connection, Headers, Stream, StreamError, frame
from tippingpoint.targets.etcd.v3_link import Link, Login
from tippingpoint.util import protobuf

OK_HEADERS = [(":status", "200"), ("content-type", "application/grpc")]
OK_TRAILERS = [("grpc-status", "0"), ("grpc-message", "")]


class Wire(asyncio.Transport):
    """The far end of the socket: remembers what was written, and can be shut."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.protocol: Connection
        self.shut = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.shut

    def close(self) -> None:
        if not self.shut:
            self.shut = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    abort = close

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """Everything written so far, past the preface: type, flags, stream, payload."""
        data = b"".join(self.writes).removeprefix(http2.PREFACE)
        found: list[tuple[int, int, int, bytes]] = []
        while data:
            length = int.from_bytes(data[:3], "big")
            found.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9 : 9 + length]))
            data = data[9 + length :]
        return found

    def sent(self, kind: int, stream: int | None = None) -> list[bytes]:
        return [payload for k, _, number, payload in self.frames() if k == kind and stream in (None, number)]


@dataclass
class Server:
    """A connection, its wire, and a server's HPACK state."""

    wire: Wire = field(default_factory=Wire)
    downs: list[str] = field(default_factory=list)
    encoder: hpack.Encoder = field(default_factory=hpack.Encoder)

    def __post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.connection = Connection(loop, lambda reason, _cause: self.downs.append(reason))
        self.wire.protocol = self.connection
        self.connection.connection_made(self.wire)

    def says(self, *frames: bytes) -> None:
        self.connection.data_received(b"".join(frames))

    def settings(self, **values: int) -> bytes:
        names = {"max_streams": 3, "initial_window": 4, "max_frame": 5}
        pairs = (names[name].to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in values.items())
        return frame(http2.SETTINGS, 0, 0, b"".join(pairs))

    def headers(self, stream: int, headers: Headers, end: bool = False) -> bytes:
        flags = http2.END_HEADERS | (http2.END_STREAM if end else 0)
        return frame(http2.HEADERS, flags, stream, self.encoder.encode(headers))


class Told(Stream):
    """A stream that writes down what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []

    def on_headers(self, headers: Headers) -> None:
        self.events.append(list(headers))

    def on_data(self, data: bytes) -> None:
        if self.events and isinstance(self.events[-1], bytes):
            self.events[-1] += data
        else:
            self.events.append(data)

    def on_end(self, failure: StreamError | None) -> None:
        self.events.append("end" if failure is None else f"failed: {failure}")


class Answers(rpc.Call):
    """A call that writes down its messages and its end."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[bytes] = []
        self.ends: list[tuple[int, str]] = []

    def on_message(self, message: bytes) -> None:
        self.messages.append(message)

    def on_close(self, error: rpc.RpcError | None) -> None:
        self.ends.append((0, "") if error is None else (error.code, error.message))


@asynccontextmanager
async def connected() -> AsyncIterator[Server]:
    server = Server()
    yield server
    server.connection.abort("the test is over")
    await asyncio.sleep(0)


async def turn() -> None:
    """Let the loop do what is due."""
    for _ in range(3):
        await asyncio.sleep(0)


def opened(server: Server, kind: type[Any] = Told, **how: Any) -> Any:
    stream = kind()
    server.connection.open(stream, b"\x83", **how)
    return stream


# --- what arrives


def conversation(server: Server) -> bytes:
    """A server that uses everything it may: streams 1 and 3, with 1 answered in three messages."""
    block = server.encoder.encode([*OK_HEADERS, ("x-long", "v" * 300)])
    first, second, third = (rpc.framed(bytes([n]) * n) for n in (5, 200, 60))
    body = first + second + third
    padded = bytes([7]) + body[30:90] + bytes(7)
    return b"".join(
        [
            server.settings(max_streams=100, initial_window=1 << 20),
            frame(http2.SETTINGS, http2.ACK, 0),
            frame(http2.HEADERS, 0, 1, block[:100]),
            frame(http2.CONTINUATION, 0, 1, block[100:101]),
            frame(http2.CONTINUATION, http2.END_HEADERS, 1, block[101:]),
            frame(http2.PING, 0, 0, b"12345678"),
            frame(http2.DATA, 0, 1, body[:30]),
            frame(http2.WINDOW_UPDATE, 0, 0, (1000).to_bytes(4, "big")),
            frame(http2.DATA, http2.PADDED, 1, padded),
            server.headers(3, OK_HEADERS),
            frame(0xBE, 0xFF, 1, b"an extension nobody knows"),
            frame(http2.DATA, 0, 3, rpc.framed(b"") + rpc.framed(b"x")),
            frame(http2.DATA, 0, 1, body[90:]),
            frame(http2.DATA, 0, 1),
            server.headers(1, OK_TRAILERS, end=True),
            server.headers(3, [("grpc-status", "9"), ("grpc-message", "no%20%C3%BC")], end=True),
        ]
    )


@given(st.lists(st.integers(0, 1200), max_size=40))
@settings(max_examples=60, deadline=None)
async def test_bytes_mean_the_same_however_they_are_chopped(cuts: list[int]) -> None:
    async with connected() as server:
        one, three = opened(server, Answers), opened(server, Answers)
        data = conversation(server)
        places = [0, *sorted(cuts), len(data)]
        for start, end in itertools.pairwise(places):
            if data[start:end]:
                server.connection.data_received(data[start:end])
        await turn()
        assert one.messages == [b"\5" * 5, bytes([200]) * 200, b"\x3c" * 60]
        assert one.ends == [(0, "")]
        assert three.messages == [b"", b"x"]
        assert three.ends == [(9, "no ü")]
        assert server.wire.sent(http2.PING) == [b"12345678"]
        assert not server.downs


async def test_one_byte_at_a_time_means_the_same_too() -> None:
    async with connected() as server:
        one, three = opened(server, Answers), opened(server, Answers)
        for byte in conversation(server):
            server.connection.data_received(bytes([byte]))
        assert (len(one.messages), one.ends, three.ends) == (3, [(0, "")], [(9, "no ü")])


@given(st.binary(max_size=200), st.integers(0, 9), st.integers(0, 255), st.integers(0, 5))
@settings(max_examples=200, deadline=None)
async def test_nonsense_ends_the_connection_or_nothing(
    junk: bytes, kind: int, flags: int, number: int
) -> None:
    async with connected() as server:
        stream = opened(server)
        server.says(server.settings(), frame(kind, flags, number, junk), junk)
        await turn()
        assert len(server.downs) <= 1
        server.connection.abort("the test is over")
        assert len(server.downs) == 1
        assert [isinstance(event, str) for event in stream.events[-1:]] == [True]
        assert sum(isinstance(event, str) for event in stream.events) == 1


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"\x00\x40\x01\x00\x00\x00\x00\x00\x01", "frame of 16385 bytes"),
        (frame(http2.DATA, 0, 9, b"x"), "stream 9, which was never opened"),
        (frame(http2.DATA, 0, 0, b"x"), "stream 0, which was never opened"),
        (frame(http2.HEADERS, http2.END_HEADERS, 2, b"\x88"), "stream 2, which was never opened"),
        (frame(http2.DATA, http2.PADDED, 1, b"\x05abc"), "padding"),
        (frame(http2.HEADERS, 0, 1, b"\x88") + frame(http2.DATA, 0, 1, b"x"), "header block interrupted"),
        (frame(http2.CONTINUATION, 0, 1, b"\x88"), "CONTINUATION out of place"),
        (frame(http2.HEADERS, http2.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"), "bad header block"),
        (frame(http2.SETTINGS, 0, 0, b"12345"), "malformed SETTINGS"),
        (frame(http2.WINDOW_UPDATE, 0, 0, bytes(4)), "bad connection window"),
        (frame(http2.WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"), "bad connection window"),
        (frame(http2.PUSH_PROMISE, 0, 1, bytes(4)), "PUSH_PROMISE"),
        (frame(http2.GOAWAY, 0, 0, b"short"), "malformed GOAWAY"),
        (b"HTTP/1.0 400 Bad Request\r\n\r\n", "answers HTTP/1"),
    ],
)
async def test_a_server_that_breaks_the_rules_is_left(bad: bytes, why: str) -> None:
    async with connected() as server:
        stream = opened(server)
        server.says(bad)
        await turn()
        assert why in server.downs[0]
        assert stream.events == [f"failed: {server.downs[0]}"]
        assert len(server.wire.sent(http2.GOAWAY)) == 1
        assert server.wire.shut
        later = opened(server)
        await turn()
        assert later.events == [f"failed: {server.downs[0]}"]


async def test_headers_that_repeat_mean_the_same_after_the_table_changed() -> None:
    async with connected() as server:
        decoded: list[Headers] = []
        for number, value in enumerate(["a", "a", "b", "a", "b", "b", "a"]):
            stream = opened(server)
            headers = [(":status", "200"), ("x-value", value), ("x-other", value * 2)]
            server.says(server.headers(2 * number + 1, headers, end=True))
            decoded.append(stream.events[0])
        assert [dict(headers)["x-value"] for headers in decoded] == ["a", "a", "b", "a", "b", "b", "a"]
        assert [dict(headers)["x-other"] for headers in decoded] == ["aa", "aa", "bb", "aa", "bb", "bb", "aa"]


async def test_what_was_received_is_credited_to_the_stream_and_the_connection() -> None:
    async with connected() as server:
        opened(server)
        server.says(server.headers(1, OK_HEADERS))
        total = 3 << 20
        for _ in range(total // 16384):
            server.says(frame(http2.DATA, 0, 1, bytes(16384)))
        await turn()

        def credit(stream: int) -> int:
            return sum(
                int.from_bytes(update, "big") for update in server.wire.sent(http2.WINDOW_UPDATE, stream)
            )

        extra = http2.CONNECTION_WINDOW - http2.DEFAULT_WINDOW  # given when the connection was made
        assert total - http2.CONNECTION_WINDOW / 2 <= credit(0) - extra <= total
        assert total - http2.STREAM_WINDOW / 2 <= credit(1) <= total


# --- what leaves


@given(st.lists(st.tuples(st.sampled_from(["te", "token", ":path"]), st.text("az/.-_ 0~", max_size=400))))
def test_a_header_block_is_hpack(headers: Headers) -> None:
    decoded = hpack.Decoder().decode(http2.header_block(headers))
    assert [(str(name), str(value)) for name, value in decoded] == headers


async def test_what_is_sent_in_one_turn_leaves_in_one_write_and_one_frame() -> None:
    async with connected() as server:
        stream = opened(server)
        await turn()
        before = len(server.wire.writes)
        for number in range(100):
            stream.send(b"message %02d" % number)
        await turn()
        assert len(server.wire.writes) == before + 1
        assert server.wire.sent(http2.DATA) == [b"".join(b"message %02d" % number for number in range(100))]


async def test_a_body_waits_for_both_windows() -> None:
    async with connected() as server:
        data = bytes(range(256)) * 800
        stream = opened(server, body=data, end=True)

        async def arrived(*frames: bytes) -> int:
            server.says(*frames)
            await turn()
            return len(b"".join(server.wire.sent(http2.DATA)))

        def more(number: int, size: int) -> bytes:
            return frame(http2.WINDOW_UPDATE, 0, number, size.to_bytes(4, "big"))

        assert await arrived() == http2.DEFAULT_WINDOW
        assert await arrived(more(1, 50_000)) == http2.DEFAULT_WINDOW
        assert await arrived(more(0, 1_000)) == http2.DEFAULT_WINDOW + 1_000
        assert await arrived(more(0, 1 << 20)) == http2.DEFAULT_WINDOW + 50_000
        smaller = server.settings(initial_window=1_000)  # takes what is left of the stream's window and more
        assert await arrived(smaller, more(1, 60_000)) == http2.DEFAULT_WINDOW + 50_000
        assert await arrived(more(1, 5_535)) == http2.DEFAULT_WINDOW + 51_000
        assert await arrived(more(1, 1 << 20)) == len(data)
        assert b"".join(server.wire.sent(http2.DATA)) == data
        flags = [flags for kind, flags, _, _ in server.wire.frames() if kind == http2.DATA]
        assert [bool(flag & http2.END_STREAM) for flag in flags] == [False] * (len(flags) - 1) + [True]
        assert max(map(len, server.wire.sent(http2.DATA))) <= http2.MAX_FRAME
        assert stream.active


async def test_a_stream_without_a_window_holds_nobody_up() -> None:
    async with connected() as server:
        # given one stream that used up its own window, and three that wait for the connection's
        server.says(frame(http2.WINDOW_UPDATE, 0, 0, (10_000).to_bytes(4, "big")))
        opened(server, body=b"a" * (http2.DEFAULT_WINDOW + 1), end=True)
        opened(server, body=b"b" * 10_000, end=True)
        waiting = [opened(server, body=letter, end=True) for letter in (b"c", b"d", b"e")]
        await turn()
        assert server.wire.sent(http2.DATA, 3) == [b"b" * 10_000]
        assert server.wire.sent(http2.DATA, 5) == []
        # when one of these is no longer wanted, and the connection's window opens
        waiting[1].cancel()
        server.says(frame(http2.WINDOW_UPDATE, 0, 0, (100).to_bytes(4, "big")))
        await turn()
        # then the others leave, and the first one once its own window is larger
        assert server.wire.sent(http2.DATA)[-2:] == [b"c", b"e"]
        server.says(server.settings(initial_window=http2.DEFAULT_WINDOW + 1))
        await turn()
        assert server.wire.sent(http2.DATA, 1)[-1] == b"a"


async def test_streams_beyond_the_servers_limit_wait_their_turn() -> None:
    async with connected() as server:
        server.says(server.settings(max_streams=2))
        streams = [opened(server, body=b"%d" % number, end=True) for number in range(4)]
        urgent = opened(server, body=b"urgent", end=True, first=True)
        unwanted = opened(server, body=b"unwanted", end=True)
        unwanted.cancel()
        await turn()
        assert server.wire.sent(http2.DATA) == [b"0", b"1"]
        server.says(server.headers(1, OK_TRAILERS, end=True))
        await turn()
        assert server.wire.sent(http2.DATA) == [b"0", b"1", b"urgent"]
        server.says(server.settings(max_streams=10))
        await turn()
        assert server.wire.sent(http2.DATA) == [b"0", b"1", b"urgent", b"2", b"3"]
        assert streams[0].events[-1] == "end"
        assert urgent.active


async def test_nothing_is_written_while_the_socket_is_full() -> None:
    async with connected() as server:
        stream = opened(server)
        await turn()
        server.connection.pause_writing()
        stream.send(b"later")
        await turn()
        assert server.wire.sent(http2.DATA) == []
        server.connection.resume_writing()
        await turn()
        assert server.wire.sent(http2.DATA) == [b"later"]


async def test_a_cancelled_stream_is_reset_and_what_still_comes_for_it_ignored() -> None:
    async with connected() as server:
        stream = opened(server)
        stream.cancel()
        stream.cancel()
        stream.send(b"too late")
        server.says(server.headers(1, OK_HEADERS), frame(http2.DATA, 0, 1, b"late"))
        server.says(frame(http2.RST_STREAM, 0, 1, bytes(4)))
        await turn()
        assert server.wire.sent(http2.RST_STREAM) == [http2.CANCEL.to_bytes(4, "big")]
        assert server.wire.sent(http2.DATA) == []
        assert stream.events == []
        assert not server.downs


# --- how it ends


async def test_a_server_that_goes_away_finishes_what_it_has_seen() -> None:
    async with connected() as server:
        server.says(server.settings(max_streams=2))
        seen, unseen, queued = opened(server), opened(server), opened(server)
        server.says(frame(http2.GOAWAY, 0, 0, (1).to_bytes(4, "big") + bytes(4)))
        assert server.downs == ["the server is closing the connection"]
        assert unseen.events == queued.events == ["failed: the server is closing the connection"]
        server.says(server.headers(1, OK_HEADERS), frame(http2.DATA, http2.END_STREAM, 1, b"answer"))
        assert seen.events == [OK_HEADERS, b"answer", "end"]
        await turn()
        assert server.wire.shut
        assert len(server.downs) == 1


async def test_a_server_gone_inside_a_frame_fails_what_was_under_way() -> None:
    async with connected() as server:
        stream = opened(server)
        server.says(server.headers(1, OK_HEADERS), frame(http2.DATA, 0, 1, b"half of this")[:-4])
        server.connection.connection_lost(ConnectionResetError(104, "reset"))
        assert stream.events == [OK_HEADERS, "failed: Connection reset by peer"]
        assert server.downs == ["Connection reset by peer"]


async def test_ready_means_that_the_servers_settings_have_come() -> None:
    async with connected() as server:
        await turn()
        assert not server.connection.ready.done()
        server.says(server.settings(max_streams=1))
        assert server.connection.ready.done()
        await turn()
        assert (http2.SETTINGS, http2.ACK, 0, b"") in server.wire.frames()


# --- gRPC


async def ended(*answer: Callable[[Server], bytes]) -> list[tuple[int, str]]:
    """How a call ends that gets this answer."""
    async with connected() as server:
        call = opened(server, Answers)
        for part in answer:
            server.says(part(server))
        return [*call.ends]


def trailers_only(*headers: tuple[str, str]) -> Callable[[Server], bytes]:
    return lambda server: server.headers(1, [(":status", "200"), *headers], end=True)


async def test_a_status_comes_with_the_headers_or_after_the_messages() -> None:
    assert await ended(trailers_only(("grpc-status", "0"))) == [(rpc.OK, "")]
    denied = ("grpc-status", "7"), ("grpc-message", "etcdserver: permission%20denied%0A%25")
    assert await ended(trailers_only(*denied)) == [(rpc.PERMISSION_DENIED, "etcdserver: permission denied %")]
    assert await ended(trailers_only(("grpc-status", "14"))) == [(rpc.UNAVAILABLE, "gRPC status 14")]
    assert await ended(trailers_only(("grpc-status", "x"), ("grpc-message", "m"))) == [(rpc.UNKNOWN, "m")]
    assert await ended(lambda server: server.headers(1, OK_HEADERS), trailers_only(("grpc-status", "0"))) == [
        (0, "")
    ]


async def test_an_end_without_a_status_is_an_error() -> None:
    assert await ended(trailers_only()) == [(rpc.UNKNOWN, "the server ended the call without a status")]
    for status, code in (("503", rpc.UNAVAILABLE), ("401", rpc.UNAUTHENTICATED), ("418", rpc.UNKNOWN)):
        answer = await ended(lambda server, status=status: server.headers(1, [(":status", status)], end=True))
        assert answer == [(code, f"HTTP status {status}")]


@pytest.mark.parametrize(
    ("reset", "code"),
    [(7, rpc.UNAVAILABLE), (8, rpc.CANCELLED), (11, rpc.RESOURCE_EXHAUSTED), (2, rpc.INTERNAL)],
)
async def test_a_reset_has_the_code_that_grpc_gives_it(reset: int, code: int) -> None:
    ends = await ended(lambda _: frame(http2.RST_STREAM, 0, 1, reset.to_bytes(4, "big")))
    assert ends == [(code, f"stream reset by the server (HTTP/2 error {reset})")]


async def test_a_message_that_cannot_be_read_ends_the_call() -> None:
    async def says(data: bytes) -> list[tuple[int, str]]:
        return await ended(
            lambda server: server.headers(1, OK_HEADERS),
            lambda _: frame(http2.DATA, 0, 1, data),
            lambda server: server.headers(1, OK_TRAILERS, end=True),
        )

    assert await says(rpc.framed(b"whole")) == [(0, "")]
    assert await says(rpc.framed(b"whole")[:-1]) == [
        (rpc.INTERNAL, "the server ended the call inside a message")
    ]
    assert (await says(b"\1" + rpc.framed(b"x")[1:]))[0][0] == rpc.INTERNAL
    assert (await says(b"\0\xff\xff\xff\xff"))[0][0] == rpc.INTERNAL


async def test_a_unary_call_is_one_message_there_and_one_back() -> None:
    async with connected() as server:
        answers: list[tuple[bytes, int]] = []

        def done(answer: bytes, error: rpc.RpcError | None) -> None:
            answers.append((answer, error.code if error else 0))

        headers = rpc.request_headers("http", "host:1", "/etcdserverpb.KV/Range", [("token", "t")])
        for _ in range(3):
            rpc.UnaryCall(done).start(server.connection, headers, b"question")
        await turn()
        assert server.wire.sent(http2.DATA) == [rpc.framed(b"question")] * 3
        sent = dict(hpack.Decoder().decode(server.wire.sent(http2.HEADERS)[0]))
        assert (sent[":path"], sent["token"], sent["te"]) == ("/etcdserverpb.KV/Range", "t", "trailers")
        server.says(server.headers(1, OK_HEADERS), frame(http2.DATA, 0, 1, rpc.framed(b"answer")))
        server.says(server.headers(1, OK_TRAILERS, end=True), server.headers(3, OK_TRAILERS, end=True))
        server.connection.abort("closed")
        assert answers == [(b"answer", 0), (b"", rpc.INTERNAL), (b"", rpc.UNAVAILABLE)]


# --- a hostile server

FLOODS: dict[str, Callable[[Server, int], bytes]] = {
    "SETTINGS": lambda server, n: server.settings(initial_window=n),
    "acknowledged SETTINGS": lambda server, n: frame(http2.SETTINGS, http2.ACK, 0),
    "PING": lambda server, n: frame(http2.PING, 0, 0, n.to_bytes(8, "big")),
    "acknowledged PING": lambda server, n: frame(http2.PING, http2.ACK, 0, bytes(8)),
    "PRIORITY": lambda server, n: frame(http2.PRIORITY, 0, 3, bytes(5)),
    "an unknown type": lambda server, n: frame(0x42, n & 0xFF, n, b"x" * (n % 9)),
    "empty DATA": lambda server, n: frame(http2.DATA, 0, 3),
    "padding": lambda server, n: frame(http2.DATA, http2.PADDED, 3, b"\x02\0\0"),
    "DATA of a stream that has ended": lambda server, n: frame(http2.DATA, 0, 1, b"x"),
    "HEADERS": lambda server, n: server.headers(3, OK_HEADERS),
    "HEADERS of a stream that has ended": lambda server, n: server.headers(1, OK_TRAILERS, end=True),
    "RST_STREAM of a stream that has ended": lambda server, n: frame(http2.RST_STREAM, 0, 1, bytes(4)),
    "WINDOW_UPDATE": lambda server, n: frame(http2.WINDOW_UPDATE, 0, 0, b"\0\0\0\1"),
    "WINDOW_UPDATE of a stream": lambda server, n: frame(http2.WINDOW_UPDATE, 0, 3, b"\0\0\0\1"),
    "WINDOW_UPDATE of a stream that has ended": lambda server, n: frame(http2.WINDOW_UPDATE, 0, 1, bytes(4)),
    "GOAWAY": lambda server, n: frame(http2.GOAWAY, 0, 0, (99).to_bytes(4, "big") + bytes(4)),
    "CONTINUATION": lambda server, n: frame(
        http2.CONTINUATION if n else http2.HEADERS, 0, 3, b"" if n else b"\x88"
    ),
}


@pytest.mark.parametrize("flood", list(FLOODS))
async def test_a_flood_of_frames_that_carry_nothing_ends_the_connection(flood: str) -> None:
    async with connected() as server:
        # given a stream that has ended, and one that waits for an answer
        opened(server).cancel()
        waiting = opened(server, Answers)
        server.says(server.settings())
        await turn()
        # when the server sends frames of one kind without end
        sent = 0
        while not server.wire.shut and sent < 2 * http2.FLOOD:
            server.says(*(FLOODS[flood](server, n) for n in range(sent, sent + 500)))
            sent += 500
            await turn()
        # then the connection ends after a bounded number, and the call with one line
        assert sent <= http2.FLOOD + 1000
        ((code, message),) = waiting.ends
        assert code == rpc.UNAVAILABLE
        assert "a flood of frames that carry nothing" in message or flood == "GOAWAY"
        # and little was written because of it
        assert sum(map(len, server.wire.writes)) < 25 * http2.FLOOD


@pytest.mark.parametrize("flood", ["PING", "SETTINGS"])
async def test_a_server_that_asks_and_does_not_read_is_left(flood: str) -> None:
    async with connected() as server:
        waiting = opened(server, Answers)
        server.says(server.settings(), server.headers(1, OK_HEADERS))
        await turn()
        # given a server that reads nothing
        server.connection.pause_writing()
        # when it sends parts of an answer, and for each something that is to be acknowledged
        sent = 0
        while not server.wire.shut and sent < 20 * http2.MOST_REPLIES:
            server.says(
                FLOODS[flood](server, sent), frame(http2.DATA, 0, 1, b"" if sent else b"\0\0\0\xff\xff")
            )
            server.says(frame(http2.DATA, 0, 1, b"x"))
            sent += 1
            await turn()
        # then it is left before many acknowledgements wait for it
        assert sent <= http2.MOST_REPLIES + 1
        assert waiting.ends == [(rpc.UNAVAILABLE, "broken answer: it requests data but does not read it")]


async def test_a_busy_server_s_pings_and_window_updates_are_no_flood() -> None:
    async with connected() as server:
        stream = opened(server, Answers)
        server.says(server.settings(), server.headers(1, OK_HEADERS))
        pings = frame(http2.PING, 0, 0, bytes(8)) + frame(http2.WINDOW_UPDATE, 0, 0, b"\0\0\0\1") * 2
        for _ in range(4 * http2.FLOOD // 100):
            server.says(*[pings + frame(http2.DATA, 0, 1, rpc.framed(b"x"))] * 100)
            await turn()
        assert server.downs == []
        assert len(stream.messages) == 4 * http2.FLOOD


async def test_header_blocks_of_any_kind_take_little_memory() -> None:
    async with connected() as server:
        server.says(server.settings())
        # given a server whose trailers differ each time, and consist of fields that both sides know
        blocks = itertools.islice(itertools.product(range(0x82, 0xBD), repeat=3), 3000)
        tracemalloc.start()
        try:
            for number, block in enumerate(blocks):
                stream = opened(server)
                server.says(
                    frame(
                        http2.HEADERS, http2.END_HEADERS | http2.END_STREAM, 2 * number + 1, bytes(block) * 5
                    )
                )
                assert not stream.active
            server.wire.writes.clear()
            await turn()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # then they are not kept
        assert server.downs == []
        assert kept < 1 << 20


async def test_a_header_block_over_many_frames_is_no_larger_than_one_in_one() -> None:
    async with connected() as server:
        opened(server)
        part = b"\x88" * 6000
        server.says(frame(http2.HEADERS, 0, 1, part), frame(http2.CONTINUATION, 0, 1, part))
        assert server.downs == []
        server.says(frame(http2.CONTINUATION, 0, 1, part))
        assert server.downs == ["broken answer: header block too large"]


async def test_unfinished_messages_of_many_calls_are_bounded_together() -> None:
    async with connected() as server:
        server.says(server.settings())
        calls = [opened(server, Answers) for _ in range(100)]
        beginning = b"\0" + (rpc.LONGEST).to_bytes(4, "big")
        sent = 0
        # when each of many answers begins, and none ends
        for place in range(len(calls)):
            for part in [beginning, *[bytes(16_000)] * 65]:
                if server.downs:
                    break
                server.says(frame(http2.DATA, 0, 2 * place + 1, part))
                sent += len(part)
            await turn()
        # then the connection ends, and all calls with it
        assert sent <= http2.MOST_HELD + 2 * rpc.LONGEST
        assert "unfinished messages of" in server.downs[0]
        assert all(len(call.ends) == 1 for call in calls)


async def test_what_has_ended_counts_as_unfinished_no_more() -> None:
    async with connected() as server:
        server.says(server.settings())
        beginning = b"\0" + (rpc.LONGEST).to_bytes(4, "big") + bytes(16_000)
        for place in range(2 * http2.MOST_HELD // 16_000):
            call = opened(server, Answers)
            server.says(frame(http2.DATA, 0, 2 * place + 1, beginning))
            call.cancel()
        assert server.downs == []


async def test_an_answer_is_as_long_as_its_call_may_have_it() -> None:
    for longest, ends in ((1000, []), (999, [(rpc.INTERNAL, "the server sent a message 1000 bytes long")])):
        async with connected() as server:
            found: list[tuple[int, str]] = []
            call = rpc.UnaryCall(
                lambda _, error, found=found: found.append((error.code, error.message) if error else (0, "")),
                longest,
            )
            call.start(server.connection, b"\x83", b"")
            server.says(server.settings(), frame(http2.DATA, 0, 1, b"\0" + (1000).to_bytes(4, "big")))
            assert found == ends


async def test_a_status_that_is_no_code_is_unknown() -> None:
    for status in ("9" * 5000, "-1", "\N{ARABIC-INDIC DIGIT TWO}" * 20, ""):
        (end,) = await ended(trailers_only(("grpc-status", status)))
        assert end[0] == rpc.UNKNOWN


async def test_answers_about_leases_that_nobody_asked_for_end_the_connection() -> None:
    async with connected() as server:
        # given leases whose keepalives wait for their answers
        link = Link(
            Endpoint("http://host:2379", "host", 2379, False, "host:2379"),
            None,
            Login(None, lambda: None),
            lambda: None,
            lambda _: None,
        )
        link.connection = server.connection
        server.says(server.settings())
        waiting = [asyncio.get_running_loop().create_future() for _ in range(1000)]
        for lease, future in enumerate(waiting):
            link.keep_alive(rpc.framed(pb.lease_keep_alive(lease + 1)), future)
        # when the server answers for others, which are looked for among all of them
        sent = 0
        while not server.downs and sent < http2.FLOOD:
            server.says(
                frame(http2.DATA, 0, 1, rpc.framed(protobuf.integer(2, 5000) + protobuf.integer(3, 9)) * 10)
            )
            sent += 10
        # then the connection ends soon
        assert sent < http2.FLOOD / 10
        assert all(isinstance(future.exception(), OperationFailed) for future in waiting)
