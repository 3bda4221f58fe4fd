"""Calls of OpenStack's APIs: one session, connections that stay open, tokens that are renewed in time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

import aiohttp
import orjson
from yarl import URL

from tippingpoint.errors import Limited, TargetError, UserError
from tippingpoint.targets.openstack.access import CloudAccess
from tippingpoint.targets.openstack.errors import (
    FORBIDDEN,
    NOT_FOUND,
    UNAUTHORIZED,
    OpenstackError,
    OpenstackLimited,
    OpenstackMissing,
    openstack_error,
)
from tippingpoint.targets.openstack.tokens import Token, read_token, request_of, rescope_of, tokens_of
from tippingpoint.targets.openstack.versions import Version, show_version
from tippingpoint.util import timing
from tippingpoint.util.in_clear import is_in_clear
from tippingpoint.util.rest import TooLarge, broken, open_session, read_body
from tippingpoint.util.retrying import retry
from tippingpoint.workloads.spawn.target import PASSING, Trouble

LARGEST_ANSWER = 64 << 20
"""Bytes; a page of a list has at most 1000 servers of 2 KB each."""
LONGEST_WAIT = 60.0
"""The most seconds of a service's Retry-After that are respected."""
RENEW_PAUSE = 5.0
"""Seconds before a failed renewal is retried while the present token is valid."""
RENEW_WITHIN = 60.0
"""Seconds to wait for a token; all callers wait for the same renewal."""
PATIENCE = 60.0
"""Seconds to wait for temporary failures to pass, outside of measured calls."""

_PREFIXES = {"network": "/v2.0", "image": "/v2"}
_JSON = {"Content-Type": "application/json"}
_VERSION_HEADER = "OpenStack-API-Version"
T = TypeVar("T")


