"""Tests whether the creation of things slows down as their number grows."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, sqrt

import numpy as np

from tippingpoint.rundir.cluster_events import Cluster
from tippingpoint.rundir.results import RunData
from tippingpoint.rundir.stages import StageResult
from tippingpoint.rundir.takeovers import takeovers
from tippingpoint.util.numbers import show_rounded
from tippingpoint.util.text import choose, show_amount

LEAST = 30
"""The minimum number of things for a statement: a third of fewer is too few for a rate."""
SAME = 1.25
"""A rate that certainly falls by less than this factor is constant."""
_NORMAL_95 = 1.96


@dataclass(frozen=True)
class Fill:
    """The things created in all stages with the same number of members. Rates are things per second."""

    members: int | None
    """The largest number of members online; None if unknown."""
    made: int
    seconds: float
    """How long that took, excluding times in which nothing was created."""
    first: float
    """The rate for the first third."""
    last: float
    """The rate for the last third."""
    low: float
    high: float
    """The 95 % interval of first / last, if things are created independently of each other (Poisson)."""

    @property
    def rate(self) -> float:
        """The overall rate."""
        return self.made / self.seconds

    @property
    def enough(self) -> bool:
        """Whether enough things were created to say how the rate changes."""
        return self.made >= LEAST

    @property
    def slower(self) -> bool:
        """Whether the rate certainly fell."""
        return self.enough and self.low > 1


def fills_of(run: RunData, cluster: Cluster) -> list[Fill]:
    """Return the fills of a run in order, one for each number of members on which things were created."""
    groups: dict[int | None, list[StageResult]] = {}
    for stage in run.stages:
        if stage.is_step and stage.growth and run.instances:
            members = max(len(cluster.online(t)) for t, _ in stage.growth) or None
            groups.setdefault(members, []).append(stage)
    adopted: Counter[int] = Counter()
    for taken in takeovers(run.events):
        adopted[taken.stage] += taken.there
    fills = (_fill(members, stages, adopted) for members, stages in groups.items())
    return [fill for fill in fills if fill is not None]


def _fill(members: int | None, stages: Sequence[StageResult], adopted: Mapping[int, int]) -> Fill | None:
    """Add up what stages created; things lost meanwhile still count as created.

    Things found when a part was resumed (`adopted`, by stage) appear at once and were not created by this run.
    """
    made, seconds = [0.0], [0.0]
    for stage in stages:
        found = adopted.get(stage.number, 0)
        for (begin, since), (end, until) in itertools.pairwise(stage.growth):
            taken = min(found, until - since)
            if taken > 0:
                found -= taken
                since += taken
            if until > since:
                made.append(made[-1] + until - since)
                seconds.append(seconds[-1] + end - begin)
    total = made[-1]
    if total < 1:
        return None
    third, thirds = (float(np.interp(total * share / 3, made, seconds)) for share in (1, 2))
    first, last = total / 3 / third, total / 3 / (seconds[-1] - thirds)
    spread = exp(_NORMAL_95 * sqrt(2 / (total / 3)))
    return Fill(members, round(total), seconds[-1], first, last, first / last / spread, first / last * spread)


def fill_words(fill: Fill, alone: bool, things: str = "containers") -> str:
    """Say in one sentence whether creation slowed down in a fill; `alone` if it is the run's only one."""
    where = "" if alone or fill.members is None else f"With {fill.members} members: "
    made = show_amount(fill.made, things)
    if not fill.enough:
        return (
            f"{where}{made} {choose(fill.made, 'was', 'were')} created at {_two(fill.rate)}/s: too few to show "
            "whether creation slows down as their number grows."
        )
    rates = f"{_two(fill.first)}/s for the first third of {made}, {_two(fill.last)}/s for the last"
    interval = f"95 % interval {_two(fill.low)} to {_two(fill.high)}"
    if fill.slower:
        return (
            f"{where}Creation slows down: {rates}, {_two(fill.first / fill.last)} times slower ({interval})."
        )
    if fill.high < 1:
        return f"{where}Creation gets faster: {rates}, {_two(fill.last / fill.first)} times as fast."
    ratio = f"a ratio of {_two(fill.first / fill.last)}, {interval}"
    if fill.high < SAME:
        return f"{where}Creation keeps its pace: {rates} ({ratio})."
    return f"{where}It is uncertain whether creation slows down: {rates} ({ratio})."


def _two(rate: float) -> str:
    """Write a rate with two significant digits: 0.18, 800."""
    return show_rounded(rate, 2)
