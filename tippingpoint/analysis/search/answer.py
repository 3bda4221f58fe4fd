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

- resolution: the interval is as narrow as was asked for.
- within: its time was over.
- limit: the largest load that may be tried holds.
- generator: the generator itself was the bottleneck of loads above all that were judged.
- unmeasured: a figure of Prometheus was not known of loads above all that were judged.
- unjudged: too many probes in a row said nothing, for any reason.
- foreign: other programs did not leave the target's processors before its time was over, or in too many probes.
- broken at start: not even the smallest load held.
- no narrower: the interval cannot be as narrow as was asked for with as many probes as a search may have.
- going on: it has not ended, or was ended from outside.
"""
Shape = Literal["cliff", "smooth", ""]


@dataclass(frozen=True)
class CurvePoint:
    """The chance to hold at one load: the median of what it may be, with its 95 % band."""

    load: float
    chance: float
    low: float
    high: float


@dataclass(frozen=True)
class Answer:
    """What the probes say of the limit: the load at which the chance that a hold meets all thresholds is one half."""

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
    (smooth); empty if the probes do not tell."""
    withheld: str
    """Why no limit is named, in a few words; empty if one is named."""
    drifts: str
    """The evidence that the target changed while the search went on, in a few words; empty if there is none."""
    stays_hurt: str
    """The evidence that the target stays hurt after a load that broke, in a few words; empty if there is none."""
    share: float | None
    """The share of holds at the lower bound that meet all thresholds, at least, with a chance of 95 %; None without a
    limit."""
    curve: tuple[CurvePoint, ...]
    """The chance to hold over the load, ascending; empty without a limit."""