class OpenstackClient:
    """A client of one cloud, used from one event loop. Failures raise OpenstackError, or Limited.

    Calls use a token for the cloud's own project, or for the project with the id `project`. Calls have no time limit:
    the caller cancels them.
    """

    def __init__(self, access: CloudAccess) -> None:
        self._access = access
        self._session: aiohttp.ClientSession | None = None
        self._tokens = tokens_of(access)
        self._renewing: dict[str, asyncio.Task[Token]] = {}
        self._renew_after: dict[str, float] = {}

    async def log_in(self) -> Token:
        """Return the token for the cloud's own project.

        TargetError if Keystone does not answer or refuses the login, or its catalogue has no compute service for it.
        """
        name = self._access.name
        try:
            token = await insist(lambda: self._token(""), passing=())
        except OpenstackError as problem:
            # Keystone answers 404 for an unknown credential.
            shut_out = problem.code in (UNAUTHORIZED, FORBIDDEN, NOT_FOUND)
            accepted = "a login that Keystone accepts" if shut_out else "a Keystone that answers"
            refused = shut_out or problem.kind == "trust"
            raise TargetError(name, str(problem), accepted, refused=refused) from None
        if (compute := token.endpoints.get("compute")) is not None and self._would_expose(compute):
            accepted = "https endpoints, as Keystone's is, or another target.interface"
            raise TargetError(name, _exposed("compute", compute), accepted, refused=True)
        region = self._access.region
        if token.several or (region is not None and token.regions and region not in token.regions):
            raise UserError(
                "target.region", region or "missing", f"one of {', '.join(sorted(token.regions))}"
            )
        return token

    async def get(self, service: str, path: str, *, project: str = "", version: Version | None = None) -> Any:
        """Make a GET request; returns the answer's JSON."""
        return (await self.call("GET", service, path, project=project, version=version))[0]

    async def send(
        self,
        method: str,
        service: str,
        path: str,
        body: object = None,
        *,
        project: str = "",
        version: Version | None = None,
    ) -> Any:
        """Make a change; returns the answer's JSON, or None if it is empty."""
        return (await self.call(method, service, path, body, project=project, version=version))[0]

    async def call(
        self,
        method: str,
        service: str,
        path: str,
        body: object = None,
        *,
        project: str = "",
        version: Version | None = None,
    ) -> tuple[Any, datetime | None]:
        """Make one call; returns the answer's JSON, and its date by the service's clock.

        A refused token is renewed once.
        """
        content = orjson.dumps(body) if body is not None else None
        headers = dict(_JSON) if body is not None else {}
        if version is not None:
            headers[_VERSION_HEADER] = f"{service} {show_version(version)}"
        token = await self._token(project)
        try:
            return await self._ask(method, service, path, content, headers, token)
        except OpenstackError as problem:
            if problem.code != UNAUTHORIZED:
                raise
        token = await self._anew(project, token)
        return await self._ask(method, service, path, content, headers, token)

    async def upload(self, service: str, path: str, file: Path) -> None:
        """Send a file's content as it is."""
        token = await self._token("")
        with file.open("rb") as data:
            await self._ask("PUT", service, path, data, {"Content-Type": "application/octet-stream"}, token)

    async def root(self, service: str) -> Any:
        """Return a service's version document, of the version in the catalogue or of all versions."""
        return await self.get(service, "/" if service == "compute" else "")

    async def close(self) -> None:
        """Close every connection."""
        for renewal in list(self._renewing.values()):
            renewal.cancel()
        if self._session is not None:
            await self._session.close()
            self._session = None

    # -- tokens ----------------------------------------------------------------------------------

    async def _token(self, project: str) -> Token:
        """Return the token for a project: the present one while it is valid. It is renewed in the background."""
        now = timing.monotonic()
        token = self._tokens.get(project)
        if token is None or token.is_over(now):
            return await self._renewed(project)
        if token.is_due(now) and now >= self._renew_after.get(project, 0.0) and project not in self._renewing:
            self._renew_after[project] = now + RENEW_PAUSE
            self._renew(project).add_done_callback(_heeded)
        return token

    async def _anew(self, project: str, refused: Token) -> Token:
        """Return another token after one was refused; several calls may find that out at the same time."""
        self._drop(project, refused)
        self._drop("", refused)  # if the project is the cloud's own, its token is under ""
        return await self._token(project)

    def _drop(self, project: str, refused: Token) -> None:
        if self._tokens.get(project) is refused:
            del self._tokens[project]

    async def _renewed(self, project: str) -> Token:
        renewal = self._renewing.get(project) or self._renew(project)
        return await asyncio.shield(renewal)

    def _renew(self, project: str) -> asyncio.Task[Token]:
        renewal = asyncio.get_running_loop().create_task(self._ask_for_token(project))
        self._renewing[project] = renewal
        renewal.add_done_callback(lambda _: self._renewing.pop(project, None))
        return renewal

    async def _ask_for_token(self, project: str) -> Token:
        try:
            async with asyncio.timeout(RENEW_WITHIN):
                token = await (self._token_for(project) if project else self._token_of_own())
        except TimeoutError:
            what = f"{self._access.auth_url}/auth/tokens"
            raise OpenstackError(f"{what}: no answer within {RENEW_WITHIN:.0f} s", "timeout") from None
        self._tokens[project] = token
        return token

    async def _token_of_own(self) -> Token:
        return await self._asked_for(request_of(self._access.identity, self._access.scope))

    async def _token_for(self, project: str) -> Token:
        """Get a token for a project, by the cloud's own token; by a new one if that is refused, as revoked ones are."""
        own = await self._token("")
        if own.project == project:
            return own
        try:
            return await self._asked_for(rescope_of(own, project))
        except OpenstackError as problem:
            if problem.code not in (UNAUTHORIZED, NOT_FOUND):
                raise
        return await self._asked_for(rescope_of(await self._anew("", own), project))

    async def _asked_for(self, request: Mapping[str, Any]) -> Token:
        now = timing.monotonic()
        where = f"{self._access.auth_url}/auth/tokens"
        what = "POST identity /auth/tokens"
        answer, headers = await self._exchange("POST", where, orjson.dumps(request), dict(_JSON), what)
        try:
            return read_token(self._access, headers.get("X-Subject-Token", ""), answer, now)
        except ValueError as problem:
            raise OpenstackError(f"{where}: {problem}", "other") from None

    def _would_expose(self, url: str) -> bool:
        """Whether a token would go to this address without TLS, which Keystone gave over TLS or on this machine."""
        return is_in_clear(url) and not is_in_clear(self._access.auth_url)

    # -- HTTP ------------------------------------------------------------------------------------

    async def _ask(
        self, method: str, service: str, path: str, content: Any, headers: dict[str, str], token: Token
    ) -> tuple[Any, datetime | None]:
        base = self._access.auth_url if service == "identity" else token.endpoints.get(service)
        if base is None:
            where = f"{self._access.interface} endpoint of {service} in {self._access.region or 'any region'}"
            raise OpenstackMissing(f"the catalogue has no {where}", "setting")
        if self._would_expose(base):
            raise OpenstackError(_exposed(service, base), "setting")
        prefix = _PREFIXES.get(service, "")
        if prefix and not base.endswith(prefix):
            base += prefix
        what = f"{method} {service} {path.partition('?')[0]}"
        answer, answered = await self._exchange(
            method, base + path, content, headers | {"X-Auth-Token": token.text}, what
        )
        return answer, _date(answered.get("Date"))

    async def _exchange(
        self, method: str, url: str, content: Any, headers: dict[str, str], what: str
    ) -> tuple[Any, Mapping[str, str]]:
        """Make one request; returns the answer, or raises OpenstackError for a status that is not a success."""
        if self._session is None:
            self._session = open_session(self._access.tls())
        try:
            async with self._session.request(
                method, URL(url, encoded=True), data=content, headers=headers, allow_redirects=False
            ) as response:
                answer = await _content(response)
                status, answered = response.status, response.headers
        except (aiohttp.ClientError, ValueError) as problem:
            # Both are ValueErrors: an invalid address, and a wrong certificate.
            if isinstance(problem, aiohttp.ClientError) and not isinstance(problem, aiohttp.InvalidURL):
                raise OpenstackError(*broken(urlsplit(url).netloc, problem)) from None
            raise OpenstackError(
                f"{what}: the catalogue has an invalid address: {problem}", "setting"
            ) from None
        if status == 300 or 200 <= status < 300:  # 300 has a list of versions
            return answer, answered
        wait = _retry_after(answered.get("Retry-After"))
        if status == 429 or (status == 413 and wait is not None):
            await asyncio.sleep(1.0 if wait is None else wait)
            raise OpenstackLimited(f"{what}: refused by a rate limit (HTTP {status})")
        if status == 503 and wait is not None:
            await asyncio.sleep(wait)
        raise openstack_error(what, answer, status)


