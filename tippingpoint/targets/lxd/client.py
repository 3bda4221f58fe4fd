"""Calls of the LXD API: one session, connections that stay open, and operations awaited without polling."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from http import HTTPStatus
from math import inf
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import quote, urlencode, urlsplit

import aiohttp
import orjson
from yarl import URL

from tippingpoint.errors import TargetError
from tippingpoint.targets.lxd.access import DEFAULT_PORT, LxdAccess
from tippingpoint.targets.lxd.errors import LxdError, lxd_error
from tippingpoint.util.backoff import backoff
from tippingpoint.util.racing import first_to_accept
from tippingpoint.util.rest import CONNECT_WITHIN, TooLarge, broken, open_session, read_body
from tippingpoint.util.retrying import FIRST_PAUSE, LONGEST_PAUSE

LARGEST_ANSWER = 256 << 20
"""Bytes; a full list of 5000 containers is a tenth of it."""

LEADER_WITHIN = 10.0
"""Seconds, from the first such answer, for which a wait is retried while LXD's database has no leader.

With three members of LXD 5.0.2, the first answer came 5.4 s after the leader's death.
"""

_JSON = {"Content-Type": "application/json"}
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)

Body = Callable[[], bytes | BinaryIO | None]


class LxdClient:
    """A client of one server or of a cluster's members, used from one event loop.

    Every call goes to one address until that cannot be reached or does not answer; then to the next, in turn, that
    accepts a connection: a silent one costs no time. `prefer` chooses the first, so that workers spread. Failures raise
    LxdError, LxdGone or LxdExists. If no address can be reached, the error's kind is "unreachable", or "trust" if the
    server is not the expected one. Calls have no time limit: the caller cancels them.
    """

    def __init__(self, access: LxdAccess, prefer: int = 0) -> None:
        self._access = access
        self._addresses = ["http://lxd"] if access.socket is not None else list(access.addresses)
        self._current = prefer % len(self._addresses)
        self._choosing: asyncio.Task[None] | None = None
        self._chosen = len(self._addresses) == 1
        """Whether the current address has accepted a connection since another one was given up."""
        self._session: aiohttp.ClientSession | None = None

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses to try, "https://host:port"; none for a socket."""
        return () if self._access.socket is not None else tuple(self._addresses)

    def add_addresses(self, urls: Iterable[str]) -> None:
        """Add addresses of other members of the cluster, which show the same certificate."""
        if self._access.socket is None:
            self._addresses += [url for url in dict.fromkeys(urls) if url not in self._addresses]

    async def server(self) -> dict[str, Any]:
        """Return the server's description (GET /1.0); TargetError if it fails or does not trust the client."""
        name = self._access.name
        try:
            answer = await self.get("/1.0")
        except LxdError as problem:
            accepted = (
                "the server with the known certificate"
                if problem.kind == "trust"
                else "an LXD server that answers"
            )
            raise TargetError(name, str(problem), accepted, refused=problem.kind == "trust") from None
        if not isinstance(answer, dict) or "auth" not in answer:
            raise TargetError(name, "it is not an LXD server", "an LXD server that answers")
        facts = cast("dict[str, Any]", answer)
        if facts["auth"] != "trusted":
            accepted = "one that is in `lxc config trust list`"
            raise TargetError(name, "it does not trust the client certificate", accepted, refused=True)
        return facts

    async def get(self, path: str, **query: object) -> Any:
        """Make a GET request; returns the `metadata` of the answer."""
        return (await self._call("GET", path, query)).get("metadata")

    async def send(self, method: str, path: str, body: object = None, **query: object) -> Any:
        """Make a change that is complete when it is answered; returns the `metadata` of the answer."""
        return (await self._call(method, path, query, _json(body))).get("metadata")

    async def operate(self, method: str, path: str, body: object = None, **query: object) -> dict[str, Any]:
        """Make a change that LXD runs in the background, and wait for its end; returns the operation's own `metadata`.

        One call follows the operation and is answered when it ends. If that connection breaks, the next address is
        tried. If LXD cannot answer because its database has no leader, the call is retried for LEADER_WITHIN seconds;
        after that, the kind of the LxdError is "quorum", and the operation may go on. LxdError has the operation's own
        failure. Its kind is "unreachable" if no server knows the operation any more: it may have succeeded.
        """
        return await self._followed(await self._call(method, path, query, _json(body)))

    async def upload(self, path: str, data: bytes | Path, headers: dict[str, str]) -> dict[str, Any]:
        """Send a file as it is, and wait for the operation that imports it, as operate() does."""
        sent: Body = (lambda: data.open("rb")) if isinstance(data, Path) else (lambda: data)
        headers = {"Content-Type": "application/octet-stream"} | headers
        return await self._followed(await self._call("POST", path, {}, sent, headers))

    async def close(self) -> None:
        """Close every connection."""
        if self._choosing is not None:
            self._choosing.cancel()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _followed(self, answer: dict[str, Any]) -> dict[str, Any]:
        operation = _mapping(answer.get("metadata"))
        identity = operation.get("id")
        if answer.get("type") != "async" or not isinstance(identity, str):
            return operation
        try:
            answer = await self._ended(f"/1.0/operations/{quote(identity, safe='')}/wait")
        except LxdError as problem:
            if problem.code != HTTPStatus.NOT_FOUND:
                raise
            text = f"{operation.get('description') or 'operation'}: its result is unknown"
            raise LxdError(text, "unreachable", problem.code) from None
        ended = _mapping(answer.get("metadata"))
        if ended.get("status_code") != HTTPStatus.OK:
            message = ended.get("err") or ended.get("status") or "it did not end"
            raise lxd_error(str(message), _code(ended.get("status_code")))
        return _mapping(ended.get("metadata"))

    async def _ended(self, wait: str) -> dict[str, Any]:
        """Return the answer to a wait for an operation, retried while the database that knows it has no leader."""
        loop = asyncio.get_running_loop()
        until = inf
        for failures in itertools.count(1):
            try:
                return await self._call("GET", wait, {})
            except LxdError as problem:
                pause = backoff(failures, FIRST_PAUSE, LONGEST_PAUSE)
                until = min(until, loop.time() + LEADER_WITHIN)
                if problem.kind != "quorum" or loop.time() + pause > until:
                    raise
            await asyncio.sleep(pause)
        raise AssertionError("unreachable: the loop has no end")

    async def _call(
        self,
        method: str,
        path: str,
        query: dict[str, object],
        body: Body | None = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """Make one request. It is tried at other addresses only if it was certainly not sent, or changes nothing.

        (If a connection breaks that was used before, aiohttp repeats a PUT or DELETE once, as HTTP permits.)
        """
        tail = f"{path}?{urlencode(query)}" if query else path
        problems: dict[str, LxdError] = {}
        for _ in range(len(self._addresses) + (method == "GET")):  # once more, if the only connection broke
            await self._choose()
            at = self._current
            address = self._addresses[at]
            try:
                return await self._ask(method, address + tail, body, headers or _JSON)
            except asyncio.CancelledError:
                # The server may be stopped, and hang the next call, too. But a /wait call is slow by nature.
                if not path.endswith("/wait"):
                    self._give_up(at)
                raise
            except aiohttp.ClientError as problem:
                self._give_up(at)
                problems[address] = LxdError(
                    *broken(str(self._access.socket or urlsplit(address).netloc), problem)
                )
                if method != "GET" and not isinstance(problem, _NOT_SENT):
                    break
        *_, last = problems.values()
        if len(problems) == 1:
            raise last
        kind = "trust" if all(problem.kind == "trust" for problem in problems.values()) else "unreachable"
        raise LxdError("; ".join(map(str, problems.values())), kind)

    async def _ask(self, method: str, url: str, body: Body | None, headers: dict[str, str]) -> dict[str, Any]:
        if self._session is None:
            unix = self._access.socket
            self._session = open_session(True if unix else self._access.tls(), unix)
        data = body() if body is not None else None
        try:
            async with self._session.request(
                method, URL(url, encoded=True), data=data, headers=headers, allow_redirects=False
            ) as response:
                content = await read_body(response, LARGEST_ANSWER)
        except TooLarge as problem:
            raise LxdError(str(problem)) from None
        finally:
            if data is not None and not isinstance(data, bytes):
                data.close()
        try:
            answer = _mapping(orjson.loads(content))
        except orjson.JSONDecodeError:
            answer = {}
        if answer.get("type") in ("sync", "async"):
            return answer
        message = answer.get("error") or f"HTTP {response.status} without an answer of LXD"
        raise lxd_error(str(message), _code(answer.get("error_code")) or response.status)

    def _give_up(self, address: int) -> None:
        # Several calls may fail at the same time: only the first changes the address.
        if address == self._current:
            self._current = (address + 1) % len(self._addresses)
            self._chosen = len(self._addresses) == 1

    async def _choose(self) -> None:
        """Make sure that the current address accepts connections; move on to the next one if it is silent."""
        while not self._chosen:
            if self._choosing is None:
                self._choosing = asyncio.create_task(self._race())
            await asyncio.shield(self._choosing)

    async def _race(self) -> None:
        try:
            count, first = len(self._addresses), self._current
            order = [(first + step) % count for step in range(count)]
            parts = [urlsplit(self._addresses[position]) for position in order]
            hosts = [(part.hostname or "", part.port or DEFAULT_PORT) for part in parts]
            winner = await first_to_accept(hosts, CONNECT_WITHIN)
            if winner is not None and self._current == first:
                self._current = order[winner]
        finally:
            self._choosing, self._chosen = None, True


def _json(body: object) -> Body | None:
    if body is None:
        return None
    content = orjson.dumps(body)
    return lambda: content


def _mapping(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _code(value: object) -> int:
    return value if isinstance(value, int) else 0
