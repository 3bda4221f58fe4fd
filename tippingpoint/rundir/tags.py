"""How operations are named in journals: by what was done and how it ended."""

from __future__ import annotations

OUTCOMES = ("ok", "denied", "limited", "lost", "timeout", "error")
FAILURES = ("lost", "timeout", "error")
"""Outcomes that are nobody's plan; `denied` is how a contended lease is meant to work, `limited` a rate limit."""

SCHEDULE_LAG = "generator.schedule-lag"
"""Tag: how late an operation was sent after its intended moment although nothing it depends on was late."""
LOOP_LAG = "generator.loop-lag"
"""Tag: how late the worker's event loop woke from a timer."""

DELAYED = "-delayed"
FREED = "-freed"
"""What the generator's own delay was part of stands twice beside its tag: as it was, and freed of that delay."""


def tag(operation: str, outcome: str = "ok", *, service: bool = False) -> str:
    """The journal's tag: `claim.ok` is response time from the intended moment, `claim.ok.service` from the send."""
    return f"{operation}.{outcome}.service" if service else f"{operation}.{outcome}"
