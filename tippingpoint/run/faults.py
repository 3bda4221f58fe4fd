"""Acts on a lab's members through its control socket, for a plan's faults.

The lab listens on a unix socket. A request is one JSON object in a line, and so is its answer. The answer to
`{"do": "kill", "member": "m2"}` is `{"ok": true}` or `{"error": ..., "expected": ...}`.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from tippingpoint.errors import UserError
from tippingpoint.util.network_errors import in_words

Action = Literal["kill", "stop", "continue", "start", "partition", "heal"]

ANSWER_TIMEOUT_S = 180.0
"""Seconds. A lab answers when the action is done; the slowest is a start, which waits until the member serves."""


@dataclass(frozen=True)
class LabMember:
    """One server of the target: `pid` is None when it is dead, `running` false when it is dead or stopped."""

    name: str
    pid: int | None
    running: bool
    leader: bool


class LabControl:
    """One lab, by the path of its control socket. Each request has a connection of its own."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def act(self, do: Action, member: str) -> None:
        """Kill, stop (freeze), continue, start, cut off or heal a member; returns when that is done.

        Raises UserError (field `lab`) when there is no lab at the socket, or when the lab refuses. It refuses for a
        member that it does not have (the error names those it has), that is dead already, or that does not come up.
        """
        await self._ask({"do": do, "member": member})

    async def members(self) -> list[LabMember]:
        """Return the lab's members as they are now; raises UserError (field `lab`) without a lab at the socket."""
        answer = await self._ask({"do": "members"})
        try:
            return [
                LabMember(entry["name"], entry["pid"], entry["running"], entry["leader"])
                for entry in answer["members"]
            ]
        except (KeyError, TypeError):
            raise self._not_a_lab(f"it answered {json.dumps(answer)}") from None

    async def _ask(self, request: dict[str, str]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                line = await self._exchange(json.dumps(request).encode() + b"\n")
        except TimeoutError:
            raise self._not_a_lab(f"no answer within {ANSWER_TIMEOUT_S:g}s") from None
        except (OSError, ValueError) as problem:  # ValueError: a line without an end
            raise self._not_a_lab(in_words(problem)) from None
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise self._not_a_lab("it gave no answer" if not line else "its answer is not a JSON object")
        fields = cast(dict[str, Any], answer)
        if "error" in fields:
            raise UserError(
                "lab", str(fields["error"]), str(fields.get("expected", "something the lab can do"))
            )
        return fields

    async def _exchange(self, line: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(self._socket))
        try:
            writer.write(line)
            await writer.drain()
            return await reader.readline()
        finally:
            writer.close()

    def _not_a_lab(self, reason: str) -> UserError:
        return UserError("lab", str(self._socket), f"the control socket of a running lab ({reason})")
