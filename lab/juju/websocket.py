"""The server's side of a WebSocket connection (RFC 6455), without input or output."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha1

TEXT, BINARY, CLOSE, PING, PONG = 0x1, 0x2, 0x8, 0x9, 0xA
CONTINUATION = 0x0
LARGEST_MESSAGE = 64 << 20

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3


class ProtocolError(Exception):
    """The client violated the WebSocket protocol."""


def upgrade_response(key: str) -> bytes:
    """Return the answer to a client's upgrade request with this Sec-WebSocket-Key."""
    accept = b64encode(sha1(key.encode() + _GUID).digest())
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n"
    )


def frame(opcode: int, payload: bytes) -> bytes:
    """Return a message in one frame; a server does not mask."""
    size = len(payload)
    if size < 126:
        return bytes((0x80 | opcode, size)) + payload
    if size < 1 << 16:
        return bytes((0x80 | opcode, 126)) + size.to_bytes(2, "big") + payload
    return bytes((0x80 | opcode, 127)) + size.to_bytes(8, "big") + payload


class Parser:
    """Parses a client's bytes into messages (opcode, payload), with control frames."""

    __slots__ = ("_message", "_opcode", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._opcode = 0
        self._message: bytearray | None = None

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the messages that are complete now. Raises ProtocolError if the client violates the protocol."""
        if self._rest:
            data = self._rest + data
        messages: list[tuple[int, bytes]] = []
        at, end = 0, len(data)
        while end - at >= 6:
            first, second = data[at], data[at + 1]
            if not second & 0x80:
                raise ProtocolError("a frame without a mask")
            size, begin = second & 0x7F, at + 6
            if size == 126:
                begin = at + 8
                size = int.from_bytes(data[at + 2 : at + 4], "big")
            elif size == 127:
                begin = at + 14
                size = int.from_bytes(data[at + 2 : at + 10], "big")
                if size > LARGEST_MESSAGE:
                    raise ProtocolError(f"a frame of {size} bytes")
            if end < begin + size:
                break
            payload = _unmasked(data[begin : begin + size], data[begin - 4 : begin])
            at = begin + size
            message = self._whole(first, payload)
            if message is not None:
                messages.append(message)
        self._rest = data[at:]
        return messages

    def _whole(self, first: int, payload: bytes) -> tuple[int, bytes] | None:
        opcode, final = first & 0x0F, first & 0x80
        if opcode in (CLOSE, PING, PONG):
            return opcode, payload
        if opcode != CONTINUATION:
            if final:
                return opcode, payload
            self._opcode, self._message = opcode, bytearray(payload)
            return None
        if self._message is None:
            raise ProtocolError("a continuation of nothing")
        self._message += payload
        if len(self._message) > LARGEST_MESSAGE:
            raise ProtocolError(f"a message over {LARGEST_MESSAGE} bytes")
        if not final:
            return None
        message, self._message = bytes(self._message), None
        return self._opcode, message


def _unmasked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "little") ^ int.from_bytes(key, "little")).to_bytes(size, "little")
