"""One logged-in connection of the Juju API: calls, their answers, and its end."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable
from typing import Any, cast

import orjson

from tippingpoint.errors import OperationFailed, one_line
from tippingpoint.targets.juju.api.errors import ApiError, ConnectionLost, api_error
from tippingpoint.targets.juju.api.facades import Call, Terms
from tippingpoint.targets.juju.api.stream import Stream

_PING = b',"type":"Pinger","version":1,"request":"Ping","params":{}}'
Result = Callable[[Any], Any]
"""Turns a response object into the value of a call's future."""
_Pending = tuple[int, Future[Any], Call, Result | None]
"""A call that has no answer yet; the request's number comes first."""
_LOGIN_REQUESTS = 2
"""Request numbers used by the login."""


class Connection:
    """A logged-in API connection. When idle it costs a socket and a few words of memory."""

    __slots__ = (
        "_closed",
        "_last",
        "_loop",
        "_others",
        "_pending",
        "_ping",
        "_stream",
        "_terms",
        "_unused",
        "server",
        "tag",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stream: Stream,
        terms: Terms,
        tag: str,
        server: str,
        closed: Callable[[str], None] | None,
        unused: Callable[[Connection], None],
    ) -> None:
        self.tag = tag
        """The tag that is logged in, such as "unit-app-0"."""
        self.server = server
        """Address of the server, "HOST:PORT"."""
        self._loop = loop
        self._terms = terms
        self._closed = closed
        self._unused = unused
        self._stream: Stream | None = stream
        self._pending: _Pending | None = None
        self._others: dict[int, _Pending] | None = None
        """Other pending calls. Most connections never have two, and a dict takes as much memory as all else here."""
        self._last = _LOGIN_REQUESTS
        self._ping = 0
        stream.owner = self

    @property
    def server_version(self) -> str:
        """The server's version, such as "4.0.15"."""
        return self._terms.server_version

    @property
    def facades(self) -> dict[str, int]:
        """The version in use of each facade; one dict, not to be changed, for all connections with the same terms."""
        return self._terms.facades

    @property
    def closed(self) -> bool:
        """Whether it has ended, for any reason."""
        return self._stream is None

    def call(
        self, facade: str, request: str, params: object, entity: str = "", result: Result | None = None
    ) -> Future[Any]:
        """Call a method of a facade. The future ends with the response object, or with the value of `result` for it.

        `params` is anything that orjson writes, None for no parameters. `entity` is a watcher's id for a method of a
        watcher (`id` in Juju's rpc/message.go). The future ends with an exception in these cases:

        - ApiError: the controller answers with an error. (For errors inside a response use `result_errors`.) The
          code is "not implemented" if no common version of the facade exists. It is "" if `result` finds a response
          of another shape.
        - OperationFailed raised by `result`.
        - ConnectionLost: the connection is lost or closed.

        A cancelled future is forgotten, and its late answer dropped.
        """
        future: Future[Any] = self._loop.create_future()
        if self._stream is None:
            future.set_exception(ConnectionLost(self.server, "the connection is closed"))
            return future
        try:
            call = self._terms.call(facade, request)
        except ApiError as refusal:
            future.set_exception(refusal)
            return future
        body = b"{}" if params is None else orjson.dumps(params)
        if entity:
            body += b',"id":' + orjson.dumps(entity)
        self._last = number = self._last + 1
        if self._pending is None:
            self._pending = number, future, call, result
        else:
            if self._others is None:
                self._others = {}
            self._others[number] = number, future, call, result
        self._stream.send(b'{"request-id":%d%b%b}' % (number, call.head, body))
        return future

    def close(self) -> None:
        """Close the WebSocket, then the socket. Futures under way end with ConnectionLost."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._closed = None
            stream.close()
            self._end("closed by the client")

    def ping(self) -> int | None:
        """Send a ping and return its number; None when the connection is closed."""
        if self._stream is None:
            return None
        self._last = self._ping = self._last + 1
        self._stream.send(b'{"request-id":%d%b' % (self._ping, _PING))
        return self._ping

    def unanswered(self, ping: int) -> bool:
        """Whether the connection is open and this ping has no answer yet."""
        return self._stream is not None and self._ping == ping

    def unreachable(self, seconds: float) -> None:
        """Fail the connection because no ping was answered within these seconds."""
        if self._stream is not None:
            self._stream.fail(f"no answer to a ping within {seconds:g} s")

    def message(self, payload: bytes) -> None:
        """Handle a message of the server: the answer to a call or a ping."""
        try:
            reply = orjson.loads(payload)
            number = reply["request-id"]
            if not isinstance(number, int):
                raise TypeError
        except (ValueError, TypeError, KeyError):
            assert self._stream is not None
            self._stream.fail("sent a message that is not a reply")
            return
        if number == self._ping:
            self._ping = 0
            return
        waiting = self._pending
        if waiting is not None and waiting[0] == number:
            self._pending = None
        else:
            waiting = self._others.pop(number, None) if self._others else None
        if waiting is None or waiting[1].done():
            return
        _, future, call, result = waiting
        if error := reply.get("error"):
            future.set_exception(reply_error(error, reply, call.facade, call.request))
        elif result is None:
            future.set_result(reply.get("response"))
        else:
            try:
                future.set_result(result(reply.get("response")))
            except OperationFailed as refusal:
                future.set_exception(refusal)
            except (KeyError, TypeError, ValueError, AttributeError):
                shape = "an answer of an unexpected shape"
                future.set_exception(api_error(shape, "", call.facade, call.request))

    def lost(self, reason: str) -> None:
        """Handle the loss of the stream."""
        self._stream = None
        self._end(reason)

    def _end(self, reason: str) -> None:
        closed, self._closed = self._closed, None
        pending = [*(self._others or {}).values(), *((self._pending,) if self._pending is not None else ())]
        self._pending = self._others = None
        self._unused(self)
        for _, future, _, _ in pending:
            if not future.done():
                future.set_exception(ConnectionLost(self.server, reason))
        if closed is not None:
            closed(f"{self.server}: {one_line(reason)}")


def reply_error(error: object, reply: dict[str, Any], facade: str, request: str) -> ApiError:
    """Return the error that a reply carries beside its response."""
    code = reply.get("error-code") or ""
    info = cast("Any", reply.get("error-info"))
    return api_error(str(error), str(code), facade, request, info)
