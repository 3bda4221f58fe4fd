"""Logs: the sink that an agent writes to, and the log that a user follows. Each is a WebSocket.

The sink is at /model/UUID/logsink, one record a message. The log of all models is at /log, as for
`juju debug-log --firehose`; a real controller looks for new lines every few seconds, and here they come at once.

Recorded: an agent logs in by HTTP's basic authentication, and the first message says that it may send. From source
(apiserver/logsink of Juju 4.0): a machine also has its nonce in a header, and a record that is no JSON ends the
connection. Records are counted, and nothing is kept of them. The sink does not ping its clients.
"""

from __future__ import annotations

from typing import Any, cast

import orjson

from lab.juju.charms import Request, basic
from lab.juju.controller import Controller
from lab.juju.login import agent, user_of
from lab.juju.model import Model
from lab.juju.refusals import Refused
from lab.juju.rpc import Channel


class LogSink:
    """One agent's connection to the log sink."""

    def __init__(self, controller: Controller, model: Model, channel: Channel) -> None:
        self._controller = controller
        self._model = model
        self._channel = channel
        channel.send(b"{}\n")

    def receive(self, message: bytes) -> None:
        """Count a record."""
        try:
            record: object = orjson.loads(message)
        except orjson.JSONDecodeError:
            record = None
        if isinstance(record, dict):
            self._model.log_lines += 1
            for reader in self._controller.log_readers:
                reader.line(self._model, cast("dict[str, Any]", record))
        else:
            self._channel.close()

    def gone(self) -> None:
        """Handle the end of the connection."""


class LogReader:
    """One user's connection to the log of all models."""

    def __init__(self, controller: Controller, channel: Channel) -> None:
        self._controller = controller
        self._channel = channel
        controller.log_readers[self] = None
        channel.send(b"{}\n")

    def line(self, model: Model, record: dict[str, Any]) -> None:
        """Send a record as rpc/params has a LogMessage."""
        message = {
            "uuid": model.uuid,
            "tag": record.get("e", ""),
            "ts": record.get("t"),
            "sev": record.get("v", ""),
            "mod": record.get("m", ""),
            "loc": record.get("l", ""),
            "msg": record.get("x", ""),
        }
        self._channel.send(orjson.dumps(message) + b"\n")

    def receive(self, message: bytes) -> None:
        """Ignore what a reader sends."""

    def gone(self) -> None:
        """Handle the end of the connection."""
        self._controller.log_readers.pop(self, None)


def check_reader(controller: Controller, request: Request) -> None:
    """Refuse a user who may not follow the log of all models. Raises Refused."""
    tag, password = basic(request.headers.get("authorization", ""))
    name = user_of(controller.users, tag.removeprefix("user-"), password).id
    if not controller.users[name].superuser:
        raise Refused("permission denied", "unauthorized access")


def model_of(controller: Controller, request: Request) -> Model:
    """Return the model to whose sink an agent may connect. Raises Refused."""
    uuid = request.path.split("/")[2]
    model = controller.models.get(uuid)
    if model is None:
        raise Refused(f'unknown model: "{uuid}"', "model not found")
    tag, password = basic(request.headers.get("authorization", ""))
    if tag.startswith("user-"):
        raise Refused("authorization failed: permission denied", "forbidden")
    agent(tag, password, request.headers.get("x-juju-nonce", ""), model)
    return model
