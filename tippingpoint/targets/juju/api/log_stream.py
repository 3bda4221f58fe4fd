"""Log streams: a model's sink, which its agents write to, and the log that `juju debug-log` reads.

Both are WebSockets of their own (api/logsender/logsender.go and api/common/logs.go in Juju's source). The controller's
first message, an object with an `error`, shows whether it accepts the stream.
"""

from __future__ import annotations

import base64
from asyncio import Future
from collections.abc import Callable
from datetime import UTC, datetime
from ssl import SSLSocket
from typing import Any, Protocol, cast

import orjson

from tippingpoint.errors import OperationFailed, one_line
from tippingpoint.targets.juju.api.dialling import Controller, Dial, Gate, Server
from tippingpoint.targets.juju.api.errors import ConnectionLost
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.targets.juju.api.stream import Stream
from tippingpoint.util import timing

_SINK = "/model/{}/logsink?version=1"
_LOG = "/log?version=2&backlog=1&firehose=true"


class Dialling(Protocol):
    """The client that a stream belongs to."""

    gate: Gate


class LogStream:
    """One stream. `accepted` ends once the controller has accepted it, or with ConnectionLost or OperationFailed."""

    def __init__(
        self,
        client: Dialling,
        controller: Controller,
        identity: Identity,
        model: str | None,
        line: Callable[[str], None] | None = None,
    ) -> None:
        """Open the sink of a model (its UUID), or for None the log of all models: `line` gets each line's message."""
        self.accepted: Future[None] = client.gate.loop.create_future()
        self._gate = client.gate
        self._line = line
        self._stream: Stream | None = None
        self._server = ""
        credentials = base64.b64encode(f"{identity.tag}:{identity.password}".encode()).decode()
        headers = f"Authorization: Basic {credentials}\r\n"
        if identity.nonce:
            headers += f"X-Juju-Nonce: {identity.nonce}\r\n"
        path = _LOG if model is None else _SINK.format(model)
        self._dial: Dial | None = Dial(client.gate, controller, path, self, None, headers)

    @property
    def closed(self) -> bool:
        """Whether it has ended, or was refused."""
        return self._dial is None and self._stream is None

    def write(self, unit: str, message: str) -> None:
        """Write a unit's line (rpc/params LogRecord); does nothing if the stream has ended."""
        record = {
            "t": datetime.fromtimestamp(timing.wall(), UTC).isoformat().replace("+00:00", "Z"),
            "m": f"unit.{unit}.juju-log",
            "l": "server.go:325",
            "v": "INFO",
            "x": message,
            "e": "unit-" + unit.replace("/", "-"),
        }
        if self._stream is not None:
            self._stream.send(orjson.dumps(record))

    def close(self) -> None:
        """End it."""
        dial, self._dial = self._dial, None
        stream, self._stream = self._stream, None
        if dial is not None:
            dial.give_up()
        if stream is not None:
            stream.close()
        if not self.accepted.done():
            self.accepted.cancel()

    # -- the dial and the stream ------------------------------------------------------------------

    def opened(self, socket: SSLSocket, server: Server, rest: bytes) -> None:
        """See Dialler."""
        self._dial = None
        self._server = server.address
        self._stream = stream = Stream(self._gate.loop, self._gate.readiness, socket, self)
        if rest:
            stream.take(rest)

    def failed(self, error: ConnectionLost) -> None:
        """See Dialler."""
        self._dial = None
        self._refuse(error)

    def message(self, payload: bytes) -> None:
        """Handle the first message, and then lines of the log."""
        try:
            value: object = orjson.loads(payload)
        except ValueError:
            return
        if not isinstance(value, dict):
            return
        said = cast("dict[str, Any]", value)
        if not self.accepted.done():
            error = said.get("error")
            if error:
                text = cast("dict[str, Any]", error).get("message") if isinstance(error, dict) else error
                self._refuse(OperationFailed(f"{self._server}: refuses the log: {one_line(str(text))}"))
                self.close()
            else:
                self.accepted.set_result(None)
        elif self._line is not None:
            self._line(str(said.get("msg", "")))

    def lost(self, reason: str) -> None:
        """Handle the loss of the stream."""
        self._stream = None
        self._refuse(ConnectionLost(self._server, reason))

    def _refuse(self, error: OperationFailed) -> None:
        if not self.accepted.done():
            self.accepted.set_exception(error)
