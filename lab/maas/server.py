"""The region's HTTP server: finds the call of a request, checks its key, and answers as MAAS does."""

from __future__ import annotations

import asyncio
import re
import secrets
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from lab.maas.calls import Asked, Calls
from lab.maas.description import Call, Description, Resource
from lab.maas.libvirt_phone import PhoneServer
from lab.maas.metrics import Metrics
from lab.maas.oauth import Keys
from lab.maas.parts import API
from lab.maas.power import PowerProblem
from lab.maas.refusal import Refused, missing
from lab.maas.region import Region

_LOGIN = "/MAAS/accounts/authenticate/"
_METRICS = "/MAAS/metrics"
_POWER = "/lab/power/"
_LARGEST = 16 * 1024**2
_FORBIDDEN = Refused(401, "Forbidden")
"""What MAAS answers without a key, by its name for that status."""


class Server:
    """Serves a region on one port, and its controller's metrics on another.

    `url` is the address of the first, without a path, and `metrics_url` that of the second.
    """

    def __init__(
        self,
        description: Description,
        region: Region,
        keys: Keys,
        calls: Calls,
        metrics: Metrics,
        port: int,
        metrics_port: int,
        tls: ssl.SSLContext | None,
        user: str,
        password: str,
        phone: PhoneServer | None = None,
    ) -> None:
        """`phone` is for real machines, and up when this is."""
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"
        self.metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"
        self._description = description
        self._region = region
        self._keys = keys
        self._calls = calls
        self._metrics = metrics
        self._port = port
        self._metrics_port = metrics_port
        self._tls = tls
        self._login = (user, password)
        self._runners: list[web.AppRunner] = []
        self._phone = phone
        self._thawed = asyncio.Event()
        self._thawed.set()

    @property
    def serves(self) -> bool:
        """Whether the port is open."""
        return bool(self._runners)

    @property
    def frozen(self) -> bool:
        """Whether requests wait for `thaw`."""
        return not self._thawed.is_set()

    async def start(self) -> None:
        """Open the ports."""
        api = await self._serve(self._answer, self._port, self._tls)
        self._runners = [api, await self._serve(self._measured, self._metrics_port, None)]
        if self._phone is not None and not self._phone.serves:
            await self._phone.start()
        self._region.faults.down = False
        self._region.wake()

    async def close(self) -> None:
        """Close the ports and all connections, as for a process that was killed."""
        self._region.faults.down = True
        runners, self._runners = self._runners, []
        self._thawed.set()
        for runner in runners:
            await runner.cleanup()

    def freeze(self) -> None:
        """Keep the connections and answer nothing."""
        self._thawed.clear()
        self._region.faults.down = True

    def thaw(self) -> None:
        """Undo `freeze`: what waited is answered."""
        self._region.faults.down = False
        self._region.wake()
        self._thawed.set()

    async def _serve(
        self, answer: Callable[[web.Request], Awaitable[web.Response]], port: int, tls: ssl.SSLContext | None
    ) -> web.AppRunner:
        app = web.Application(client_max_size=_LARGEST)
        app.router.add_route("*", "/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.0)
        await runner.setup()
        await web.TCPSite(
            runner, "127.0.0.1", port, ssl_context=tls, reuse_address=True, backlog=1024
        ).start()
        return runner

    async def _measured(self, request: web.Request) -> web.Response:
        """Answer Prometheus at the controller's own port."""
        await self._thawed.wait()
        if request.path != "/metrics":
            return web.Response(status=404)
        return web.Response(body=self._metrics.answers(), content_type="text/plain", charset="utf-8")

    async def _answer(self, request: web.Request) -> web.Response:
        await self._thawed.wait()
        began = time.perf_counter()
        try:
            answer = await self._answered(request)
        except Refused as refusal:
            answer = web.Response(
                status=refusal.status,
                text=refusal.text,
                content_type=refusal.kind,
                charset="utf-8",
                headers=refusal.headers,
            )
        await self._thawed.wait()
        answer.headers["X-MAAS-API-Hash"] = self._description.hash
        found = self._description.find(request.path)
        path = re.sub(r"\{(\w+)\}", r":\1", found[0].path) if found else request.path
        op, size = request.query.get("op", ""), len(answer.body) if isinstance(answer.body, bytes) else 0
        took = time.perf_counter() - began
        self._metrics.answered(request.method, path, op, answer.status, took, size)
        return answer

    async def _answered(self, request: web.Request) -> web.Response:
        path = request.path
        if path.startswith(_POWER):
            return await self._powered(request.method, path, request.headers.get("System_Id", ""))
        if path == _METRICS:
            if not self._calls.publishes:
                raise Refused(404, "")
            return web.Response(body=self._metrics.database(), content_type="text/plain", charset="utf-8")
        if path == f"{API}/describe/":
            return _json(orjson.dumps(self._description.document(self.url)))
        if path != f"{API}/version/" and self._region.faults.slow_s:
            await asyncio.sleep(self._region.faults.slow_s)
        if path == _LOGIN:
            return await self._logged_in(request)
        found = self._description.find(path)
        if found is None:
            raise Refused(404, "<!DOCTYPE html><html><body><h1>Not Found</h1></body></html>", "text/html")
        resource, places = found
        form = await _form(request)
        query = list(request.query.items())
        op = request.query.get("op") or next((value for name, value in form if name == "op"), None)
        if request.method not in resource.methods:
            raise Refused(405, "")
        user = self._keys.user(request.headers.get("Authorization"))
        call = _call(resource, request.method, op, user)
        given = {name for name, value in (*form, *query) if value} | places.keys()
        if (
            call.method != "PUT"
            and (lacking := sorted(call.required - given))
            and resource.name != "Machines"
        ):
            raise missing(lacking)
        asked = Asked(path, places, query, form, user or "")
        answer = await self._calls.answer(call.resource, call.name, asked)
        return web.Response(status=204) if answer is None else _json(answer)

    async def _powered(self, method: str, path: str, system_id: str) -> web.Response:
        """Answer as the power controller of a machine: see controllers.py."""
        does = {("POST", "on"): "on", ("POST", "off"): "off", ("GET", "query"): None}
        asked = (method, path.removeprefix(_POWER))
        if asked not in does or not system_id:
            raise Refused(404, "no such power controller")
        try:
            state = await self._region.controllers.reply(system_id, does[asked])
        except PowerProblem as problem:
            raise Refused(500, str(problem)) from None
        return web.json_response({"status": "running" if state == "on" else "stopped"})

    async def _logged_in(self, request: web.Request) -> web.Response:
        if request.method != "POST":
            raise Refused(405, "")
        fields = dict(await _form(request))
        pairs = zip(self._login, (fields.get("username", ""), fields.get("password", "")), strict=True)
        if not all(secrets.compare_digest(right.encode(), given.encode()) for right, given in pairs):
            raise Refused(403, "")
        user, consumer = self._login[0], fields.get("consumer")
        keys = [key for key in self._keys.of(user) if consumer in (None, key.name)]
        token = keys[0] if keys else self._keys.make(user, consumer or "")
        return _json(orjson.dumps(token.described()))


def _call(resource: Resource, method: str, op: str | None, user: str | None) -> Call:
    """Return the call of a request. Raises Refused for one that is not described, or needs a key."""
    calls: dict[tuple[str, str | None], Call] = resource.calls
    if user is None or not calls:
        calls = resource.anonymous
    if call := calls.get((method, op)):
        return call
    if user is None and (method, op) in resource.calls:
        raise _FORBIDDEN
    raise Refused(400, f"Unrecognised signature: method={method} op={op}")


async def _form(request: web.Request) -> list[tuple[str, str]]:
    """Return the fields of a body: a form, or parts, which may be in base64."""
    if request.method not in ("POST", "PUT"):
        return []
    try:
        fields: Any = await request.post()
    except (ValueError, AssertionError) as problem:
        raise Refused(400, f"Malformed body: {problem}") from None
    found: list[tuple[str, str]] = []
    for name, value in fields.items():
        content = value.file.read() if isinstance(value, web.FileField) else value
        if isinstance(content, bytes | bytearray):
            content = bytes(content).decode(errors="replace")
        found.append((name, content))
    return found


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json", charset="utf-8")
