"""Asking an agent, over its socket: one JSON line there, one back. Standard library only, as hooks have no time."""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

LONGEST_REQUEST = 16 << 20
"""Bytes of a request; an answer may be longer."""


class AgentAway(Exception):
    """The agent does not answer: why, in one line."""


def call(path: Path, request: dict[str, Any], timeout: float = 10.0) -> dict[str, Any]:
    """The agent's answer to a request, which has `ok`, and where that is false a `problem` in one line.

    AgentAway when there is none within `timeout` seconds.
    """
    deadline = time.monotonic() + timeout
    with socket.socket(socket.AF_UNIX) as there:
        try:
            there.settimeout(timeout)
            there.connect(str(path))
            with suppress(
                BrokenPipeError, ConnectionResetError
            ):  # it may have refused it half-way, and says why
                there.sendall(json.dumps(request).encode() + b"\n")
            answer = _line(there, deadline)
        except TimeoutError:
            raise AgentAway(f"agent: {path}: expected an answer within {timeout:g} s") from None
        except (OSError, ValueError) as problem:
            why = getattr(problem, "strerror", None) or problem
            raise AgentAway(f"agent: {path}: expected an agent that listens there ({why})") from None
    try:
        fields: object = json.loads(answer)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict) or "ok" not in fields:
        raise AgentAway(f"agent: {path}: expected an answer in one line of JSON")
    return cast("dict[str, Any]", fields)


def _line(there: socket.socket, deadline: float) -> bytes:
    """All that comes until a line's end, or the connection's."""
    received: list[bytes] = []
    while not received or not received[-1].endswith(b"\n"):
        there.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = there.recv(1 << 16)
        if not chunk:
            break
        received.append(chunk)
    return b"".join(received)
