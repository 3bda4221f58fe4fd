"""A server in the place of a Prometheus, for answers that a real one does not give on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def success(data: object) -> web.Response:
    return web.json_response({"status": "success", "data": data})


def matrix(*series: tuple[dict[str, str], list[list[Any]]]) -> dict[str, Any]:
    return {
        "resultType": "matrix",
        "result": [{"metric": labels, "values": values} for labels, values in series],
    }


@asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[str]:
    """A server that answers everything by one function; its URL."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
