"""The measurements of one turn on this machine, for the judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it imports numpy, which a run needs only if it is judged while it runs
    from tippingpoint.rundir.histogram import Histogram


@dataclass(frozen=True, kw_only=True)
class TurnReport:
    """A turn whose hold is over. Moments are seconds since the run's start."""

    turn: int
    inside: Path
    """The run's directory."""
    stage: int | None
    """The stage that is reported; None for all stages, the last of which is this turn's."""
    is_measured: bool = True
    """Whether our share of the turn has a stage in the journals."""
    began: float
    hold_began: float | None
    """None if the load was never held."""
    ended: float
    unanswered: Mapping[str, Sequence[float]] = field(default_factory=dict[str, Sequence[float]])
    """By operation, the ages in seconds of calls that had no answer long after the hold."""
    parts: Sequence[Mapping[str, Histogram]] = ()
    """In a search, what was measured in equal parts of the hold."""
    held_since: float = inf
    """At a lower load, the moment since which thresholds were met again; infinite if they were not."""
    aborted: str = ""
    """Which threshold with `abort` ended the load, on one machine in a search; empty if none did."""
    gone: str = ""
    """Why the target no longer accepts a login; empty if it does, or if some of the load succeeded."""
    missing: str = ""
    """Why our share of a lower load was never applied; empty if it was."""
