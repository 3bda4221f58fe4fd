"""The verdict: each threshold of the plan held against each stage, and one sentence for a person."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Outcome = Literal["met", "missed", "withheld", "failed"]

_EXIT_CODES: dict[Outcome, int] = {"met": 0, "missed": 1, "failed": 3, "withheld": 4}


@dataclass(frozen=True)
class Check:
    """One limit held against one stage."""

    operation: str
    limit: str
    """The threshold's field: p50 p90 p95 p99 p999 max error_rate lost_rate throughput."""
    allowed: float
    """What the plan allows: microseconds for latencies, a share in 0..1 for rates, operations per second."""
    observed: float | None
    """What was measured, in the unit of `allowed`; None when there was nothing to measure."""
    stage: int | None
    """The stage's number; None when no stage was run at all."""
    size: int | None
    """The stage's size, in the manifest's load unit."""
    met: bool | None
    """None when nothing was measured, or when what was measured says nothing about the target (see `why`)."""
    why: str = ""
    """Why `met` is None, in a few words."""


@dataclass(frozen=True)
class Verdict:
    """What a run amounts to. `checks` are in the order of stages; `reasons` is what a reader should know besides."""

    outcome: Outcome
    sentence: str
    checks: list[Check] = field(default_factory=list[Check])
    reasons: list[str] = field(default_factory=list[str])

    @property
    def exit_code(self) -> int:
        """0 met, 1 missed, 3 failed, 4 withheld."""
        return _EXIT_CODES[self.outcome]
