"""The tags of operations in journals: what was done and how it ended."""

from __future__ import annotations

OUTCOMES = ("ok", "denied", "limited", "lost", "timeout", "error")
FAILURES = ("lost", "timeout", "error")
"""Outcomes that count as failures. `denied` is the normal answer for a contended lease, `limited` a rate limit."""

SCHEDULE_LAG = "generator.schedule-lag"
"""Tag: how late an operation was sent after its intended moment although nothing that it depends on was late."""
LOOP_LAG = "generator.loop-lag"
"""Tag: how late the worker's event loop woke from a timer."""

DELAYED = "-delayed"
FREED = "-freed"
"""Suffixes of tags for a response time that contains a delay of the generator: as it was, and without that delay."""


def tag(operation: str, outcome: str = "ok", *, service: bool = False) -> str:
    """Return the journal's tag: `claim.ok` is response time from the intended moment, `claim.ok.service` from the
    send."""
    return f"{operation}.{outcome}.service" if service else f"{operation}.{outcome}"
