"""A proxy in front of one LXD member, for faults that a real LXD does not produce on demand. Tests set its rules.

    with LxdProxy(lab) as proxy:
        proxy.add("POST", "/1.0/instances", FailOperation("database is locked"), times=3)
        ...  # a client with proxy.credentials, or with proxy.socket
        assert proxy.count("GET", r"/1\\.0/instances\\?.*recursion=1") == 1

It forwards everything to the member's unix socket, with waits for operations; WebSockets are refused. It has the
member's own certificate, and accepts only the lab's own client. Rules may be changed from any thread.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import threading
import uuid
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import unquote

import yaml
from aiohttp import ClientError, ClientSession, ClientTimeout, UnixConnector, web
from yarl import URL

from lab.lxd.cluster import LxdLab
from lab.patience import PATIENCE_S

_LARGEST = 64 * 2**20
_PASSED_ON = ("Content-Type", "ETag", "Location")

Forward = Callable[[], Awaitable[web.StreamResponse]]


class Effect(Protocol):
    """The effect of a rule on a request; `forward` asks the member."""

    async def __call__(
        self, proxy: LxdProxy, request: web.Request, forward: Forward
    ) -> web.StreamResponse: ...


@dataclass(frozen=True)
class Fail:
    """Answers with an LXD error without asking the member."""

    message: str
    code: int = 500

    async def __call__(self, proxy: LxdProxy, request: web.Request, forward: Forward) -> web.StreamResponse:
        body = {
            "type": "error",
            "status": "",
            "status_code": 0,
            "error": self.message,
            "error_code": self.code,
        }
        return web.json_response(body, status=self.code)


@dataclass(frozen=True)
class FailOperation:
    """Answers with an operation that never reaches the member, and fails with this message when waited for."""

    message: str
    code: int = 400

    async def __call__(self, proxy: LxdProxy, request: web.Request, forward: Forward) -> web.StreamResponse:
        made = str(uuid.uuid4())
        operation: dict[str, Any] = {
            "id": made,
            "class": "task",
            "description": "Injected",
            "status": "Running",
            "status_code": 103,
            "err": "",
            "resources": {},
            "metadata": None,
        }
        failed = operation | {"status": "Failure", "status_code": self.code, "err": self.message}
        proxy.add(
            "GET",
            f"^/1.0/operations/{made}",
            _Answer({"type": "sync", "status_code": 200, "metadata": failed}),
        )
        url = f"/1.0/operations/{made}"
        body = {"type": "async", "status": "Operation created", "status_code": 100, "operation": url}
        return web.json_response(body | {"metadata": operation}, status=202, headers={"Location": url})


@dataclass(frozen=True)
class _Answer:
    body: dict[str, Any]

    async def __call__(self, proxy: LxdProxy, request: web.Request, forward: Forward) -> web.StreamResponse:
        return web.json_response(self.body)


@dataclass(frozen=True)
class Garble:
    """Answers with another body without asking the member: garbage, or too much."""

    body: bytes
    code: int = 200

    async def __call__(self, proxy: LxdProxy, request: web.Request, forward: Forward) -> web.StreamResponse:
        return web.Response(body=self.body, status=self.code, content_type="application/json")


@dataclass(frozen=True)
class Delay:
    """Forwards a request after some seconds."""

    seconds: float

    async def __call__(self, proxy: LxdProxy, request: web.Request, forward: Forward) -> web.StreamResponse:
        await asyncio.sleep(self.seconds)
        return await forward()


@dataclass(frozen=True)
class Hold:
    """Forwards a request once `released` is set; `met` is set when the first such request has come."""

    met: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, proxy: LxdProxy, request: web.Request, forward: Forward) -> web.StreamResponse:
        self.met.set()
        while not self.released.is_set():  # noqa: ASYNC110  another thread sets it
            await asyncio.sleep(0.01)
        return await forward()


@dataclass(frozen=True)
class Cut:
    """Cuts the connection before the member is asked, or once it has answered (`after`)."""

    after: bool = False

    async def __call__(self, proxy: LxdProxy, request: web.Request, forward: Forward) -> web.StreamResponse:
        if self.after:
            await forward()
        return _cut(request)


@dataclass
class Rule:
    """An effect with its requests: `method`, and a pattern anywhere in `path?query`; see LxdProxy.add."""

    method: str
    pattern: re.Pattern[str]
    effect: Effect
    skip: int
    times: int | None
    applied: int = 0

    def takes(self, method: str, url: str) -> bool:
        """Tell whether the rule is for this request, and count the request."""
        if method != self.method or not self.pattern.search(url) or self.applied == self.times:
            return False
        if self.skip:
            self.skip -= 1
            return False
        self.applied += 1
        return True


class LxdProxy:
    """Listens on loopback and on a unix socket, in a separate thread, while the context lasts.

    `credentials` is a copy of the lab's file, with the proxy's address instead of the members'.
    """

    def __init__(self, lab: LxdLab, member: str = "m1") -> None:
        name = f"proxy-{uuid.uuid4().hex[:8]}"
        self.credentials = lab.directory / f"{name}.yaml"
        self.socket = lab.directory / f"{name}.sock"
        self.address = ""
        self._lab = lab
        self._member = member
        self._rules: list[Rule] = []
        self._asked: list[tuple[str, str]] = []
        self._changing = threading.Lock()

    def __enter__(self) -> LxdProxy:
        access: dict[str, Any] = yaml.safe_load(self._lab.credentials.read_text())
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        serving: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._loop.run_until_complete, args=(self._serve(serving),), daemon=True
        )
        self._thread.start()
        serving.result()
        self.credentials.touch(0o600)
        self.credentials.write_text(yaml.safe_dump(access | {"addresses": [self.address]}))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(PATIENCE_S)
        self._loop.close()

    def add(
        self, method: str, pattern: str, effect: Effect, *, skip: int = 0, times: int | None = None
    ) -> Rule:
        """Add an effect for requests whose `path?query` matches a pattern anywhere.

        It skips the first `skip` of them, and applies `times` at most. Of several rules the last one added decides.
        """
        rule = Rule(method, re.compile(pattern), effect, skip, times)
        with self._changing:
            self._rules.insert(0, rule)
        return rule

    def clear(self) -> None:
        """Drop all rules and counts. Requests that are held or delayed stay so."""
        with self._changing:
            self._rules.clear()
            self._asked.clear()

    def count(self, method: str, pattern: str) -> int:
        """Count all requests whose `path?query` matches a pattern anywhere, with any outcome."""
        with self._changing:
            return sum(method == asked and re.search(pattern, url) is not None for asked, url in self._asked)

    def counts(self) -> dict[tuple[str, str], int]:
        """Count requests by method and path, with `*` for names and ids: /1.0/instances/*/state."""
        found: dict[tuple[str, str], int] = {}
        with self._changing:
            for method, url in self._asked:
                key = (method, re.sub(r"^(/1\.0/[a-z-]+)/[^/?]+", r"\1/*", url.partition("?")[0]))
                found[key] = found.get(key, 0) + 1
        return found

    async def _serve(self, serving: Future[None]) -> None:
        connector = UnixConnector(str(self._lab.unix_socket(self._member)), limit=0)
        async with ClientSession(connector=connector, timeout=ClientTimeout(None)) as self._session:
            application = web.Application(client_max_size=_LARGEST)
            application.router.add_route("*", "/{path:.*}", self._handle)
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            try:
                tls = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._context())
                await tls.start()
                await web.UnixSite(runner, str(self.socket)).start()
                self.socket.chmod(0o600)
                self.address = f"https://127.0.0.1:{runner.addresses[0][1]}"
                serving.set_result(None)
                await self._ended.wait()
            except Exception as problem:
                serving.set_exception(problem)
            finally:
                await runner.cleanup()

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self._lab.server_certificate(self._member))
        context.load_verify_locations(self._lab.remote_directory() / "client.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        url = unquote(request.raw_path)

        async def forward() -> web.StreamResponse:
            return await self._forward(request)

        with self._changing:
            self._asked.append((request.method, url))
            effect = next((rule.effect for rule in self._rules if rule.takes(request.method, url)), None)
        return await (forward() if effect is None else effect(self, request, forward))

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        if "Upgrade" in request.headers:
            return web.Response(status=501)
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower().startswith("x-lxd") or name in ("Content-Type", "If-Match", "User-Agent")
        }
        at = URL(f"http://lxd{request.raw_path}", encoded=True)
        try:
            body = await request.read()
            async with self._session.request(request.method, at, headers=headers, data=body) as answer:
                kept = {name: answer.headers[name] for name in _PASSED_ON if name in answer.headers}
                return web.Response(body=await answer.read(), status=answer.status, headers=kept)
        except ClientError:  # the member is dead: so is what leads to it
            return _cut(request)


def _cut(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
