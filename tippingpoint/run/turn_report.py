"""What this machine measured of one turn, for whoever judges it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class TurnReport:
    """A turn whose hold is over. Moments are seconds since the run's start."""

    turn: int
    inside: Path
    """The run's directory."""
    stage: int | None
    """The stage that is reported on; None for all, the last of which is this turn's."""
    began: float = 0.0
    hold_began: float = 0.0
    ended: float = 0.0
    unanswered: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    """By operation, the ages in seconds of calls that had no answer long after the hold."""
    gone: str = ""
    """Why the target accepts no login any more; empty if it does, or if some of the load succeeded."""
    missing: str = ""
    """Why our share of a lower load was never there; empty if it was."""
    is_measured: bool = True
    """Whether our share of the turn has a stage in the journals."""
