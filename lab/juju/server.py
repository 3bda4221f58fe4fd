"""A simulated controller's servers: TLS, HTTP and WebSocket on non-blocking sockets, by the event loop's readiness.

A connection is only a socket, a parser and a session, without transport or task. So one process can have tens of
thousands. (picows takes no request body, so charms could not be uploaded on its port.)
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import struct
from collections.abc import Iterable
from contextlib import suppress

from lab.juju import charms, logsink
from lab.juju.controller import Controller
from lab.juju.logsink import LogReader, LogSink
from lab.juju.refusals import Refused
from lab.juju.rpc import Session
from lab.juju.websocket import (
    CLOSE,
    LARGEST_MESSAGE,
    PING,
    TEXT,
    Parser,
    ProtocolError,
    frame,
    upgrade_response,
)

_ACCEPT_AT_ONCE = 32
_BACKLOG = 4096
_CLOSING_TAKES_S = 5.0
_LARGEST_HEAD = 32 * 1024
_LARGEST_UPLOAD = 100 << 20
_OUT_OF_FILES_WAIT_S = 0.2
_NORMAL_CLOSURE = (1000).to_bytes(2, "big")  # RFC 6455, section 7.4.1
_buffer = memoryview(bytearray(256 * 1024))


class Server:
    """One server of the controller, which can be killed and started, frozen and resumed."""

    def __init__(self, name: str, controller: Controller, context: ssl.SSLContext) -> None:
        self.name = name
        self.controller = controller
        self.context = context
        self.channels: set[Channel] = set()
        self.frozen = False
        self._held: list[tuple[Channel, bytes]] = []
        self._listener: socket.socket | None = None
        self._expecting_pings: dict[Channel, float] = {}
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def alive(self) -> bool:
        """Whether it has not been killed."""
        return self._listener is not None

    def start(self) -> None:
        """Listen. Raises OSError if the address is in use."""
        host, port = self.controller.address_of(self.name).rsplit(":", 1)
        listener = socket.socket()
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, int(port)))
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        listener.setblocking(False)
        self._listener = listener
        self.controller.loop.add_reader(listener.fileno(), self._accept)
        self._look_for_silent()

    def kill(self) -> None:
        """Act like a killed process: close the port and all connections without a CLOSE frame."""
        assert self._listener is not None
        if not self.frozen:
            self.controller.loop.remove_reader(self._listener.fileno())
        self._listener.close()
        self._listener = None
        self.frozen = False
        self._held.clear()
        if self._sweep is not None:
            self._sweep.cancel()
        for channel in list(self.channels):
            channel.drop()

    def freeze(self) -> None:
        """Act like a stopped process: the kernel still accepts connections and bytes, but nothing is read or sent."""
        assert self._listener is not None
        self.frozen = True
        self.controller.loop.remove_reader(self._listener.fileno())
        for channel in self.channels:
            channel.listen(False)

    def resume(self) -> None:
        """Undo `freeze`: read and send everything that was pending."""
        assert self._listener is not None
        self.frozen = False
        self.controller.loop.add_reader(self._listener.fileno(), self._accept)
        for channel in self.channels:
            channel.listen(True)
        held, self._held = self._held, []
        for channel, message in held:
            channel.send(message)

    def hold(self, channel: Channel, message: bytes) -> None:
        """Keep a message that a frozen server cannot send."""
        self._held.append((channel, message))

    def expect_pings(self, channel: Channel) -> None:
        """End a connection if there is no ping within the ping timeout from now."""
        self._expecting_pings.pop(channel, None)
        self._expecting_pings[channel] = self.controller.loop.time()

    def expect_no_pings(self, channel: Channel) -> None:
        """Forget a connection that has ended."""
        self._expecting_pings.pop(channel, None)

    def _accept(self) -> None:
        assert self._listener is not None
        for _ in range(_ACCEPT_AT_ONCE):
            try:
                plain, _peer = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # out of file descriptors: clients wait in the backlog
                self.controller.loop.remove_reader(self._listener.fileno())
                self.controller.loop.call_later(_OUT_OF_FILES_WAIT_S, self._accept_again)
                return
            plain.setblocking(False)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                sock = self.context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
            except OSError:  # the client has left again
                plain.close()
                continue
            self.channels.add(Channel(self, sock))

    def _accept_again(self) -> None:
        if self._listener is not None and not self.frozen:
            self.controller.loop.add_reader(self._listener.fileno(), self._accept)

    def _look_for_silent(self) -> None:
        # Sorted by the last ping, so that only the first ones need a check.
        timeout = self.controller.setup.ping_timeout_s
        limit = self.controller.loop.time() - timeout
        silent: list[Channel] = []
        for channel, at in self._expecting_pings.items():
            if at > limit:
                break
            silent.append(channel)
        if not self.frozen:
            for channel in silent:
                self.expect_no_pings(channel)
                channel.close()
        self._sweep = self.controller.loop.call_later(min(1.0, timeout / 4), self._look_for_silent)


class Channel:
    """One client's connection: handshake, HTTP head, then messages for its session."""

    __slots__ = (
        "_body",
        "_closing",
        "_feed",
        "_fileno",
        "_loop",
        "_muted",
        "_parser",
        "_received",
        "_request",
        "_server",
        "_session",
        "_sock",
        "_unsent",
    )

    def __init__(self, server: Server, sock: ssl.SSLSocket) -> None:
        self._server = server
        self._loop = server.controller.loop
        self._sock = sock
        self._fileno = sock.fileno()
        self._session: Session | LogSink | LogReader | None = None
        self._parser: Parser | None = None
        self._received = bytearray()
        self._request: charms.Request | None = None
        self._body = 0
        self._unsent: bytearray | None = None
        self._closing = False
        self._muted = False
        self._feed = self._head
        self._loop.add_reader(self._fileno, self._handshake)

    @property
    def open(self) -> bool:
        """Whether it is an open WebSocket."""
        return self._parser is not None

    def send(self, message: bytes) -> None:
        """Send a message. A frozen server keeps it; a muted or closed connection drops it."""
        if self._closing or self._muted or self._fileno < 0:
            return
        if self._server.frozen:
            self._server.hold(self, message)
        else:
            self._write(frame(TEXT, message))

    def expect_pings(self) -> None:
        self._server.expect_pings(self)

    def pinged(self) -> None:
        self._server.expect_pings(self)

    def close(self) -> None:
        """Close it in order: a CLOSE frame, the client's answer or five seconds, then the socket."""
        if self._closing or self._fileno < 0:
            return
        if self._muted or self._server.frozen or self._parser is None:
            self.drop()
            return
        self._write(frame(CLOSE, _NORMAL_CLOSURE))
        self._closing = True
        self._end_session()
        self._loop.call_later(_CLOSING_TAKES_S, self.drop)

    def drop(self) -> None:
        """Close the socket without a CLOSE frame."""
        if self._fileno < 0:
            return
        self._loop.remove_reader(self._fileno)
        self._loop.remove_writer(self._fileno)
        self._fileno = -1
        self._sock.close()
        self._server.channels.discard(self)
        self._server.expect_no_pings(self)
        self._end_session()

    def reset(self) -> None:
        """Close the socket so that the client gets a TCP reset."""
        with suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.drop()

    def mute(self) -> None:
        """Leave it half open: nothing is read, answered or closed, as after a loss of the network."""
        self._muted = True
        self.listen(False)
        self._server.expect_no_pings(self)

    def listen(self, on: bool) -> None:
        """Read from the client, or leave its bytes unread."""
        if self._fileno < 0:
            return
        if not on:
            self._loop.remove_reader(self._fileno)
            self._loop.remove_writer(self._fileno)
        elif not self._muted:
            shaking = self._sock.version() is None
            self._loop.add_reader(self._fileno, self._handshake if shaking else self._read)
            if self._unsent:
                self._loop.add_writer(self._fileno, self._flush)

    def _handshake(self) -> None:
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            return
        except ssl.SSLWantWriteError:
            return  # a handshake's few kilobytes fit into the socket's buffer: the next read goes on
        except OSError:
            self.drop()
            return
        self._loop.add_reader(self._fileno, self._read)
        self._read()

    def _read(self) -> None:
        while self._fileno >= 0:
            try:
                size = self._sock.recv_into(_buffer)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except OSError:
                self.drop()
                return
            if not size:
                self.drop()
                return
            try:
                self._feed(bytes(_buffer[:size]))
            except ProtocolError:
                self.close()
                return
            if self._fileno < 0 or not self._sock.pending():
                return

    def _head(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            if len(self._received) > _LARGEST_HEAD:
                self.drop()
            return
        rest = bytes(self._received[end + 4 :])
        first, *lines = self._received[:end].decode("latin-1").split("\r\n")
        method, _, target = first.partition(" ")
        headers = {name.strip().lower(): text.strip() for name, _, text in (i.partition(":") for i in lines)}
        request = charms.Request(method, target.partition(" ")[0], headers)
        self._received = bytearray()
        key = headers.get("sec-websocket-key")
        if key and headers.get("upgrade", "").lower() == "websocket":
            if _is(request.path, "api"):
                self._begin_session(request.path, key, rest)
                return
            if _is(request.path, "logsink"):
                self._begin_logs(request, key, rest)
                return
            if request.path.partition("?")[0] == "/log":
                self._begin_reading(request, key, rest)
                return
        length = headers.get("content-length", "0")
        self._body = int(length) if length.isdigit() else 0
        if self._body > _LARGEST_UPLOAD:
            self.drop()
            return
        self._request = request
        self._feed = self._upload
        self._upload(rest)

    def _upload(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < self._body or self._request is None:
            return
        self._request.body = bytes(self._received[: self._body])
        self._answer(charms.answer(self._server.controller, self._request))

    def _answer(self, response: bytes) -> None:
        """Send an HTTP response and end the connection."""
        self._write(response)
        self._request = None
        if self._unsent is None:
            with suppress(OSError):
                self._sock.setblocking(False)
                self._sock.unwrap()
            self.drop()
        else:
            self._closing = True

    def _begin_session(self, path: str, key: str, rest: bytes) -> None:
        parts = path.split("/")
        model = parts[2] if len(parts) == 4 else None
        self._upgrade(key)
        self._session = Session(self._server.controller, self._server.name, self, model)
        if rest:
            self._messages(rest)

    def _begin_logs(self, request: charms.Request, key: str, rest: bytes) -> None:
        try:
            model = logsink.model_of(self._server.controller, request)
        except Refused as refusal:
            self._answer(charms.refusal_response(refusal, ""))
            return
        self._upgrade(key)
        self._session = LogSink(self._server.controller, model, self)
        if rest:
            self._messages(rest)

    def _begin_reading(self, request: charms.Request, key: str, rest: bytes) -> None:
        try:
            logsink.check_reader(self._server.controller, request)
        except Refused as refusal:
            self._answer(charms.refusal_response(refusal, ""))
            return
        self._upgrade(key)
        self._session = LogReader(self._server.controller, self)
        if rest:
            self._messages(rest)

    def _upgrade(self, key: str) -> None:
        self._parser = Parser()
        self._feed = self._messages
        self._received = _NOTHING
        self._write(upgrade_response(key))

    def _messages(self, data: bytes) -> None:
        assert self._parser is not None
        for opcode, payload in self._parser.feed(data):
            if opcode == CLOSE:
                if not self._closing:
                    self._write(frame(CLOSE, payload[:2]))
                with suppress(OSError, ValueError):
                    self._sock.unwrap()
                self.drop()
                return
            if opcode == PING:
                self._write(frame(0xA, payload))
            elif self._session is not None and not self._closing:
                self._session.receive(payload)

    def _write(self, data: bytes) -> None:
        if self._unsent is not None:
            self._unsent += data
            if len(self._unsent) > LARGEST_MESSAGE:
                self.drop()
            return
        try:
            sent = self._sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            sent = 0
        except OSError:
            self.drop()
            return
        if sent < len(data):
            self._unsent = bytearray(data[sent:])
            self._loop.add_writer(self._fileno, self._flush)

    def _flush(self) -> None:
        data, self._unsent = self._unsent, None
        self._loop.remove_writer(self._fileno)
        if data:
            self._write(bytes(data))
        if self._unsent is None and self._closing and self._parser is None:
            self.drop()

    def _end_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.gone()


_NOTHING = bytearray()


def _is(path: str, what: str) -> bool:
    """Tell whether a path is that of the API ("api") or of a model's log sink ("logsink")."""
    parts = path.partition("?")[0].split("/")
    of_model = len(parts) == 4 and parts[1] == "model" and parts[3] == what
    return of_model or (what == "api" and path in ("/", "/api"))


def some(channels: Iterable[Channel], share: float) -> list[Channel]:
    """Draw a share of the connections, each with that probability; 1 gives all."""
    return [channel for channel in channels if channel.open and random.random() < share]
