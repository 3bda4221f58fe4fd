"""The client side of HTTP/2 (RFC 9113) as gRPC needs it: one connection, many streams, no task per stream.

A `Stream` is called back with headers, data and its end. Everything sent during one turn of the event loop
leaves in one write, and a stream's messages in as few DATA frames as flow control allows.
Maintained Python clients (grpc.aio, httpx with h2) cost some 100 us of CPU per call. The keepalives of 20,000 leases
must cost only a few each (compared in tests/benchmarks/bench_keepalive.py).
"""

from __future__ import annotations

import asyncio
import struct
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import cast

from hpack.exceptions import HPACKError
from hpack.hpack import Decoder

from tippingpoint.util.network_errors import CLOSED, in_words

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)
END_STREAM = ACK = 0x1
END_HEADERS = 0x4
PADDED = 0x8
HAS_PRIORITY = 0x20

NO_ERROR, PROTOCOL_ERROR, INTERNAL_ERROR, FLOW_CONTROL_ERROR = range(4)
FRAME_SIZE_ERROR = 6
REFUSED_STREAM = 7
CANCEL = 8
COMPRESSION_ERROR = 9
ENHANCE_YOUR_CALM = 11

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_FRAME = 16_384  # the largest a peer may send unless we raise it (RFC 9113 section 4.2), which we do not
DEFAULT_WINDOW = 65_535  # section 6.9.2
STREAM_WINDOW = 1 << 20
CONNECTION_WINDOW = 1 << 22
MAX_HEADER_BLOCK = 1 << 14
"""Bytes of the largest header block, encoded and decoded. gRPC's C core takes 16 KiB."""
MOST_HELD = 16 << 20
"""Bytes of unfinished messages that are kept for a connection's other streams while one more arrives."""
FLOOD = 10_000
"""Frames without content that a peer may send in addition to _CREDIT for each frame that carries something. Each round
trip has some: window updates, and pings by which gRPC servers measure the connection."""
MOST_REPLIES = 1000
"""Acknowledgements that wait for a peer that does not read."""
MAX_WINDOW = MAX_STREAM_ID = (1 << 31) - 1
HEARTBEAT = 10.0
"""Seconds between checks of the peer. A peer that was silent between two checks while streams are open is
pinged, and given up at the next check. So a stall of up to 20 s is tolerated, and one beyond 30 s always costs
the connection and ends its streams. Twice the minimum etcd asks of clients (--grpc-keepalive-min-time 5s)."""
DRAIN = 10.0
"""Seconds that streams under way have to finish after the server's GOAWAY."""

_CREDIT = 4
_CACHED_BLOCKS, _CACHED_BLOCK = 32, 16
"""Header blocks that are kept decoded, and the bytes of the longest. etcd repeats three, of two or three bytes."""
_HEADER_TABLE_SIZE, _ENABLE_PUSH, _MAX_STREAMS, _INITIAL_WINDOW, _MAX_FRAME_SIZE = range(1, 6)
_FRAME = struct.Struct(">HBBBL")  # length (high 16, low 8), type, flags, stream
_SETTING = struct.Struct(">HL")
_WORD = struct.Struct(">L")

Headers = list[tuple[str, str]]


class StreamError(Exception):
    """A stream that ended abnormally. `code` is HTTP/2's error code, or None for a lost connection."""

    def __init__(self, message: str, code: int | None = None) -> None:
        self.code = code
        super().__init__(message)


class ProtocolError(Exception):
    """The peer broke the protocol. Raised while its bytes are read; it ends the connection."""

    def __init__(self, message: str, code: int = PROTOCOL_ERROR) -> None:
        self.code = code
        super().__init__(message)


def frame(kind: int, flags: int, stream: int, payload: bytes | memoryview = b"") -> bytes:
    """Return one frame as it is sent."""
    length = len(payload)
    return _FRAME.pack(length >> 8, length & 0xFF, kind, flags, stream) + payload


def header_block(headers: Headers) -> bytes:
    """Encode headers as an HPACK block (RFC 7541) that needs no state: all literals, none added to the table.

    Such a block can be made once and sent any number of times. Values are marked as never indexed, so that no
    intermediary stores a token.
    """
    return b"".join(b"\x10" + _literal(name) + _literal(value) for name, value in headers)


