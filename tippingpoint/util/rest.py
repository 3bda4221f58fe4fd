"""HTTP as the REST APIs of targets are asked: one session, connections that stay open, and what fails on the way."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from typing import Any, Literal

import aiohttp

from tippingpoint.util.network_errors import in_words

CONNECT_WITHIN = 10.0
"""Seconds for a connection, its TLS handshake included."""
SILENT_FOR = 20
"""Seconds after which a connection is lost whose other side does not even acknowledge."""

_OWN_HEADERS = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")


class TooLarge(Exception):
    """An answer has more bytes than are read of one; the message says how many."""


def open_session(tls: ssl.SSLContext | bool, unix: Path | None = None) -> aiohttp.ClientSession:
    """A session as a load has it: no limit of connections, no time limit of calls, no headers but the caller's.

    `tls` is what https is verified by, True for the system's authorities; `unix` a socket to connect to instead.
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
    """What was answered, of at most `largest` bytes; TooLarge beyond, whose connection is closed."""
    blocks: list[bytes] = []
    size = 0
    async for block in response.content.iter_any():
        blocks.append(block)
        size += len(block)
        if size > largest:
            response.close()
            raise TooLarge(f"{response.url.path}: an answer of more than {largest >> 20} MiB")
    return b"".join(blocks)


def broken(where: str, problem: aiohttp.ClientError) -> tuple[str, Literal["unreachable", "trust"]]:
    """How the way to `where` failed, in words, and its kind: "trust" where a side refuses the other's certificate."""
    if isinstance(problem, aiohttp.ConnectionTimeoutError):
        return f"{where}: no connection within {CONNECT_WITHIN:g} s", "unreachable"
    text = in_words(cause_of(problem))
    return f"{where}: {text}", "trust" if "certificate" in text else "unreachable"


def cause_of(problem: BaseException) -> BaseException:
    """The socket's or TLS's own error inside one of aiohttp's."""
    while problem.__cause__ is not None:
        problem = problem.__cause__
    if isinstance(problem, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError):
        return ConnectionResetError()
    return problem


def _socket(found: tuple[int, int, int, str, Any]) -> socket.socket:
    """A socket that notices within SILENT_FOR seconds when the other host is gone, also while it waits."""
    made = socket.socket(found[0], found[1], found[2])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, SILENT_FOR // 4)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, SILENT_FOR // 4)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, SILENT_FOR * 1000)
    return made
