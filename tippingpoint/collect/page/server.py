"""The server of the page of collected runs: `python -m tippingpoint.collect.page.server`.

It speaks only TLS, lets in only readers with the token, and changes nothing. It reads files that everybody on the
machine may read, and sandbox.py makes reports of them. It needs no privilege and should have none.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from aiohttp import web

from tippingpoint.collect.page.access import PageAccess, read_token
from tippingpoint.collect.page.reports import Reports
from tippingpoint.collect.page.site import Site, set_headers
from tippingpoint.collect.page.tls import Pair, find_or_make, fingerprint, server_context
from tippingpoint.collect.page.views import Pages
from tippingpoint.collect.runs import Runs
from tippingpoint.errors import UserError
from tippingpoint.util.exit_codes import BAD_INPUT
from tippingpoint.util.network_errors import in_words
from tippingpoint.util.process import leave_no_core
from tippingpoint.util.systemd_notify import serve_until

MOST_CONNECTIONS = 400
"""How many connections are open before the one that was silent longest is closed. Each takes 0.28 MB of memory,
mostly asyncio's buffer for TLS, as measured by tests/functional/collect/test_page.py."""
FIRST_WITHIN = 20.0
"""Seconds in which a connection has to send its first request; later it may be silent as long between requests."""
_SILENT = logging.getLogger("tippingpoint.collect.page.server")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def main() -> None:
    """Serve until a signal ends it; exits with 2 for bad input."""
    asked = _arguments().parse_args()
    os.umask(0o077)
    leave_no_core()
    try:
        asyncio.run(_serve(asked))
    except UserError as refused:
        print(f"tippingpoint: {refused}", file=sys.stderr)
        sys.exit(BAD_INPUT)


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tippingpoint.collect.page.server", description=__doc__)
    parser.add_argument("--runs", type=Path, required=True, help="the directory of the collected runs")
    parser.add_argument(
        "--token", type=Path, required=True, help="a file, mode 0600, with the token for readers"
    )
    parser.add_argument(
        "--state", type=Path, required=True, help="a directory for the certificate and reports"
    )
    parser.add_argument(
        "--certificate", type=Path, help="a file with the certificate (PEM); by default, one is generated"
    )
    parser.add_argument("--key", type=Path, help="a file, mode 0600, with the certificate's key (PEM)")
    parser.add_argument(
        "--name",
        action="append",
        default=[],
        help="a name or address of this server, for a generated certificate",
    )
    parser.add_argument(
        "--listen",
        default="0.0.0.0:9480",
        metavar="ADDRESS:PORT",
        help="where to listen (default 0.0.0.0:9480)",
    )
    return parser


async def _serve(asked: argparse.Namespace) -> None:
    access = PageAccess(read_token("--token", asked.token))
    pair = _pair(asked)
    context = server_context(pair)
    place = _listen(asked.listen)
    pages = Pages(Runs(asked.runs), access, Reports(asked.state / "reports"))
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, ending.set)
    async with serving(pages, place, context):
        address, port = place.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        print(f"https://{shown}:{port} {fingerprint('--certificate', pair.certificate)}", flush=True)
        await serve_until(ending)


def _pair(asked: argparse.Namespace) -> Pair:
    if (asked.certificate is None) != (asked.key is None):
        given = "--certificate" if asked.key is None else "--key"
        raise UserError(given, "alone", "--certificate and --key, or neither")
    if asked.certificate is not None:
        return Pair(asked.certificate, asked.key)
    try:
        return find_or_make(asked.state, asked.name)
    except OSError as problem:
        accepted = f"a writable directory ({problem.strerror})"
        raise UserError("--state", str(asked.state), accepted) from None
    except ValueError:
        raise UserError("--name", ", ".join(asked.name), "names and addresses of this server") from None


def _listen(text: str) -> socket.socket:
    """Return a socket on ADDRESS:PORT; raises UserError for a malformed one, or if it is in use."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not (port.isascii() and port.isdigit() and int(port) < 65536):
        raise UserError("--listen", text, "ADDRESS:PORT, such as 0.0.0.0:9480")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    place = socket.socket(family, socket.SOCK_STREAM)
    try:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind((host, int(port)))
    except OSError as problem:
        place.close()
        raise UserError("--listen", text, f"a free address and port ({in_words(problem)})") from None
    return place


class _Connection(web.RequestHandler):
    """One connection. aiohttp itself answers malformed requests, which never reach the pages."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return aiohttp's answer, with the headers of all our answers."""
        answer = super().handle_error(request, status, exc, message)
        set_headers(answer)
        return answer


@contextlib.asynccontextmanager
async def serving(pages: Site, place: socket.socket, context: ssl.SSLContext | None) -> AsyncGenerator[None]:
    """Serve the page on a socket, by TLS unless `context` is None, for as long as this context lasts."""
    loop = asyncio.get_running_loop()
    runner = web.AppRunner(
        pages.application(),
        shutdown_timeout=2.0,
    )
    await runner.setup()
    http = runner.server
    assert http is not None

    def hang_up_on_silence(connection: web.RequestHandler) -> None:
        if connection.transport not in pages.asked:
            connection.force_close()

    def connection() -> web.RequestHandler:
        others = http.connections
        if len(others) >= MOST_CONNECTIONS:
            silent = (other for other in others if other.transport not in pages.asked)
            oldest = next(silent, others[0]).transport
            if oldest is not None:
                oldest.abort()  # closing in an orderly way could take as long as the other side likes
        fresh = _Connection(
            http, loop=loop, access_log=_SILENT, logger=_SILENT, keepalive_timeout=FIRST_WITHIN
        )
        loop.call_later(FIRST_WITHIN, hang_up_on_silence, fresh)
        return fresh

    server = await loop.create_server(
        connection,
        sock=place,
        ssl=context,
        backlog=1024,
        ssl_handshake_timeout=FIRST_WITHIN if context is not None else None,
        ssl_shutdown_timeout=1.0 if context is not None else None,
    )
    try:
        yield
    finally:
        server.close()
        await runner.cleanup()


if __name__ == "__main__":
    main()
