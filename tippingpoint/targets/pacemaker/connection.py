"""One connection to the CIB daemon of a node: log-in, calls that may overtake each other, notifications."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
from asyncio import Future
from collections.abc import Callable
from typing import cast

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.pacemaker.wire import (
    LONGEST,
    LONGEST_LOGIN,
    Answer,
    FrameReader,
    WireError,
    command,
    frame,
    login,
    notifications,
)
from tippingpoint.util.network_errors import CLOSED, in_words

_SAID = {
    -1: "not permitted",
    -2: "no such entry",
    -5: "input or output error",
    -6: "nothing has this id",
    -11: "try again",
    -13: "permission denied",
    -16: "busy",
    -17: "exists already",
    -22: "invalid, or no data",
    -62: "timed out in the cluster",
    -107: "not connected",
    -110: "timed out in the cluster",
    -201: "generic error",
    -202: "no quorum",
    -203: "refused by the schema",
    -205: "older than the present one",
    -206: "not of the expected version",
}
"""Return codes in words: errno's, negated, and Pacemaker's own (include/crm/common/results.h)."""


def in_plain_words(code: int) -> str:
    """A return code with its meaning in brackets, by which errors are counted."""
    return f"rc {code} ({_SAID.get(code, 'refused')})"


class LoginRefused(ConnectionError):
    """Raised when a node closes the connection instead of letting us in. It gives no reason."""


class Connection(asyncio.Protocol):
    """A connection that is logged in once `connect` has returned. Every call ends, whatever happens to it."""

    def __init__(self, name: str, on_lost: Callable[[str], None]) -> None:
        self.name = name
        """The node's address and port, for errors."""
        self.on_notification: Callable[[Answer], None] | None = None
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(LONGEST_LOGIN)
        self._numbers = itertools.count(1)
        self._waiting: dict[str, Future[Answer]] = {}
        self._registered: Future[str] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._socket: socket.socket | None = None
        self._token = ""
        self.problem = ""
        """Why the connection is down; empty while it is up."""

    @classmethod
    async def connect(
        cls,
        host: str,
        port: int,
        tls: ssl.SSLContext,
        user: str,
        password: str,
        on_lost: Callable[[str], None],
        server_hostname: str | None = None,
    ) -> Connection:
        """Connect and log in. Raises OSError, ssl.SSLError, LoginRefused; the caller sets a time limit."""
        made: Connection | None = None

        def make() -> Connection:
            nonlocal made
            made = cls(f"{host}:{port}", on_lost)
            return made

        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                make, host, port, ssl=tls, server_hostname=server_hostname or host
            )
            connection._send(login(user, password, "tippingpoint"))
            connection._token = await connection._registered
        except BaseException:
            if made is not None:
                made.close("not connected")
            raise
        return connection

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has no base class in asyncio
        self._socket = transport.get_extra_info("socket")

    def data_received(self, data: bytes) -> None:
        try:
            answers = self._reader.feed(data)
        except WireError as problem:
            self.close(f"is no CIB daemon: {problem}")
            return
        for answer in answers:
            self._received(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._down(in_words(exc) if exc is not None else CLOSED)

    # what a load needs

    @property
    def up(self) -> bool:
        """Whether calls can be made."""
        return bool(self._token) and not self.problem

    def call(self, operation: str, section: str | None, data: str | None, options: int) -> Future[Answer]:
        """Make a call. The future ends with the answer, or with OperationFailed when the connection is lost.

        The return code is not checked. A cancelled future is forgotten, and its late answer dropped.
        """
        future: Future[Answer] = self._loop.create_future()
        if self.problem:
            future.set_exception(OperationFailed(f"{self.name}: {self.problem}"))
            return future
        number = next(self._numbers)
        self._waiting[str(number)] = future
        self._send(command(self._token, number, operation, section, data, options))
        return future

    def watch(self, kind: str = "cib_diff_notify") -> None:
        """Have the node notify us of changes."""
        self._send(notifications(self._token, kind))

    def close(self, reason: str) -> None:
        """Close it; calls under way end with OperationFailed."""
        if self._transport is not None:
            self._transport.abort()
        self._down(reason)

    def _send(self, xml: str) -> None:
        assert self._transport is not None
        header, body = frame(xml)
        self._transport.write(header)
        self._transport.write(body)
        if self._socket is not None:
            # The daemon sends header and payload separately, with Nagle's algorithm: a lone answer would take 40 ms.
            # A connection that was closed just now has no socket any more; connection_lost ends its calls.
            with contextlib.suppress(OSError, ValueError):
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    def _received(self, answer: Answer) -> None:
        attributes = answer.attributes
        if attributes.get("t") == "cib_notify":
            # Pacemaker 3 adds the change's number at its client, which may be one of ours.
            if self.on_notification is not None:
                self.on_notification(answer)
            return
        number = attributes.get("cib_callid")
        if number is not None and (future := self._waiting.pop(number, None)) is not None:
            if future.done():
                return
            try:
                _ = answer.code
            except WireError as problem:
                future.set_exception(OperationFailed(f"{self.name}: {problem}"))
            else:
                future.set_result(answer)
        elif attributes.get("cib_op") == "register" and not self._registered.done():
            self._reader.longest = LONGEST
            self._registered.set_result(attributes.get("cib_clientid", ""))

    def _down(self, reason: str) -> None:
        if self.problem:
            return
        self.problem = reason
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(OperationFailed(f"{self.name}: {reason}"))
        if not self._registered.done():
            self._registered.set_exception(LoginRefused(reason))
            self._registered.exception()  # nobody may be waiting for it, which asyncio would complain about
        self._on_lost(reason)
