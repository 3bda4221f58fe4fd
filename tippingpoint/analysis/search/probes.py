"""The input of a search: one probe for each tried load, with the load's distance from each threshold."""

from __future__ import annotations

from dataclasses import dataclass

GENERATOR = "the generator itself was the bottleneck"
"""Why a probe is inconclusive, unless it has another reason."""


def generator_words(strained: int, of: int, larger: bool) -> str:
    """Say in how many probes of larger loads, or of all loads, the generator was the limit."""
    how_many = f"all {of} probes" if strained == of > 1 else f"{strained} of {of} probes"
    return f"{GENERATOR} in {how_many}{' of larger loads' if larger else ''}"


@dataclass(frozen=True)
class Margin:
    """How far a load was from one limit: above 0 it broke the limit, below 0 it met it."""

    name: str
    """What is limited: `extend p99`, `extend error_rate`."""
    value: float
    """ln(observed / allowed), and for a throughput ln(allowed / observed); finite."""
    error: float
    """The standard error of `value` from sampling within the probe; infinite if it is unknown."""


@dataclass(frozen=True)
class Probe:
    """One load that was tried."""

    load: float
    held: bool | None
    """Whether it met all thresholds; None if it is inconclusive: the generator was the limit, it was cut short, or it
    missed while other programs ran."""
    margins: tuple[Margin, ...]
    fresh: bool
    """Whether it started from nothing."""
    begun: float
    """Seconds since the search began."""
    seconds: float
    """How long it lasted, including ramp and hold."""
    aborted: bool = False
    """Whether a threshold with `abort` ended it: loads near or above it may not be tried again."""
    unmeasured: str = ""
    """Which Prometheus figure was not measured, and why, if `held` is None because of that."""
    unjudged: str = ""
    """Why it is inconclusive, if neither the generator nor a Prometheus figure is the reason."""

    foreign: str = ""
    """How much of the target's processors other programs took, if `held` is None because of that."""

    @property
    def silence(self) -> str:
        """Why it is inconclusive, in a few words; only if `held` is None."""
        return self.foreign or self.unmeasured or self.unjudged or GENERATOR
