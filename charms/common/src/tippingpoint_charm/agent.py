"""Sends the charm's requests to its unit's agent."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tippingpoint.agent.client import AgentAway as AgentAway
from tippingpoint.agent.client import call

HOOK_WAITS = 3.0
"""Seconds that a hook waits for one answer. A healthy agent answers hooks at once."""
_LOOK_AGAIN = 0.2


class Refused(Exception):
    """A request was refused; the message says why in one line."""


class Agent:
    """The agent behind a socket."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def ask(self, do: str, *, within: float = HOOK_WAITS, **fields: Any) -> dict[str, Any]:
        """Return the agent's answer. Raises Refused if it refuses, AgentAway without an answer in `within` seconds."""
        answer = call(self._socket, {"do": do, **fields}, timeout=within)
        if answer["ok"] is not True:
            raise Refused(_line(answer.get("problem")) or f"the agent refuses {do}")
        return answer

    def have_done(self, do: str, *, within: float, **fields: Any) -> str | None:
        """Start a task and wait for it at most `within` seconds. Return its text, or None if it is still running.

        Raises Refused if the task fails.
        """
        task = self.ask(do, **fields).get("task")
        deadline = time.monotonic() + within
        while True:
            told = self.ask("task", id=task)
            if told.get("done"):
                if told.get("failed"):
                    raise Refused(_line(told.get("text")) or f"{do} failed")
                return str(told.get("text", ""))
            if time.monotonic() >= deadline:
                return None
            time.sleep(_LOOK_AGAIN)


def _line(text: object) -> str:
    return " ".join(str(text or "").split())
