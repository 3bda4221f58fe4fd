"""A few calls of a region in this process, whose answers a test chooses: pages, nothing, refusals."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import yaml
from aiohttp import web

from tippingpoint.targets.maas.access import MaasAccess, access
from tippingpoint.targets.maas.plan import MaasTarget

KEY = "consumer:token:hush"
Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class MaasStub:
    """What a client sees: `answers` by method and path below `/MAAS/`, such as "GET api/2.0/version/"."""

    def __init__(self) -> None:
        self.url = ""
        self.calls: list[web.Request] = []
        self.forms: list[list[tuple[str, str]]] = []
        """The fields of each call that had any."""
        self.answers: dict[str, Answer] = {
            "GET api/2.0/version/": answering({"version": "3.3.11", "subversion": "", "capabilities": []}),
            "GET api/2.0/users/": answering({"username": "admin", "is_superuser": True}),
        }

    @property
    def signatures(self) -> list[dict[str, str]]:
        """The fields of each call's header `Authorization`; empty for a call without it."""
        headers = [call.headers.get("Authorization", "") for call in self.calls]
        return [
            {k: unquote(v) for k, v in re.findall(r'oauth_(\w+)="([^"]*)"', header)} for header in headers
        ]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.calls.append(request)
        if request.can_read_body:
            self.forms.append([(name, str(value)) for name, value in (await request.post()).items()])
        path = request.path.removeprefix("/MAAS/")
        answer = self.answers.get(f"{request.method} {path}")
        signed = self.signatures[-1]
        if "version" not in path and signed.get("signature") != "&hush":
            return web.Response(status=401, text="Authorization Error: Invalid API key.")
        return await answer(request) if answer else web.Response(status=404, text="Not Found")


def answering(body: Any, status: int = 200) -> Answer:
    """Answer with JSON, or with a text as it is."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if isinstance(body, str):
            return web.Response(text=body, status=status)
        return web.json_response(body, status=status)

    return answer


@asynccontextmanager
async def stub_region(tls: ssl.SSLContext | None = None) -> AsyncGenerator[MaasStub]:
    stub = MaasStub()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", stub.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        stub.url = f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}/MAAS"
        yield stub
    finally:
        await runner.cleanup()


def way_to(url: str, directory: Path, **changed: Any) -> MaasAccess:
    """The way to a region, as a file has it."""
    return access(MaasTarget(kind="maas", credentials=way_file(url, directory, **changed)))


def way_file(url: str, directory: Path, **changed: Any) -> Path:
    """A file of credentials."""
    path = directory / "maas.yaml"
    path.touch(0o600)
    path.write_text(yaml.safe_dump({"url": url, "api_key": KEY, **changed}))
    return path
