"""The client side of WebSocket framing (RFC 6455), without a socket: bytes to messages, and messages to bytes."""

from __future__ import annotations

import base64
import hashlib
import os

from tippingpoint.errors import one_line

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA

LONGEST_MESSAGE = 64 * 2**20
"""Bytes of the longest message accepted; a longer one is an error of the server."""
FLOOD = 10_000
"""Control frames and empty fragments that may come without a message between them. A server that sends more only keeps
us busy."""
_LONGEST_RESPONSE = 16 * 2**10
_FIN = 0x80
_MASKED = 0x80
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3
_CLOSE_CODES = {
    1000: "normal closure",
    1001: "going away",
    1002: "protocol error",
    1003: "unsupported data",
    1006: "abnormal closure",
    1007: "invalid payload",
    1008: "policy violation",
    1009: "message too big",
    1011: "internal error",
    1012: "service restart",
    1013: "try again later",
}  # RFC 6455, section 7.4.1, and the IANA registry it opens


class WebSocketError(Exception):
    """The server sent something that is not WebSocket, or is too long. The text is one line."""


class _Masks:
    """Masking keys from the system's random source, many per call: a key must be unpredictable (section 5.3)."""

    __slots__ = ("_keys", "_used")

    def __init__(self) -> None:
        self._keys = b""
        self._used = 0

    def next(self) -> bytes:
        if self._used >= len(self._keys):
            self._keys = os.urandom(4096)
            self._used = 0
        key = self._keys[self._used : self._used + 4]
        self._used += 4
        return key


_masks = _Masks()


