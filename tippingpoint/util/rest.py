"""HTTP for the REST APIs of targets: a session with persistent connections, bounded answers, and network failures."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any, Literal

import aiohttp

from tippingpoint.util.network_errors import in_words

CONNECT_WITHIN = 10.0
"""Seconds to connect, including the TLS handshake."""
SILENT_FOR = 20
"""Seconds without an acknowledgement from the other side after which a connection counts as lost."""

_OWN_HEADERS = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")


class TooLarge(Exception):
    """Raised when an answer is larger than the limit; the message says how large it may be."""


def open_session(tls: ssl.SSLContext | bool, unix: Path | None = None) -> aiohttp.ClientSession:
    """Return a session without limits on connections or call times, that sends only the caller's headers.

    `tls` verifies https (True: by the system's authorities). `unix` is a socket to connect to instead of a host.
    """
    if unix is not None:
        connector: aiohttp.BaseConnector = aiohttp.UnixConnector(str(unix), limit=0)
    else:
        connector = aiohttp.TCPConnector(limit=0, ssl=tls, socket_factory=_socket)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_WITHIN),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=_OWN_HEADERS,
    )


async def read_body(response: aiohttp.ClientResponse, largest: int) -> bytes:
    """Return the body of an answer; one of more than `largest` bytes closes the connection and raises TooLarge."""
    body = bytearray()  # a list of blocks takes 40 times as much where each has one byte
    async for block in response.content.iter_any():
        body += block
        if len(body) > largest:
            response.close()
            raise TooLarge(f"{response.url.path}: an answer of more than {largest >> 20} MiB")
    return bytes(body)


def broken(where: str, problem: aiohttp.ClientError) -> tuple[str, Literal["unreachable", "trust"]]:
    """Return how the connection to `where` failed, in words, and its kind: "trust" if a certificate was rejected."""
    if isinstance(problem, aiohttp.ConnectionTimeoutError):
        return f"{where}: no connection within {CONNECT_WITHIN:g} s", "unreachable"
    text = in_words(cause_of(problem))
    return f"{where}: {text}", "trust" if "certificate" in text else "unreachable"


def cause_of(problem: BaseException) -> BaseException:
    """Return the error of the socket or of TLS that caused one of aiohttp's."""
    while problem.__cause__ is not None:
        problem = problem.__cause__
    if isinstance(problem, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError):
        return ConnectionResetError()
    return problem


def _socket(found: tuple[int, int, int, str, Any]) -> socket.socket:
    """Return a socket that notices within SILENT_FOR seconds that the other host is gone, even while idle."""
    made = socket.socket(found[0], found[1], found[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_FOR // 4)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENT_FOR // 4)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_FOR * 1000)
    return made
