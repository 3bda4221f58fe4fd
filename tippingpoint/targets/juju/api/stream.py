"""One WebSocket over TLS on a non-blocking socket. While idle it has no task, transport or buffer."""

from __future__ import annotations

import asyncio
import os
import ssl
from select import EPOLLERR
from socket import SO_ERROR, SOL_SOCKET
from typing import Protocol

from tippingpoint.targets.juju.api import websocket
from tippingpoint.targets.juju.api.readiness import READ, WRITE, Readiness
from tippingpoint.targets.juju.api.websocket import FrameReader, WebSocketError
from tippingpoint.util.certificates import certificate_fault
from tippingpoint.util.network_errors import CLOSED, in_words

_MOST_UNSENT = 4 * 2**20
"""Unsent bytes, in addition to one message, that are kept for a server that does not read; beyond that, the connection
is lost."""

# A TLS record has at most 16 KiB, so one read never leaves decrypted bytes behind in OpenSSL.
_received = bytearray(2**15)
_view = memoryview(_received)


class Owner(Protocol):
    """The receiver of a stream's messages."""

    def message(self, payload: bytes) -> None:
        """Receive a whole text message."""
        ...

    def lost(self, reason: str) -> None:
        """Receive the loss of the stream, once; nothing is called after it."""
        ...


class Stream:
    """An open WebSocket. Its owner may change. After the end, `send` and `close` do nothing."""

    __slots__ = ("_frames", "_loop", "_readiness", "_socket", "_unsent", "owner")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, readiness: Readiness, socket: ssl.SSLSocket, owner: Owner
    ) -> None:
        self._loop = loop
        self._readiness = readiness
        self._socket: ssl.SSLSocket | None = socket
        self._frames = FrameReader()
        self._unsent: bytearray | None = None
        self.owner: Owner | None = owner
        readiness.change(socket.fileno(), self, READ)

    def send(self, payload: bytes) -> None:
        """Send a text message. Bytes that the server does not take at once are kept, up to a limit."""
        self._write(websocket.frame(websocket.TEXT, payload))

    def close(self) -> None:
        """Send a CLOSE frame and close the socket; the owner is not called."""
        self.owner = None
        if self._socket is not None and self._unsent is None:
            self._write(websocket.frame(websocket.CLOSE, websocket.close_payload(1000)))
        self._shut()

    def take(self, data: bytes) -> None:
        """Handle bytes from the server; public because some come with its answer to the handshake."""
        try:
            for opcode, payload in self._frames.feed(data):
                if self.owner is None:
                    return
                if opcode == websocket.TEXT or opcode == websocket.BINARY:
                    self.owner.message(payload)
                elif opcode == websocket.PING:
                    self._write(websocket.frame(websocket.PONG, payload))
                elif opcode == websocket.CLOSE:
                    self._write(websocket.frame(websocket.CLOSE, payload[:2]))
                    self.fail(f"closed by the server: {websocket.close_reason(payload)}")
        except WebSocketError as problem:
            self._write(websocket.frame(websocket.CLOSE, websocket.close_payload(1002)))
            self.fail(str(problem))

    def fail(self, reason: str) -> None:
        """Close the socket because of a fault, and call the owner's `lost`."""
        owner, self.owner = self.owner, None
        self._shut()
        if owner is not None:
            owner.lost(reason)

    def ready(self, events: int) -> None:
        """Read or write after the socket became ready."""
        fault = 0
        if events & EPOLLERR and self._socket is not None:
            # Read here, because Python's ssl reports a reset as the end of the file.
            fault = self._socket.getsockopt(SOL_SOCKET, SO_ERROR)
        if events & WRITE and self._unsent is not None and not fault:
            self._flush()
        if events & ~WRITE and self._socket is not None:
            self._receive(self._socket, os.strerror(fault) if fault else CLOSED)

    def _receive(self, socket: ssl.SSLSocket, at_the_end: str) -> None:
        try:
            count = socket.recv_into(_view, len(_received))
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError as problem:
            self.fail(why(problem))
            return
        if count == 0:
            self.fail(at_the_end)
            return
        self.take(bytes(_view[:count]))

    def _write(self, data: bytes) -> None:
        if self._socket is None:
            return
        if self._unsent is not None:
            if len(self._unsent) > _MOST_UNSENT:
                self._fail_soon(f"does not read: {len(self._unsent)} bytes are unsent")
                return
            self._unsent += data
            return
        try:
            sent = self._socket.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            sent = 0
        except OSError as problem:
            self._fail_soon(why(problem))
            return
        if sent < len(data):
            self._unsent = bytearray(data[sent:])
            self._readiness.change(self._socket.fileno(), self, READ | WRITE)

    def _flush(self) -> None:
        assert self._socket is not None
        assert self._unsent is not None
        try:
            sent = self._socket.send(self._unsent)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return
        except OSError as problem:
            self.fail(why(problem))
            return
        del self._unsent[:sent]
        if not self._unsent:
            self._unsent = None
            self._readiness.change(self._socket.fileno(), self, READ)

    def _fail_soon(self, reason: str) -> None:
        # Not at once: a sender does not expect its connection to end during the send.
        self._loop.call_soon(self.fail, reason)

    def _shut(self) -> None:
        if self._socket is not None:
            self._readiness.forget(self._socket.fileno())
            self._socket.close()
            self._socket = None
            self._unsent = None


def why(problem: BaseException) -> str:
    """Return a socket error's text for people, on one line."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        fault = certificate_fault(problem)
        own = "a certificate of the controller's own CA"
        return f"{fault.said}: expected {own if fault.kind == 'authority' else fault.accepted}"
    return in_words(problem)