def frame(opcode: int, payload: bytes) -> bytes:
    """Return one whole message as a client sends it: final, masked."""
    length = len(payload)
    key = _masks.next()
    if length < 126:
        header = bytes((_FIN | opcode, _MASKED | length))
    elif length < 2**16:
        header = bytes((_FIN | opcode, _MASKED | 126)) + length.to_bytes(2, "big")
    else:
        header = bytes((_FIN | opcode, _MASKED | 127)) + length.to_bytes(8, "big")
    # One XOR of two long integers is the fastest masking in Python.
    mask = int.from_bytes((key * ((length + 3) // 4))[:length], "little")
    masked = (int.from_bytes(payload, "little") ^ mask).to_bytes(length, "little")
    return header + key + masked


class FrameReader:
    """Assembles a server's bytes into messages, however they are split. Small while no message is incomplete."""

    __slots__ = ("_held", "_message", "_needed", "_noise", "_opcode")

    def __init__(self) -> None:
        self._held: bytearray | None = None
        self._needed = 0
        self._message: bytearray | None = None
        self._opcode = 0
        self._noise = 0

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the messages and control frames completed by these bytes, as (opcode, payload), in order.

        WebSocketError if RFC 6455 forbids them to a server, or for a message over LONGEST_MESSAGE.
        """
        # The usual case: one whole short message.
        if self._held is None and len(data) > 4 and data[0] == _FIN | TEXT and self._message is None:
            size = data[1]
            self._noise = 0
            if size == len(data) - 2 and size < 126:
                return [(TEXT, data[2:])]
            if size == 126 and (data[2] << 8 | data[3]) == len(data) - 4:
                return [(TEXT, data[4:])]
        if self._held is not None:
            self._held += data
            if len(self._held) < self._needed:
                return []
            data = bytes(self._held)
            self._held = None
        frames: list[tuple[int, bytes]] = []
        at = 0
        while at < len(data):
            header, size = _header(data, at)
            if at + header + size > len(data):
                self._held = bytearray(data[at:])
                self._needed = header + size
                break
            at += header
            self._frame(data[at - header], data[at : at + size], frames)
            at += size
        return frames

    def _frame(self, first: int, payload: bytes, frames: list[tuple[int, bytes]]) -> None:
        opcode = first & 0x0F
        if opcode >= CLOSE:
            if opcode > PONG or not first & _FIN or len(payload) > 125:
                raise WebSocketError("sent an invalid WebSocket control frame")
            self._count_noise()
            frames.append((opcode, payload))
            return
        if opcode > BINARY or (opcode == CONTINUATION) != (self._message is not None):
            raise WebSocketError("sent a WebSocket frame out of order")
        if self._message is None:
            if first & _FIN:
                self._noise = 0
                frames.append((opcode, payload))
            else:
                self._message, self._opcode = bytearray(payload), opcode
            return
        if len(self._message) + len(payload) > LONGEST_MESSAGE:
            raise WebSocketError(_too_long(len(self._message) + len(payload)))
        self._message += payload
        if not payload:
            self._count_noise()
        if first & _FIN:
            self._noise = 0
            frames.append((self._opcode, bytes(self._message)))
            self._message = None

    def _count_noise(self) -> None:
        self._noise += 1
        if self._noise > FLOOD:
            raise WebSocketError("sent a flood of frames that carry nothing")


def _header(data: bytes, at: int) -> tuple[int, int]:
    """Return the length of a frame's header and payload; (0, bytes needed) while the header is incomplete."""
    have = len(data) - at
    if have < 2:
        return 0, 2
    if data[at] & 0x70:
        raise WebSocketError("sent a WebSocket frame with reserved bits")
    size = data[at + 1]
    if size & _MASKED:
        raise WebSocketError("sent a masked WebSocket frame")
    if size < 126:
        return 2, size
    header = 4 if size == 126 else 10
    if have < header:
        return 0, header
    size = int.from_bytes(data[at + 2 : at + header], "big")
    if size > LONGEST_MESSAGE:
        raise WebSocketError(_too_long(size))
    return header, size


def _too_long(size: int) -> str:
    return f"sent a message of {size} bytes: expected at most {LONGEST_MESSAGE}"


def close_payload(code: int) -> bytes:
    """The payload of a CLOSE frame with a code of RFC 6455, section 7.4.1."""
    return code.to_bytes(2, "big")


def close_reason(payload: bytes) -> str:
    """Return a CLOSE frame's reason for people: "1001 going away"."""
    if len(payload) < 2:
        return "no reason given"
    code = int.from_bytes(payload[:2], "big")
    text = payload[2:].decode("utf-8", "replace") or _CLOSE_CODES.get(code, "")
    return f"{code} {text}".rstrip()


class Upgrade:
    """The HTTP exchange that turns a connection into a WebSocket."""

    __slots__ = ("_key", "_received", "request")

    def __init__(self, host: str, path: str, headers: str = "") -> None:
        """`headers` are further lines of the request, each with its end."""
        self._key = base64.b64encode(os.urandom(16))
        self._received = b""
        self.request = (
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {self._key.decode()}\r\nSec-WebSocket-Version: 13\r\n{headers}\r\n"
        ).encode("ascii")

    def feed(self, data: bytes) -> bytes | None:
        """Read bytes of the answer; returns None while it is incomplete, then the bytes that followed it.

        WebSocketError if the server refuses or does not speak WebSocket.
        """
        self._received += data
        head, end, rest = self._received.partition(b"\r\n\r\n")
        if not end:
            if len(head) > _LONGEST_RESPONSE:
                raise WebSocketError("did not answer with HTTP")
            return None
        first, *lines = head.decode("latin-1").split("\r\n")
        status = first.split(" ", 2)
        if not first.startswith("HTTP/1.1 ") or status[1] != "101":
            answer = " ".join((*status[1:], rest[:200].decode("utf-8", "replace"))) if len(status) > 1 else ""
            raise WebSocketError(f"refused a WebSocket: {one_line(answer) or 'not HTTP'}")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (i.partition(":") for i in lines)
        }
        accept = base64.b64encode(hashlib.sha1(self._key + _GUID).digest()).decode()
        if headers.get("sec-websocket-accept") != accept or headers.get("upgrade", "").lower() != "websocket":
            raise WebSocketError("answered the WebSocket handshake incorrectly")
        return rest
