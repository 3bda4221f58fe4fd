"""Acts on a lab's members through its control socket, for a plan's faults.

The lab listens on a unix socket. A request is one JSON object in a line, and so is its answer. The answer to
`{"do": "kill", "member": "m2"}` is `{"ok": true}` or `{"error": ..., "expected": ...}`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tippingpoint.util.lab_socket import ask_lab, no_lab

Action = Literal[
    "kill",
    "stop",
    "continue",
    "start",
    "partition",
    "heal",
    "slow-disk",
    "free-disk",
    "fail-fencing",
    "mend-fencing",
    "kill-daemon",
    "compact",
    "defrag",
    "snapshot",
    "move-leader",
    "fill-quota",
    "free-quota",
]


@dataclass(frozen=True)
class LabMember:
    """One server of the target: `pid` is None when it is dead, `running` false when it is dead or stopped."""

    name: str
    pid: int | None
    running: bool
    leader: bool


@dataclass(frozen=True)
class LabPlaces:
    """The numbers of the processors on which a lab runs its target, and of those it leaves to the load."""

    target: frozenset[int]
    others: frozenset[int]


class LabControl:
    """One lab, by the path of its control socket. Each request has a connection of its own."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    async def act(self, do: Action, member: str, daemon: str | None = None) -> None:
        """Kill, stop (freeze), continue, start, cut off or heal a member, or do to it what else a fault does; returns
        when that is done. `daemon` is what kill-daemon kills.

        Raises UserError (field `lab`) when there is no lab at the socket, or when the lab refuses. It refuses if it
        does not have the member (the error names those it has), if the member is dead already, or if it does not come
        up.
        """
        more = {"daemon": daemon} if daemon is not None else {}
        await self._ask({"do": do, "member": member, **more})

    async def members(self) -> list[LabMember]:
        """Return the lab's members as they are now; raises UserError (field `lab`) without a lab at the socket."""
        answer = await self._ask({"do": "members"})
        try:
            return [
                LabMember(entry["name"], entry["pid"], entry["running"], entry["leader"])
                for entry in answer["members"]
            ]
        except (KeyError, TypeError):
            raise no_lab(self._socket, f"it answered {json.dumps(answer)}") from None

    async def places(self) -> LabPlaces:
        """Return where the lab's target runs; raises UserError (field `lab`) without a lab at the socket."""
        answer = await self._ask({"do": "places"})
        try:
            return LabPlaces(frozenset(map(int, answer["target"])), frozenset(map(int, answer["others"])))
        except (KeyError, TypeError, ValueError):
            raise no_lab(self._socket, f"it answered {json.dumps(answer)}") from None

    async def _ask(self, request: dict[str, str]) -> dict[str, Any]:
        return await ask_lab(self._socket, request)
