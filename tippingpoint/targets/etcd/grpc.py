"""gRPC over `http2` (as in gRPC's PROTOCOL-HTTP2 document): messages in streams, and the status of a call."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote

from tippingpoint.errors import one_line
from tippingpoint.targets.etcd import http2
from tippingpoint.targets.etcd.http2 import Connection, Headers, Stream, StreamError

(
    OK,
    CANCELLED,
    UNKNOWN,
    INVALID_ARGUMENT,
    DEADLINE_EXCEEDED,
    NOT_FOUND,
    ALREADY_EXISTS,
    PERMISSION_DENIED,
    RESOURCE_EXHAUSTED,
    FAILED_PRECONDITION,
    ABORTED,
    OUT_OF_RANGE,
    UNIMPLEMENTED,
    INTERNAL,
    UNAVAILABLE,
    DATA_LOSS,
    UNAUTHENTICATED,
) = range(17)

MAX_MESSAGE = 64 << 20
"""Bytes of the longest list that is accepted as a message. LeaseLeases with a million leases has 11 MB."""
LONGEST = 1 << 20
"""Bytes of the longest message accepted from any other call. The longest expected, about a cluster, have some kB."""
_LONGEST_CODE = 9  # digits
_PREFIX = 5  # bytes before a message: a flag, and its length

# gRPC's http-grpc-status-mapping document, for answers from a proxy between client and server.
_OF_HTTP = {
    "400": INTERNAL,
    "401": UNAUTHENTICATED,
    "403": PERMISSION_DENIED,
    "404": UNIMPLEMENTED,
    "429": UNAVAILABLE,
    "502": UNAVAILABLE,
    "503": UNAVAILABLE,
    "504": UNAVAILABLE,
}
# "HTTP2 Transport Mapping" in gRPC's PROTOCOL-HTTP2 document.
_OF_RESET = {
    http2.REFUSED_STREAM: UNAVAILABLE,
    http2.CANCEL: CANCELLED,
    http2.ENHANCE_YOUR_CALM: RESOURCE_EXHAUSTED,
    12: PERMISSION_DENIED,
}


class RpcError(Exception):
    """A call that ended with a status other than OK: gRPC's code, and the message on one line."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = one_line(message)
        super().__init__(self.message)


def request_headers(scheme: str, authority: str, path: str, metadata: Headers) -> bytes:
    """Return the header block of a call. It can be reused for any number of calls."""
    return http2.header_block(
        [
            (":method", "POST"),
            (":scheme", scheme),
            (":path", path),
            (":authority", authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "tippingpoint"),
            *metadata,
        ]
    )


def framed(message: bytes) -> bytes:
    """Return a message with gRPC's prefix: the flag for "not compressed", and the length."""
    return b"\0" + len(message).to_bytes(4, "big") + message


class Call(Stream):
    """A call under way. Subclasses receive each whole message, then the end once."""

    __slots__ = ("_detail", "_http", "_longest", "_needed", "_rest", "_status")

    def __init__(self, longest: int = LONGEST) -> None:
        super().__init__()
        self._longest = longest
        self._rest: bytearray | None = None
        self._needed = 0  # bytes that the rest must have before it is read again
        self._status = ""
        self._detail = ""
        self._http = ""

    def on_message(self, message: bytes) -> None:
        """Receive a whole message."""

    def on_close(self, error: RpcError | None) -> None:
        """Receive the end of the call, once: None for status OK."""

    def on_headers(self, headers: Headers) -> None:
        for name, value in headers:
            if name == "grpc-status":
                self._status = value
            elif name == "grpc-message":
                self._detail = unquote(value)
            elif name == ":status":
                self._http = value

    def on_data(self, data: bytes) -> None:
        if self._rest is not None:
            self._rest += data
            self._hold(len(data))
            if len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
            self._rest = None
            self._hold(-len(data))
        position, size, needed = 0, len(data), _PREFIX
        while size - position >= _PREFIX:
            length = int.from_bytes(data[position + 1 : position + _PREFIX], "big")
            if data[position] or length > self._longest:
                self.cancel()
                problem = (
                    "compressed, although that was not offered" if data[position] else f"{length} bytes long"
                )
                self.on_close(RpcError(INTERNAL, f"the server sent a message {problem}"))
                return
            end = position + _PREFIX + length
            if end > size:
                needed = _PREFIX + length
                break
            self.on_message(data[position + _PREFIX : end])
            if not self.active:
                return
            position = end
        if position < size:
            self._rest, self._needed = bytearray(data[position:]), needed
            self._hold(size - position)

    def _hold(self, size: int) -> None:
        if self.connection is not None:
            self.connection.hold(self, size)

    def on_end(self, failure: StreamError | None) -> None:
        if self._status:
            known = self._status.isdecimal() and len(self._status) <= _LONGEST_CODE
            code = int(self._status) if known else UNKNOWN
            if code == OK and self._rest is not None:
                self.on_close(RpcError(INTERNAL, "the server ended the call inside a message"))
            elif code == OK:
                self.on_close(None)
            else:
                self.on_close(RpcError(code, self._detail or f"gRPC status {code}"))
        elif failure is not None:
            code = UNAVAILABLE if failure.code is None else _OF_RESET.get(failure.code, INTERNAL)
            self.on_close(RpcError(code, str(failure)))
        elif self._http not in ("", "200"):
            self.on_close(RpcError(_OF_HTTP.get(self._http, UNKNOWN), f"HTTP status {self._http}"))
        else:
            self.on_close(RpcError(UNKNOWN, "the server ended the call without a status"))


class UnaryCall(Call):
    """A call with one request and one answer. `done` gets the answer, or b"" and the error."""

    __slots__ = ("_answer", "_done")

    def __init__(self, done: Callable[[bytes, RpcError | None], None], longest: int = LONGEST) -> None:
        super().__init__(longest)
        self._answer: bytes | None = None
        self._done = done

    def start(self, connection: Connection, headers: bytes, message: bytes) -> None:
        """Send the request."""
        connection.open(self, headers, framed(message), end=True)

    def on_message(self, message: bytes) -> None:
        self._answer = message

    def on_close(self, error: RpcError | None) -> None:
        if error is None and self._answer is None:
            error = RpcError(INTERNAL, "the server answered without a message")
        self._done(b"" if error is not None or self._answer is None else self._answer, error)
