"""The knee: the load at which an operation's latency leaves its plateau."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Knee:
    """Where an operation's latency leaves its plateau. Loads are in the manifest's load unit."""

    operation: str
    at: float
    """The load at the bend: the best estimate inside `low`..`high`."""
    low: float
    high: float
    """95 % bootstrap interval of the load; at least the bracket of the two stages around the bend."""
    confidence: float
    """Share (0..1) of bootstrap replicates in which there is a knee."""
    after_stage: int | None
    """Number of the last stage on the plateau; None when the smallest load measured was beyond it already."""
    before_stage: int
    """Number of the first stage beyond the knee."""
    plateau_us: float
    """Typical latency on the plateau, microseconds."""
    beyond_us: float
    """Typical latency at the largest loads, microseconds."""
    slope: float
    """Growth beyond the knee: log latency per log load (1.0: in step with the load)."""
