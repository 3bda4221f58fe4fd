"""Requests and replies: one session per connection.

The general errors are those of Juju 4.0 (rpc/server.go, apiserver/root.go): an unknown version, an unknown method, or a
facade that is not for this kind of login.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

import orjson

from lab.juju.accounts import MODEL_LEVELS, User, has
from lab.juju.controller import Controller
from lab.juju.methods import METHODS, WHO, Access, Handler, Kind
from lab.juju.model import Model
from lab.juju.refusals import Refused, permission_denied
from lab.juju.watchers import Watcher

T = TypeVar("T")


def for_each(
    entries: Iterable[T], answer: Callable[[T], dict[str, Any]], refused: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return the results of a bulk request: each entry's answer, or its refusal with the accompanying fields."""
    results: list[dict[str, Any]] = []
    for entry in entries:
        try:
            results.append(answer(entry))
        except Refused as refusal:
            results.append((refused or {}) | {"error": refusal.as_dict()})
    return results


def entries(params: dict[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the entries of a list that a request may leave out."""
    return params.get(key) or []


class Channel(Protocol):
    """The connection of a session."""

    def send(self, message: bytes) -> None: ...

    def close(self) -> None:
        """Close it in order: a CLOSE frame, then the socket."""
        ...

    def expect_pings(self) -> None:
        """End the connection from now on if no Pinger.Ping comes within the ping timeout."""
        ...

    def pinged(self) -> None:
        """Record a Pinger.Ping."""
        ...


@dataclass(frozen=True, slots=True)
class Entity:
    """A logged-in entity: a user "admin", a machine "0", a unit "app/0"."""

    kind: Kind
    id: str


class Call:
    """One request that has reached its handler."""

    __slots__ = ("id", "number", "params", "session")

    def __init__(self, session: Session, number: int, thing: str, params: dict[str, Any]) -> None:
        self.session = session
        self.number = number
        self.id = thing
        self.params = params

    @property
    def model(self) -> Model:
        """The connection's model."""
        model = self.session.model
        assert model is not None
        return model

    @property
    def entity(self) -> Entity:
        """The entity that asks."""
        entity = self.session.entity
        assert entity is not None
        return entity

    @property
    def user(self) -> User:
        """The user that asks."""
        return self.session.controller.users[self.entity.id]

    def may(self, access: Access, model: Model) -> bool:
        """Tell whether the user that asks has this access to a model."""
        return self.user.superuser or has(model.users.get(self.user.name, ""), access, MODEL_LEVELS)

    def require(self, access: Access) -> None:
        """Raise Refused unless the user that asks has this access to the connection's model."""
        if not self.may(access, self.model):
            raise permission_denied()

    def answer(self, response: dict[str, Any]) -> None:
        """Answer a request later. Nothing happens if the connection has ended."""
        self.session.reply(self.number, response)


class Session:
    """A client's connection, from before its login to its end."""

    __slots__ = (
        "channel",
        "controller",
        "entity",
        "last_watcher",
        "model",
        "parting",
        "server",
        "unknown",
        "watchers",
    )

    def __init__(self, controller: Controller, server: str, channel: Channel, model_uuid: str | None) -> None:
        self.controller = controller
        self.server = server
        self.channel = channel
        self.model = controller.models.get(model_uuid) if model_uuid else None
        self.unknown = model_uuid if model_uuid and self.model is None else None
        self.entity: Entity | None = None
        self.parting: dict[object, Callable[[], None]] = {}
        self.last_watcher = 0
        self.watchers: dict[str, Watcher] = {}

    def receive(self, message: bytes) -> None:
        """Handle a client's message. One that is no request ends the connection, as in Juju."""
        try:
            request = orjson.loads(message)
            number: int = request["request-id"]
            facade: str = request["type"]
            name: str = request["request"]
            version: int = request.get("version", 0)
            thing: str = request.get("id", "")
            params: dict[str, Any] = request.get("params") or {}
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            self.channel.close()
            return
        try:
            entity, handler = self.entity, None
            if entity is not None:
                handler = self.controller.dispatch[self.model is not None].get((facade, version, name))
            if handler is None:
                handler = self._before_facades(facade, version, name)
            elif entity is not None and WHO[facade] and entity.kind not in WHO[facade]:
                raise permission_denied()
        except Refused as refusal:
            self.refuse(number, refusal)
            return
        call = Call(self, number, thing, params)
        if self.controller.disks.delay(name):
            self.controller.disks.when_written(partial(self._handle, handler, call, f"{facade}.{name}"))
        else:
            self._handle(handler, call, f"{facade}.{name}")

    def _handle(self, handler: Handler, call: Call, name: str) -> None:
        number = call.number
        try:
            response = handler(call)
        except Refused as refusal:
            self.refuse(number, refusal)
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            self.refuse(number, Refused(f"json: cannot unmarshal params of {name}: {problem!r}"))
        else:
            if response is not None:
                self.reply(number, response)

    def reply(self, number: int, response: dict[str, Any]) -> None:
        """Answer a request."""
        self.channel.send(b'{"request-id":%d,"response":%b}' % (number, orjson.dumps(response)))

    def refuse(self, number: int, refusal: Refused) -> None:
        """Answer a request with an error."""
        reply: dict[str, Any] = {"request-id": number, "error": refusal.message}
        if refusal.code:
            reply["error-code"] = refusal.code
        if refusal.info:
            reply["error-info"] = refusal.info
        self.channel.send(orjson.dumps(reply | {"response": {}}))

    def close(self) -> None:
        """End the connection."""
        self.channel.close()

    def when_gone(self, key: object, do: Callable[[], None]) -> None:
        """Call `do` when the connection ends; `not_when_gone` cancels this."""
        self.parting[key] = do

    def not_when_gone(self, key: object) -> None:
        """Cancel a call of `when_gone`."""
        self.parting.pop(key, None)

    def new_watcher(self, watcher: Watcher, end: Callable[[], None] | None) -> str:
        """Add a watcher to this connection and return its id. `end` is called when it ends."""
        self.last_watcher += 1
        number = f"w-{self.last_watcher}"
        self.watchers[number] = watcher
        if end is not None:
            self.parting[number] = end
        return number

    def end_watcher(self, number: str) -> None:
        """End a watcher at the client's request."""
        del self.watchers[number]
        end = self.parting.pop(number, None)
        if end is not None:
            end()

    def gone(self) -> None:
        """Handle the end of the connection, by any cause."""
        parting, self.parting = self.parting, {}
        for do in parting.values():
            do()
        self.controller.left(self)

    def _before_facades(self, facade: str, version: int, name: str) -> Handler:
        if self.unknown is not None:
            raise Refused(f'unknown model: "{self.unknown}"', "model not found")
        if self.entity is None:
            if facade != "Admin":
                raise _no_version(facade, version)
            if version != 3:
                raise Refused(
                    "this version of Juju does not support login from old clients (not supported)",
                    "not supported",
                )
            if name not in METHODS["Admin"]:
                raise _no_method(facade, 0, name)
            return METHODS["Admin"][name]
        where = "controller" if self.model is None else "model"
        if not self.controller.serves(facade, where):
            raise Refused(f'facade "{facade}" not supported for {where} API connection', "not supported")
        if version not in self.controller.facades.get(facade, ()):
            raise _no_version(facade, version)
        if facade not in METHODS:
            raise Refused(f"{facade}.{name}: not in this simulator", "not implemented")
        raise _no_method(facade, version, name)


def _no_version(facade: str, version: int) -> Refused:
    return Refused(f'unknown version {version} for facade type "{facade}"', "not implemented")


def _no_method(facade: str, version: int, name: str) -> Refused:
    return Refused(
        f'unknown method "{name}" at version {version} for facade type "{facade}"', "not implemented"
    )
