"""The cliff: the load from which a target breaks: leases are lost, operations fail, or throughput falls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Cliff:
    """The load from which the target breaks and does not recover at any higher load."""

    last_held: int | None
    """The largest stage size below the cliff that held; None when the smallest one broke already."""
    first_broken: int
    """The size of the stage that broke."""
    by: Literal["lost", "error", "throughput"]
    """What broke: leases were lost, operations failed (errors and timeouts), or throughput fell."""
    evidence: str
    """What was seen, in a few words: "2 of 11 extends lost"."""
    stage: int
    """The number of the stage that broke."""
    confidence: float
    """1 minus the p-value of seeing this by chance if nothing had changed since the smaller stages."""
    during_fault: bool = False
    """A fault was injected on purpose while the stage ran, so this says little about the load."""
