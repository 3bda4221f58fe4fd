"""One login: from a dial to a Connection, following redirects."""

from __future__ import annotations

import re
from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass, field
from ssl import SSLSocket
from typing import Any, Protocol, cast

import orjson

from tippingpoint.errors import UserError
from tippingpoint.targets.juju.api.connection import Connection, reply_error
from tippingpoint.targets.juju.api.dialling import Controller, Dial, Gate, Server
from tippingpoint.targets.juju.api.errors import REDIRECT, ApiError, ConnectionLost, api_error
from tippingpoint.targets.juju.api.facades import Terms, offered_facades
from tippingpoint.targets.juju.api.stream import Stream

_MOST_REDIRECTS = 3
_KEPT_TERMS = 16
_UNREACHABLE_SCOPES = ("local-machine", "link-local")
"""Scopes of addresses that would mean another machine to this client (core/network/scope.go in Juju's source)."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A login's identity: a tag such as "user-admin", "machine-0" or "unit-app-0"; machines also have a nonce."""

    tag: str
    password: str = field(repr=False)
    nonce: str = ""


class TermsBook:
    """The Terms of all login replies. The 8 KB of facades are parsed once, not once per connection."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], Terms] = {}

    def read(self, reply: bytes) -> tuple[dict[str, Any], bytes]:
        """Parse a reply of the controller into an object and the text of its facades, which the object leaves out.

        ValueError if it is not an object.
        """
        begin = reply.find(b'"facades":[')
        end = reply.find(b"}]", begin)
        if begin >= 0 and end >= 0:
            begin += len(b'"facades":')
            end += len(b"}]")
            try:
                return _object(reply[:begin] + b"null" + reply[end:]), reply[begin:end]
            except ValueError:
                pass  # not formatted as Go does
        whole = _object(reply)
        response = whole.get("response")
        facades = cast("dict[str, Any]", response).get("facades") if isinstance(response, dict) else None
        return whole, orjson.dumps(facades)

    def terms(self, server_version: str, facades: bytes) -> Terms:
        """Return the Terms for a server's version and its facades' text; the same object for the same text."""
        key = server_version, facades
        terms = self._known.get(key)
        if terms is None:
            if len(self._known) >= _KEPT_TERMS:
                self._known.clear()
            terms = self._known[key] = Terms(server_version, offered_facades(orjson.loads(facades)))
        return terms


class Logins(Protocol):
    """The state that all logins of a client share."""

    gate: Gate
    book: TermsBook
    client_version: str
    """The Juju version that the client claims to have. A server allows users of another major version next to nothing
    (apiserver/restrict_newer_client.go of Juju 3), so the client claims the server's own."""

    def moved(self, model: str | None, controller: Controller) -> None:
        """Note that a model is at another controller."""
        ...

    def logged_in(self, login: Login, connection: Connection) -> None:
        """Note that a login has made its connection."""
        ...

    def gone(self, connection: Connection) -> None:
        """Note that a connection is closed."""
        ...

    def over(self, login: Login) -> None:
        """Note that a login has failed or was cancelled."""
        ...