def _literal(text: str) -> bytes:
    raw = text.encode("ascii")
    if len(raw) < 127:
        return bytes([len(raw)]) + raw
    prefix = bytearray([127])
    rest = len(raw) - 127
    while rest >= 128:
        prefix.append(rest & 0x7F | 0x80)
        rest >>= 7
    prefix.append(rest)
    return bytes(prefix) + raw


class Stream:
    """One exchange. Subclasses handle what the peer sends. Nothing is called after `on_end`."""

    __slots__ = ("block", "connection", "ending", "held", "id", "pending", "unacknowledged", "window")

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.id = 0
        self.block = b""
        self.pending: list[bytes | memoryview] = []
        self.ending = False
        self.held = 0  # bytes of an unfinished message, by Connection.hold
        self.window = 0  # what the peer granted beyond its initial window, less what was sent
        self.unacknowledged = 0

    def on_headers(self, headers: Headers) -> None:
        """Receive headers or trailers."""

    def on_data(self, data: bytes) -> None:
        """Receive part of the body."""

    def on_end(self, failure: StreamError | None) -> None:
        """Receive the end of the stream: None when the peer ended it normally."""

    def send(self, data: bytes, end: bool = False) -> None:
        """Send part of the body; with `end`, the last part. Does nothing once the stream has ended."""
        connection = self.connection
        if connection is None or self.ending:
            return
        waiting = bool(self.pending)
        self.pending.append(data)
        self.ending = end
        if self.id and not waiting:
            connection.has_output(self)

    def cancel(self) -> None:
        """End the stream now; `on_end` is not called."""
        connection = self.connection
        if connection is not None:
            connection.forget_cancelled(self)

    @property
    def active(self) -> bool:
        """Whether the stream has been opened and has not ended."""
        return self.connection is not None


