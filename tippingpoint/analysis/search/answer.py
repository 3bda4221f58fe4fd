"""The answer of a search: the limit with its 95 % interval, why it ended, and the curve of the chance to hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Ended = Literal[
    "resolution",
    "within",
    "limit",
    "generator",
    "unmeasured",
    "unjudged",
    "foreign",
    "broken at start",
    "no narrower",
    "going on",
]
"""Why a search ended.

- resolution: the interval is as narrow as requested.
- within: its time was up.
- limit: the largest permitted load holds.
- generator: the generator itself was the bottleneck at all loads above the judged ones.
- unmeasured: a figure from Prometheus was missing at all loads above the judged ones.
- unjudged: too many probes in a row were inconclusive, for any reason.
- foreign: other programs did not leave the target's processors before the time was up, or in too many probes.
- broken at start: not even the smallest load held.
- no narrower: the interval cannot become as narrow as requested within the number of probes that a search may have.
- going on: the search has not ended, or was ended from outside.
"""
Shape = Literal["cliff", "smooth", ""]


@dataclass(frozen=True)
class CurvePoint:
    """The chance to hold at one load: the median estimate, with its 95 % band."""

    load: float
    chance: float
    low: float
    high: float


@dataclass(frozen=True)
class Answer:
    """What the probes say about the limit: the load at which a hold meets all thresholds with a chance of one half."""

    limit: float | None
    """The limit, in the unit of loads; None if none was found (`withheld`, or `ended` says why)."""
    low: float
    """The lower bound of its 95 % interval; 0 if there is none."""
    high: float
    """The upper bound; infinite if there is none."""
    ended: Ended
    binds: str
    """The name of the margin that binds at the limit; empty if none was found."""
    shape: Shape
    """Whether the chance to hold falls from 90 % to 10 % within a twentieth of the load (a cliff) or over more of it
    (smooth); empty if the probes do not show it."""
    withheld: str
    """Why no limit is named, in a few words; empty if one is named."""
    drifts: str
    """The evidence that the target changed during the search, in a few words; empty if there is none."""
    stays_hurt: str
    """The evidence that a load that broke does lasting damage to the target, in a few words; empty if there is none."""
    share: float | None
    """The minimum share of holds at the lower bound that meet all thresholds, with 95 % confidence; None without a
    limit."""
    curve: tuple[CurvePoint, ...]
    """The chance to hold by load, ascending; empty without a limit."""
