"""Sends a lab requests on its control socket: one line of JSON there, one line back."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from tippingpoint.errors import UserError
from tippingpoint.util.network_errors import in_words

ANSWER_TIMEOUT_S = 180.0
"""Seconds. A lab answers when the action is done; the slowest action is a start, which waits until the member
serves."""


async def ask_lab(socket: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a lab's answer. Each request has a connection of its own.

    Raises UserError (field `lab`) when there is no lab at the socket, or when the lab refuses.
    """
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            line = await _exchange(socket, json.dumps(request).encode() + b"\n")
    except TimeoutError:
        raise no_lab(socket, f"no answer within {ANSWER_TIMEOUT_S:g}s") from None
    except (OSError, ValueError) as problem:  # ValueError: a line without an end
        raise no_lab(socket, in_words(problem)) from None
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise no_lab(socket, "it gave no answer" if not line else "its answer is not a JSON object")
    fields = cast(dict[str, Any], answer)
    if "error" in fields:
        raise UserError("lab", str(fields["error"]), str(fields.get("expected", "something the lab can do")))
    return fields


def no_lab(socket: Path, reason: str) -> UserError:
    """The error for a socket at which no lab answers, or one that answers nonsense."""
    return UserError("lab", str(socket), f"the control socket of a running lab ({reason})")


async def _exchange(socket: Path, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(socket))
    try:
        writer.write(line)
        await writer.drain()
        return await reader.readline()
    finally:
        writer.close()
