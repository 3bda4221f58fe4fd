"""The log sink: a WebSocket at /model/UUID/logsink to which an agent sends its log, one record a message.

Recorded: an agent logs in by HTTP's basic authentication, and the first message says that it may send. From source
(apiserver/logsink of Juju 4.0): a machine also has its nonce in a header, and a record that is no JSON ends the
connection. Records are counted, and nothing is kept of them. The sink does not ping its clients.
"""

from __future__ import annotations

import orjson

from lab.juju.charms import Request, basic
from lab.juju.controller import Controller
from lab.juju.login import agent
from lab.juju.model import Model
from lab.juju.refusals import Refused
from lab.juju.rpc import Channel


class LogSink:
    """One agent's connection to the log sink."""

    def __init__(self, model: Model, channel: Channel) -> None:
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
        else:
            self._channel.close()

    def gone(self) -> None:
        """Handle the end of the connection."""


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
