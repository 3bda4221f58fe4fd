"""A client of the agent's socket: one JSON line each way. It uses only the standard library, because hooks must be
fast."""

from __future__ import annotations

import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from tippingpoint.util import timing

LONGEST_REQUEST = 16 << 20
"""The most bytes of a request; an answer may be longer."""


class AgentAway(Exception):
    """Raised when the agent does not answer: why, in one line."""


def call(path: Path, request: dict[str, Any], timeout: float = 10.0) -> dict[str, Any]:
    """Return the agent's answer to a request: it has `ok`, and if that is false a `problem` in one line.

    Raises AgentAway without an answer within `timeout` seconds.
    """
    deadline = timing.monotonic() + timeout
    with socket.socket(socket.AF_UNIX) as there:
        try:
            there.settimeout(timeout)
            there.connect(str(path))
            with suppress(
                BrokenPipeError, ConnectionResetError
            ):  # the agent may have refused it half-way, and its answer says why
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
    """Return everything received until the end of a line or of the connection."""
    received: list[bytes] = []
    while not received or not received[-1].endswith(b"\n"):
        there.settimeout(max(0.001, deadline - timing.monotonic()))
        chunk = there.recv(1 << 16)
        if not chunk:
            break
        received.append(chunk)
    return b"".join(received)