class Login:
    """A login under way. Its future ends with the connection, or with ApiError or ConnectionLost."""

    __slots__ = (
        "_closed",
        "_controller",
        "_dial",
        "_identity",
        "_logins",
        "_model",
        "_redirects",
        "_said",
        "_server",
        "_stream",
        "future",
    )

    def __init__(
        self,
        logins: Logins,
        controller: Controller,
        identity: Identity,
        model: str | None,
        closed: Callable[[str], None] | None,
        begun: Callable[[], None] | None,
    ) -> None:
        self._logins = logins
        self._controller = controller
        self._identity = identity
        self._model = model
        self._closed = closed
        self._redirects = 0
        self._said = ""
        self._server: Server | None = None
        self._stream: Stream | None = None
        self.future: Future[Connection] = logins.gate.loop.create_future()
        self.future.add_done_callback(self._ended)
        self._dial: Dial | None = self._begin(begun)

    def _begin(self, begun: Callable[[], None] | None = None) -> Dial:
        path = "/api" if self._model is None else f"/model/{self._model}/api"
        return Dial(self._logins.gate, self._controller, path, self, begun)

    def _ended(self, future: Future[Connection]) -> None:
        if future.cancelled():
            self._drop()

    def _drop(self) -> None:
        dial, self._dial = self._dial, None
        stream, self._stream = self._stream, None
        if dial is not None:
            dial.give_up()
        if stream is not None:
            stream.close()
        self._logins.over(self)

    def failed(self, error: ApiError | ConnectionLost) -> None:
        """End the login with an error."""
        if not self.future.done():
            self.future.set_exception(error)
        self._drop()

    def opened(self, socket: SSLSocket, server: Server, rest: bytes) -> None:
        """Log in over the WebSocket that the dial has opened."""
        self._dial = None
        self._server = server
        gate = self._logins.gate
        self._stream = stream = Stream(gate.loop, gate.readiness, socket, self)
        if self.future.done():  # just cancelled
            self._drop()
            return
        self._said = self._logins.client_version
        who = self._identity
        params = {
            "auth-tag": who.tag,
            "credentials": who.password,
            "nonce": who.nonce,
            "client-version": self._said,
        }
        self._ask(1, "Login", params)
        if rest:
            stream.take(rest)

    def _ask(self, number: int, request: str, params: object) -> None:
        assert self._stream is not None
        call = {"request-id": number, "type": "Admin", "version": 3, "request": request, "params": params}
        self._stream.send(orjson.dumps(call))

    def message(self, payload: bytes) -> None:
        """Handle the answer to Login, or to RedirectInfo after it."""
        if self.future.done():  # just cancelled
            return
        try:
            reply, facades = self._logins.book.read(payload)
            number = reply.get("request-id")
            response: Any = reply.get("response") or {}
            if not isinstance(response, dict) or number not in (1, 2):
                raise ValueError
        except ValueError:
            self.lost("sent a message that is not a reply to a login")
            return
        answer = cast("dict[str, Any]", response)
        if error := reply.get("error"):
            self._refused(reply_error(error, reply, "Admin", "Login" if number == 1 else "RedirectInfo"))
        elif number == 2:
            self._redirect(answer)
        else:
            self._accepted(answer, facades)

    def lost(self, reason: str) -> None:
        """Fail the login because the stream was closed before the answer."""
        assert self._server is not None
        self.failed(ConnectionLost(self._server.address, reason))

    def _refused(self, error: ApiError) -> None:
        if error.code != REDIRECT:
            self.failed(error)
            return
        info: Any = error.info
        where = cast("dict[str, Any]", info) if isinstance(info, dict) else {}
        if where.get("ca-cert") and where.get("servers"):
            self._redirect(where)
        else:
            self._ask(2, "RedirectInfo", {})  # older controllers name the other one only on request

    def _redirect(self, where: dict[str, Any]) -> None:
        assert self._server is not None
        assert self._stream is not None
        self._redirects += 1
        addresses = _addresses(where.get("servers"))
        if self._redirects > _MOST_REDIRECTS or not addresses:
            self.failed(ConnectionLost(self._server.address, "redirects too often or without an address"))
            return
        try:
            self._controller = Controller(addresses, str(where.get("ca-cert") or ""))
        except UserError as problem:
            self.failed(
                ConnectionLost(self._server.address, f"redirects to an invalid controller: {problem}")
            )
            return
        self._logins.moved(self._model, self._controller)
        self._dial_again()

    def _dial_again(self) -> None:
        assert self._stream is not None
        self._stream.close()
        self._stream = None
        self._dial = self._begin()

    def _accepted(self, answer: dict[str, Any], facades: bytes) -> None:
        version = answer.get("server-version")
        if not isinstance(version, str):
            reason = answer.get("discharge-required-error")
            if "discharge-required" in answer or "bakery-discharge-required" in answer:
                text = f"the controller asks for a macaroon ({reason}): expected a local user with a password"
                self.failed(api_error(text, "macaroon discharge required", "Admin", "Login"))
            else:
                self.lost("answered a login without its version")
            return
        if _major(version) != _major(self._said):
            self._logins.client_version = version
            if _major(version):
                self._dial_again()
                return
        assert self._server is not None
        assert self._stream is not None
        self._controller.learn(_addresses(answer.get("servers")))
        terms = self._logins.book.terms(version, facades)
        stream, self._stream = self._stream, None
        connection = Connection(
            self._logins.gate.loop,
            stream,
            terms,
            self._identity.tag,
            self._server.address,
            self._closed,
            self._logins.gone,
        )
        self._logins.logged_in(self, connection)
        self.future.set_result(connection)


def _object(text: bytes) -> dict[str, Any]:
    value = orjson.loads(text)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return cast("dict[str, Any]", value)


def _major(version: str) -> str:
    found = re.match(r"\d+", version)
    return found[0] if found else ""


def _addresses(servers: Any) -> list[str]:
    """Return the "HOST:PORT" of Juju's list of servers, `[[{"value", "type", "scope", "port"}]]`, in order."""
    addresses: list[str] = []
    for server in cast("list[Any]", servers) if isinstance(servers, list) else []:
        for address in cast("list[Any]", server) if isinstance(server, list) else []:
            match address:
                case {"value": str(host), "port": int(port)} if host and 0 < port < 2**16:
                    if cast("dict[str, Any]", address).get("scope") not in _UNREACHABLE_SCOPES:
                        addresses.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
                case _:
                    pass
    return addresses
