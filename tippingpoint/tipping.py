"""Where a run tipped: the knee of each operation, the cliff, storms and the forecast, as one sentence."""

from __future__ import annotations

from dataclasses import dataclass

from tippingpoint.cliff import Cliff as Cliff
from tippingpoint.knee import Knee as Knee
from tippingpoint.usl import Forecast as Forecast


@dataclass(frozen=True)
class StormOutcome:
    """What happened when everything was claimed at once: one stage of kind storm, one operation."""

    stage: int
    size: int
    operation: str
    attempts: int
    failed: int
    """Lost, timed out or ended in an error."""
    p99_us: int
    """Of successes and failures, at what they cost; microseconds."""
    broke: bool
    """Whether the failures are more than the stages before the storm explain."""


@dataclass(frozen=True)
class Tipping:
    """The tipping point of a run, as far as its stages show one."""

    knees: dict[str, Knee]
    """By operation, where latency leaves its plateau."""
    no_knee: dict[str, str]
    """By operation, why no knee was found."""
    cliff: Cliff | None
    storms: list[StormOutcome]
    forecast: Forecast | None
    no_forecast: str
    """Why there is no forecast; empty when there is one."""
    notes: list[str]
    """What the finder saw and did not count: a blip that larger stages did not repeat, a fault on purpose."""
    sentence: str
