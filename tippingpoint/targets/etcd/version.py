"""Etcd's version over plain HTTP, for users to whom gRPC does not report it.

Etcd 3.5.30 refuses Maintenance/Status to all users but administrators. `/version` needs no login.
"""

from __future__ import annotations

import asyncio
import contextlib
import json

from tippingpoint.targets.etcd.access import ANSWER_WITHIN, Endpoint, EtcdAccess
from tippingpoint.targets.etcd.access import access as read_access
from tippingpoint.util.patience import answers_within

_LARGEST = 16 * 1024
"""The most bytes of an answer that are read."""


async def ask_version(access: EtcdAccess, endpoint: Endpoint) -> str:
    """Return the version, such as 3.5.30; empty when the endpoint does not report it."""
    # The run's own connections negotiate HTTP/2 only.
    tls = read_access(access.target).tls if endpoint.tls else None
    try:
        async with answers_within(ANSWER_WITHIN):
            reader, writer = await asyncio.open_connection(
                endpoint.host, endpoint.port, ssl=tls, server_hostname=endpoint.host if tls else None
            )
            try:
                writer.write(f"GET /version HTTP/1.0\r\nHost: {endpoint.name}\r\n\r\n".encode())
                answer = b""
                while len(answer) < _LARGEST and (more := await reader.read(_LARGEST)):
                    answer += more
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, TimeoutError):
        return ""
    return _version_in(answer)


def _version_in(answer: bytes) -> str:
    head, _, body = answer.partition(b"\r\n\r\n")
    if b" 200" not in head.partition(b"\r\n")[0]:
        return ""
    try:
        told: object = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    match told:
        case {"etcdserver": str(version)} if version.isprintable() and len(version) < 80:
            return version
        case _:
            return ""