async def insist(
    call: Callable[[], Awaitable[T]], within: float = PATIENCE, passing: Collection[Trouble] = PASSING
) -> T:
    """Return a call's result, for calls that are not measured; temporary failures, such as rate limits, are retried."""

    def passes(problem: Exception) -> bool:
        return isinstance(problem, Limited) or (
            isinstance(problem, OpenstackError) and problem.kind in passing
        )

    try:
        return await retry(call, within, passes)
    except TimeoutError:
        raise OpenstackError(f"no answer within {within:.0f} s", "timeout") from None
    except Limited as limited:
        raise OpenstackError(str(limited), "busy") from None


def _exposed(service: str, url: str) -> str:
    where = urlsplit(url)
    return f"the endpoint of {service} is {where.scheme}://{where.netloc}, where the token could be read on the way"


def _heeded(renewal: asyncio.Task[Token]) -> None:
    """Ignore the failure of a background renewal: the present token is used until it expires."""
    if not renewal.cancelled():
        renewal.exception()


async def _content(response: aiohttp.ClientResponse) -> Any:
    """Return an answer's JSON; None if it has none."""
    try:
        body = await read_body(response, LARGEST_ANSWER)
    except TooLarge as problem:
        raise OpenstackError(str(problem)) from None
    with contextlib.suppress(orjson.JSONDecodeError):
        return orjson.loads(body) if body else None
    if response.status < 300:
        raise OpenstackError(f"{response.url.path}: an answer that is not JSON")
    return None


def _retry_after(value: str | None) -> float | None:
    """Return the seconds of a Retry-After, which is a number or a date; None if it is neither."""
    if value is None:
        return None
    if value.strip().isdigit():
        return min(LONGEST_WAIT, float(value))
    moment = _date(value)
    if moment is None:
        return None
    return min(LONGEST_WAIT, max(0.0, (moment - datetime.fromtimestamp(timing.wall(), UTC)).total_seconds()))


def _date(value: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(value) if value else None
    except (TypeError, ValueError):
        return None


def mapping(value: object) -> dict[str, Any]:
    """Return a JSON object of an answer; empty if it is anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
