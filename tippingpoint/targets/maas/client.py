"""Calls of MAAS's API: one session, connections that stay open, and a signature for each call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, TypeVar, cast
from urllib.parse import urlencode, urlsplit

import aiohttp
import orjson
from yarl import URL

from tippingpoint.errors import TargetError
from tippingpoint.targets.maas.access import MaasAccess
from tippingpoint.targets.maas.elements import Elements
from tippingpoint.targets.maas.errors import MaasError, MaasGone, alike, is_page, maas_error
from tippingpoint.targets.maas.versions import OLDEST, read_version, shown_version
from tippingpoint.util.rest import TooLarge, broken, open_session, read_body

LARGEST_ANSWER = 64 << 20
"""Bytes of an answer that is read as a whole."""
LARGEST_LIST = 1 << 30
"""Bytes. A list has every field of a machine, and MAAS can leave none out: 2000 machines of 77 fields are 40 MB."""
_BLOCK = 1 << 16

T = TypeVar("T")
Fields = Iterable[tuple[str, str]]
_REGION = "a MAAS region that answers"
_KEY = "the API key of an administrator, as `maas apikey --username=USER` shows it"
_SUPPORTED = f"MAAS {OLDEST[0]}.{OLDEST[1]} or newer, with version 2.0 of the API"


class MaasClient:
    """A client of one region, used from one event loop.

    Failures raise MaasError, MaasGone or MaasExists. Calls have no time limit: the caller cancels them.
    """

    def __init__(self, access: MaasAccess) -> None:
        self._access = access
        self._where = urlsplit(access.url).netloc
        self._session: aiohttp.ClientSession | None = None

    async def log_in(self) -> str:
        """Return MAAS's version, such as "3.3.11", or "3.3.11-simulated" for a lab's region.

        Raises TargetError if no MAAS of a supported version answers, or it refuses the key.
        """
        version = await self._version()
        known = read_version(version)
        if known is None or known < OLDEST:
            raise TargetError(self._where, f"MAAS {version or 'without a version'}", _SUPPORTED)
        try:
            user = await self.get("users/", op="whoami")
        except MaasError as problem:
            refused = problem.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
            raise TargetError(
                self._where, str(problem), _KEY if refused else _REGION, refused=refused
            ) from None
        facts = mapping(user)
        if not facts.get("is_superuser"):
            name = str(facts.get("username") or "the key's user")
            raise TargetError(self._where, f"{name} is no administrator", _KEY, refused=True)
        return version

    async def get(self, path: str, query: Fields = (), *, op: str = "") -> Any:
        """Make a GET request below the API's root, such as "machines/"; returns the answer's JSON."""
        return await self._call("GET", path, query, op, None)

    async def each(
        self, path: str, read: Callable[[Any], T | None], query: Fields = (), *, op: str = ""
    ) -> list[T]:
        """Make a GET request for a list of objects; returns what `read` makes of each, without None.

        Objects are parsed one at a time, as they come: a list of tens of MB takes memory only for what `read` keeps.
        """
        what, found, elements, first = f"GET {path} {op}".rstrip(), list[T](), Elements(), b""
        async with self._asked("GET", self._url(path, query, op), None, what) as response:
            try:
                async for block in _blocks(what, response):
                    first = first or block
                    for element in elements.feed(block):
                        kept = read(orjson.loads(element))
                        if kept is not None:
                            found.append(kept)
                elements.end()
            except ValueError:  # orjson's too
                response.close()
                raise _no_json(what, first) from None
        return found

    async def skim(self, path: str, query: Fields = (), *, op: str = "") -> None:
        """Make a GET request and wait for the end of its answer, which is not kept but must begin as JSON."""
        what, first = f"GET {path} {op}".rstrip(), b""
        async with self._asked("GET", self._url(path, query, op), None, what) as response:
            async for block in _blocks(what, response):
                first = first or block
        if first.lstrip()[:1] not in (b"[", b"{"):
            raise _no_json(what, first)

    async def send(self, method: str, path: str, fields: Fields = (), *, op: str = "") -> Any:
        """Make a change; returns the answer's JSON, or None if it is empty. A field may occur several times."""
        return await self._call(method, path, (), op, fields)

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _version(self) -> str:
        """Ask for the version, without the key: the server may not be a MAAS."""
        try:
            found = mapping(await self._told(f"{self._access.api}version/"))
        except MaasGone:
            raise await self._not_here() from None
        except MaasError as problem:
            accepted = "the authority that signed the region's certificate, as `ca`"
            wrong = problem.kind == "trust" and problem.code == 0
            raise TargetError(
                self._where, str(problem), accepted if wrong else _REGION, refused=wrong
            ) from None
        return shown_version(found)

    async def _not_here(self) -> TargetError:
        """Return why there is no API 2.0 here: the MAAS is too old, or the address is wrong."""
        try:
            old = mapping(await self._told(f"{self._access.url}/api/1.0/version/"))
        except MaasError:
            return TargetError(self._access.url, "no MAAS here", "http(s)://HOST:PORT/MAAS")
        known = f"MAAS {old['version']}" if old.get("version") else "a MAAS"
        return TargetError(self._where, f"{known} with version 1.0 of the API", _SUPPORTED)

    async def _told(self, url: str) -> Any:
        return await self._exchange("GET", url, None, "GET version/", signed=False)

    async def _call(self, method: str, path: str, query: Fields, op: str, fields: Fields | None) -> Any:
        body = urlencode([*fields]).encode() if fields is not None else None
        return await self._exchange(
            method, self._url(path, query, op), body, f"{method} {path} {op}".rstrip()
        )

    async def _exchange(
        self, method: str, url: str, body: bytes | None, what: str, *, signed: bool = True
    ) -> Any:
        """Make one request; returns the answer's JSON, or raises MaasError for a status that is not a success."""
        async with self._asked(method, url, body, what, signed=signed) as response:
            content = await read_body(response, LARGEST_ANSWER)
        if not content.strip():
            if method == "GET":
                raise MaasError(f"{alike(what)}: an empty answer")
            return None
        try:
            return orjson.loads(content)
        except orjson.JSONDecodeError:
            raise _no_json(what, content) from None

    @asynccontextmanager
    async def _asked(
        self, method: str, url: str, body: bytes | None, what: str, *, signed: bool = True
    ) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Make one request, and yield an answer that is a success; a failure while it is read is a MaasError too."""
        if self._session is None:
            self._session = open_session(self._access.tls)
        headers = {"Accept": "application/json"}
        if signed:
            headers["Authorization"] = self._access.authorization()
        if body:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            async with self._session.request(
                method, URL(url, encoded=True), data=body, headers=headers, allow_redirects=False
            ) as response:
                if not 200 <= response.status < 300:
                    raise maas_error(what, await read_body(response, LARGEST_ANSWER), response.status)
                yield response
        except TooLarge as problem:
            raise MaasError(str(problem)) from None
        except aiohttp.ClientError as problem:
            raise MaasError(*broken(self._where, problem)) from None

    def _url(self, path: str, query: Fields, op: str) -> str:
        asked = urlencode([*([("op", op)] if op else []), *query])
        return f"{self._access.api}{path}" + (f"?{asked}" if asked else "")


async def _blocks(what: str, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
    size = 0
    async for block in response.content.iter_chunked(_BLOCK):
        size += len(block)
        if size > LARGEST_LIST:
            response.close()
            raise TooLarge(f"{alike(what)}: an answer of more than {LARGEST_LIST >> 20} MiB")
        yield block
    if not size:
        raise MaasError(f"{alike(what)}: an empty answer")


def _no_json(what: str, content: bytes) -> MaasError:
    shown = "an HTML page" if is_page(content) else "an answer"
    return MaasError(f"{alike(what)}: {shown} instead of JSON")


def mapping(value: object) -> dict[str, Any]:
    """Return a JSON object of an answer; empty if it is anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