class Connection(asyncio.Protocol):
    """One HTTP/2 connection. `on_down(reason, failure)` is called once; after that no stream can be opened.

    `ready` ends when the server's settings have arrived: only then has TLS certainly accepted the client.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, on_down: Callable[[str, BaseException | None], None]
    ) -> None:
        self._loop = loop
        self._on_down = on_down
        self.ready: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.up = False
        self._transport: asyncio.Transport | None = None
        self._reason = ""
        self._told_down = False
        self._paused = False
        self._heard = False
        self._pinged = False
        self._timer: asyncio.TimerHandle | None = None

        self._tail = b""
        self._hpack = Decoder(max_header_list_size=MAX_HEADER_BLOCK)
        self._blocks: dict[bytes, Headers] = {}
        self._partial: tuple[int, int, bytearray] | None = None  # stream, flags, header block so far
        self._unacknowledged = 0
        self._held = 0
        self._noise = 0
        self._replies = 0

        self._streams: dict[int, Stream] = {}
        self._queue: deque[Stream] = deque()
        self._next_id = 1
        self._limit = 1 << 30  # until the peer says otherwise
        self._window = DEFAULT_WINDOW
        self._stream_window = DEFAULT_WINDOW
        self._frame_limit = MAX_FRAME
        self._out: list[bytes] = []
        self._writers: OrderedDict[Stream, None] = OrderedDict()
        self._blocked: dict[Stream, None] = {}  # whose own window is used up
        self._flush_due = False

    # --- what the owner calls

    def open(
        self, stream: Stream, block: bytes, body: bytes = b"", end: bool = False, first: bool = False
    ) -> None:
        """Start a stream with this header block. It waits while the peer's limit of streams is reached.

        `first` puts it ahead of other waiting streams. If the connection is down, the stream ends in the next turn
        of the loop.
        """
        stream.connection = self
        stream.block = block
        stream.ending = end
        if body or end:
            stream.pending.append(body)
        if not self.up:
            self._loop.call_soon(self._end, stream, StreamError(self._reason or "not connected"))
        elif len(self._streams) < self._limit and (first or not self._queue):
            self._start(stream)
        elif first:
            self._queue.appendleft(stream)
        else:
            self._queue.append(stream)

    def abort(self, reason: str) -> None:
        """Close the connection at once; streams under way fail with this reason."""
        self._lost(reason, None)
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._told_down:  # given up while connecting
            self._transport.abort()
            return
        self.up = True
        settings = _SETTING.pack(_ENABLE_PUSH, 0) + _SETTING.pack(_INITIAL_WINDOW, STREAM_WINDOW)
        self._transport.write(
            PREFACE
            + frame(SETTINGS, 0, 0, settings)
            + frame(WINDOW_UPDATE, 0, 0, _WORD.pack(CONNECTION_WINDOW - DEFAULT_WINDOW))
        )
        self._timer = self._loop.call_later(HEARTBEAT, self._heartbeat)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(in_words(exc) if exc is not None else CLOSED, exc)
        if not self.closed.done():
            self.closed.set_result(None)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._schedule()

    def data_received(self, data: bytes) -> None:
        self._heard = True
        if self._tail:
            data = self._tail + data
            self._tail = b""
        if self._transport is None or self.closed.done() or (self._told_down and not self._streams):
            return
        position, end = 0, len(data)
        try:
            while end - position >= 9:
                high, low, kind, flags, stream_id = _FRAME.unpack_from(data, position)
                length = high << 8 | low
                if length > MAX_FRAME:
                    if not self.ready.done() and data.startswith(b"HTTP/"):
                        raise ProtocolError("the server answers HTTP/1, not HTTP/2")
                    raise ProtocolError(f"frame of {length} bytes", FRAME_SIZE_ERROR)
                position += 9
                if end - position < length:
                    position -= 9
                    break
                payload = data[position : position + length]
                position += length
                if self._partial is not None and kind != CONTINUATION:
                    raise ProtocolError("header block interrupted")
                if kind == DATA:
                    self._data(stream_id & MAX_STREAM_ID, flags, payload)
                else:
                    self._control(kind, flags, stream_id & MAX_STREAM_ID, payload)
        except ProtocolError as error:
            self._give_up(str(error), error.code)
            return
        if position < end:
            self._tail = data[position:]

    # --- frames that arrive

    def _data(self, stream_id: int, flags: int, payload: bytes) -> None:
        length = len(payload)
        self._unacknowledged += length
        if self._unacknowledged >= CONNECTION_WINDOW // 2:
            self._write(frame(WINDOW_UPDATE, 0, 0, _WORD.pack(self._unacknowledged)))
            self._unacknowledged = 0
        stream = self._streams.get(stream_id)
        if stream is None:
            self._check_known(stream_id)
            self.unasked()
            return
        if flags & PADDED:
            payload = _unpadded(payload)
        if not payload and not flags & END_STREAM:
            self.unasked()
        elif self._noise:
            self._noise = max(0, self._noise - _CREDIT)
        if flags & END_STREAM:
            if payload:
                stream.on_data(payload)
            if stream_id in self._streams:  # unless on_data cancelled it
                self._end(stream, None)
            return
        stream.unacknowledged += length
        if stream.unacknowledged >= STREAM_WINDOW // 2:
            self._write(frame(WINDOW_UPDATE, 0, stream_id, _WORD.pack(stream.unacknowledged)))
            stream.unacknowledged = 0
        if payload:
            stream.on_data(payload)

    def _control(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == HEADERS:
            if stream_id == 0:
                raise ProtocolError("HEADERS without a stream")
            if flags & PADDED:
                payload = _unpadded(payload)
            if flags & HAS_PRIORITY:
                payload = payload[5:]
            if flags & END_HEADERS:
                self._headers(stream_id, flags, payload)
            else:
                self.unasked()
                self._partial = (stream_id, flags, bytearray(payload))
        elif kind == CONTINUATION:
            if self._partial is None or self._partial[0] != stream_id:
                raise ProtocolError("CONTINUATION out of place")
            self.unasked()
            _, first_flags, block = self._partial
            block += payload
            if len(block) > MAX_HEADER_BLOCK:
                raise ProtocolError("header block too large", ENHANCE_YOUR_CALM)
            if flags & END_HEADERS:
                self._partial = None
                self._headers(stream_id, first_flags, bytes(block))
        elif kind == SETTINGS:
            self._settings(flags, stream_id, payload)
        elif kind == WINDOW_UPDATE:
            self._window_update(stream_id, payload)
        elif kind == PING:
            if len(payload) != 8 or stream_id:
                raise ProtocolError("malformed PING", FRAME_SIZE_ERROR)
            self.unasked()
            if not flags & ACK:
                self._reply(frame(PING, ACK, 0, payload))
        elif kind == RST_STREAM:
            if len(payload) != 4 or stream_id == 0:
                raise ProtocolError("malformed RST_STREAM", FRAME_SIZE_ERROR)
            stream = self._streams.get(stream_id)
            if stream is None:
                self._check_known(stream_id)
                self.unasked()
            else:
                code: int = _WORD.unpack(payload)[0]
                self._end(stream, StreamError(f"stream reset by the server (HTTP/2 error {code})", code))
        elif kind == GOAWAY:
            if len(payload) < 8 or stream_id:
                raise ProtocolError("malformed GOAWAY", FRAME_SIZE_ERROR)
            self.unasked(FLOOD // 10)  # handling it takes a look at each stream
            self._goaway(payload)
        elif kind == PUSH_PROMISE:
            raise ProtocolError("PUSH_PROMISE, which was refused")
        else:  # a client ignores PRIORITY and unknown types (sections 5.3.2, 5.5)
            self.unasked()

    def _headers(self, stream_id: int, flags: int, block: bytes) -> None:
        headers = self._blocks.get(block)
        if headers is None:
            headers = self._decode(block)
        stream = self._streams.get(stream_id)
        if stream is None:
            self._check_known(stream_id)
            self.unasked()
            return
        stream.on_headers(headers)
        if not flags & END_STREAM:
            self.unasked()
        elif stream_id in self._streams:
            self._end(stream, None)

    def _decode(self, block: bytes) -> Headers:
        try:
            decoded = [(str(name), str(value)) for name, value in self._hpack.decode(block)]
        except (HPACKError, UnicodeDecodeError) as error:
            raise ProtocolError(f"bad header block: {error}", COMPRESSION_ERROR) from None
        # A block of one-byte indexed fields (RFC 7541 section 6.1) does not change the table. So it keeps
        # its meaning until another block changes the table. Servers repeat such blocks often.
        if not block or min(block) <= 0x80 or 0xFF in block:
            self._blocks.clear()
        elif len(block) <= _CACHED_BLOCK:
            if len(self._blocks) >= _CACHED_BLOCKS:
                self._blocks.clear()
            self._blocks[block] = decoded
        return decoded

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id or len(payload) % 6 or (flags & ACK and payload):
            raise ProtocolError("malformed SETTINGS", FRAME_SIZE_ERROR)
        self.unasked()
        if flags & ACK:
            return
        for name, value in _SETTING.iter_unpack(payload):
            if name == _MAX_STREAMS:
                self._limit = value
            elif name == _INITIAL_WINDOW:
                if value > MAX_WINDOW:
                    raise ProtocolError("initial window too large", FLOW_CONTROL_ERROR)
                self._stream_window = value
                self._writers.update(self._blocked)
                self._blocked.clear()
            elif name == _MAX_FRAME_SIZE:
                if not MAX_FRAME <= value < 1 << 24:
                    raise ProtocolError("maximum frame size out of range")
                self._frame_limit = value
        self._reply(frame(SETTINGS, ACK, 0))
        if not self.ready.done():
            self.ready.set_result(None)
        self._start_waiting()
        self._schedule()

    def _window_update(self, stream_id: int, payload: bytes) -> None:
        if len(payload) != 4:
            raise ProtocolError("malformed WINDOW_UPDATE", FRAME_SIZE_ERROR)
        self.unasked()
        increment = _WORD.unpack(payload)[0] & MAX_WINDOW
        if stream_id == 0:
            self._window += increment
            if increment == 0 or self._window > MAX_WINDOW:
                raise ProtocolError("bad connection window", FLOW_CONTROL_ERROR)
        else:
            stream = self._streams.get(stream_id)
            if stream is None:
                self._check_known(stream_id)
                return
            stream.window += increment
            if increment == 0 or stream.window + self._stream_window > MAX_WINDOW:
                self._write(frame(RST_STREAM, 0, stream_id, _WORD.pack(FLOW_CONTROL_ERROR)))
                self._end(stream, StreamError("bad stream window", FLOW_CONTROL_ERROR))
                return
            if stream in self._blocked:
                del self._blocked[stream]
                self._writers[stream] = None
        if self._writers:
            self._schedule()

    def _goaway(self, payload: bytes) -> None:
        last, code = (cast(int, _WORD.unpack_from(payload, at)[0]) for at in (0, 4))
        detail = payload[8:].decode("utf-8", "replace")
        reason = f"the server is closing the connection{f' (HTTP/2 error {code} {detail})' if code else ''}"
        unseen = [stream for number, stream in self._streams.items() if number > last & MAX_STREAM_ID]
        self._retire(reason)
        for stream in unseen:
            if stream.connection is self:
                self._end(stream, StreamError(reason))

    def _check_known(self, stream_id: int) -> None:
        """Ignore a late frame for a stream that has ended; ProtocolError if it was never opened (section 5.1)."""
        if stream_id == 0 or stream_id % 2 == 0 or stream_id >= self._next_id:
            raise ProtocolError(f"frame for stream {stream_id}, which was never opened")

    # --- what a peer may ask for without being asked

    def unasked(self, weight: int = 1) -> None:
        """Count an unsolicited frame or message. ProtocolError if there are too many."""
        self._noise += weight
        if self._noise > FLOOD:
            raise ProtocolError("a flood of frames that carry nothing", ENHANCE_YOUR_CALM)

    def hold(self, stream: Stream, size: int) -> None:
        """Count bytes of a stream's unfinished message. ProtocolError if the other streams have too many."""
        stream.held += size
        self._held += size
        if self._held - stream.held > MOST_HELD:
            raise ProtocolError(f"unfinished messages of {self._held:,} bytes", ENHANCE_YOUR_CALM)

    def _reply(self, data: bytes) -> None:
        self._replies += 1
        if self._replies > MOST_REPLIES:
            raise ProtocolError("it requests data but does not read it", ENHANCE_YOUR_CALM)
        self._write(data)

    # --- streams

    def _start(self, stream: Stream) -> None:
        if self._noise:
            self._noise = max(0, self._noise - _CREDIT)
        stream.id = number = self._next_id
        self._next_id += 2
        self._streams[number] = stream
        block = stream.block
        stream.block = b""
        rest = block[self._frame_limit :]
        if not rest:
            self._write(frame(HEADERS, END_HEADERS, number, block))
        else:
            self._write(frame(HEADERS, 0, number, block[: self._frame_limit]))
            while len(rest) > self._frame_limit:
                self._write(frame(CONTINUATION, 0, number, rest[: self._frame_limit]))
                rest = rest[self._frame_limit :]
            self._write(frame(CONTINUATION, END_HEADERS, number, rest))
        if stream.pending:
            self._writers[stream] = None
        if self._next_id > MAX_STREAM_ID:
            self._retire("all stream numbers are used")

    def _start_waiting(self) -> None:
        while self._queue and self.up and len(self._streams) < self._limit:
            stream = self._queue.popleft()
            if stream.connection is self:
                self._start(stream)

    def _end(self, stream: Stream, failure: StreamError | None) -> None:
        if stream.connection is not self:
            return
        self._forget(stream)
        stream.on_end(failure)

    def forget_cancelled(self, stream: Stream) -> None:
        """Drop a stream of this connection that is no longer wanted; called by `Stream`."""
        if stream.id and stream.id in self._streams:
            self._write(frame(RST_STREAM, 0, stream.id, _WORD.pack(CANCEL)))
        self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        stream.connection = None
        stream.pending.clear()
        self._writers.pop(stream, None)
        self._blocked.pop(stream, None)
        self._held -= stream.held
        stream.held = 0
        self._streams.pop(stream.id, None)
        if self._queue:
            self._start_waiting()
        elif self._told_down and not self._streams and self._transport is not None:
            self._loop.call_soon(self._transport.abort)

    # --- what leaves

    def _write(self, data: bytes) -> None:
        self._out.append(data)
        self._schedule()

    def has_output(self, stream: Stream) -> None:
        """Note that a stream of this connection has something to send; called by `Stream`."""
        self._writers[stream] = None
        self._schedule()

    def _schedule(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        transport = self._transport
        if self._paused or transport is None or transport.is_closing():
            return
        while self._writers and self._window > 0:
            self._emit(self._writers.popitem(last=False)[0])
        if self._out:
            transport.write(b"".join(self._out))
            self._out.clear()
            self._replies = 0

    def _emit(self, stream: Stream) -> None:
        """Write as much of a stream's pending body as the windows allow; the rest waits for the window that is used
        up."""
        pending = stream.pending
        body = pending[0] if len(pending) == 1 else b"".join(pending)
        pending.clear()
        size, sent = len(body), 0
        own = stream.window + self._stream_window
        limit = min(size, own, self._window)
        if self._noise:
            self._noise = max(0, self._noise - _CREDIT)
        while sent < limit:
            part = body[sent : min(limit, sent + self._frame_limit)]
            sent += len(part)
            flags = END_STREAM if stream.ending and sent == size else 0
            self._out.append(frame(DATA, flags, stream.id, part))
        if size == 0 and stream.ending:
            self._out.append(frame(DATA, END_STREAM, stream.id))
        stream.window -= sent
        self._window -= sent
        if sent == size:
            return
        pending.append(memoryview(body)[sent:])
        if sent < own:
            self._writers[stream] = None
            self._writers.move_to_end(stream, last=False)
        else:
            self._blocked[stream] = None

    # --- the end of the connection

    def _heartbeat(self) -> None:
        self._timer = self._loop.call_later(HEARTBEAT, self._heartbeat)
        self._noise = 0
        if self._heard or not self._streams:
            self._heard = self._pinged = False
        elif self._pinged:
            self.abort(f"no answer for {2 * HEARTBEAT:.0f} s")
        else:
            self._pinged = True
            self._write(frame(PING, 0, 0, b"tipping?"))

    def _retire(self, reason: str) -> None:
        """Open no more streams. Streams under way may finish."""
        if self._told_down:
            return
        self.up = False
        self._told_down = True
        self._reason = reason
        waiting = list(self._queue)
        self._queue.clear()
        for stream in waiting:
            self._end(stream, StreamError(reason))
        self._on_down(reason, None)
        if not self._streams and self._transport is not None:
            self._loop.call_soon(self._transport.abort)
        else:
            self._loop.call_later(DRAIN, self.abort, reason)

    def _give_up(self, reason: str, code: int) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame(GOAWAY, 0, 0, _WORD.pack(0) + _WORD.pack(code)))
            self._transport.close()
            self._loop.call_later(
                DRAIN, self._transport.abort
            )  # a peer that does not read would keep it open
        self._lost(f"broken answer: {reason}", _ServerError(reason))

    def _lost(self, reason: str, cause: BaseException | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        first = not self._told_down
        self.up = False
        self._told_down = True
        self._reason = self._reason or reason
        self._tail = b""
        if not self.ready.done():
            self.ready.set_exception(cause if cause is not None else StreamError(reason))
            self.ready.exception()  # marked as retrieved, because the owner need not await it
        streams = [*self._streams.values(), *self._queue]
        self._streams.clear()
        self._queue.clear()
        self._writers.clear()
        self._blocked.clear()
        self._out.clear()
        if first:
            self._on_down(reason, cause)
        for stream in streams:
            self._end(stream, StreamError(reason))


class _ServerError(ConnectionError):
    """The server broke the protocol."""


def _unpadded(payload: bytes) -> bytes:
    if not payload or payload[0] >= len(payload):
        raise ProtocolError("padding longer than its frame")
    return payload[1 : len(payload) - payload[0]]
