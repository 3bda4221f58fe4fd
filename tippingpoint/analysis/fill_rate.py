"""Whether making things slows down as there are more of them, as far as their number tells."""

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
from tippingpoint.util.text import show_size

LEAST = 30
"""Things made below which nothing is said: a third of them is too few for a rate."""
SAME = 1.25
"""A rate that falls by less than this factor for certain keeps its pace."""
_NORMAL_95 = 1.96


@dataclass(frozen=True)
class Fill:
    """What stages with the same number of members made, beginning to end. Rates are things per second."""

    members: int | None
    """How many members were there at most; None when nobody told."""
    made: int
    seconds: float
    """How long that took, times in which nothing was to be made left out."""
    first: float
    """The rate at which the first third was made."""
    last: float
    """The rate at which the last third was made."""
    low: float
    high: float
    """95 % interval of first / last, things taken as made independently of each other (Poisson)."""

    @property
    def rate(self) -> float:
        """Over all of it."""
        return self.made / self.seconds

    @property
    def enough(self) -> bool:
        """Whether so many were made that anything can be said of how the rate changes."""
        return self.made >= LEAST

    @property
    def slower(self) -> bool:
        """Whether the rate fell for certain."""
        return self.enough and self.low > 1


def fills_of(run: RunData, cluster: Cluster) -> list[Fill]:
    """The fills of a run that makes containers, in order: one for each number of members that things were made on."""
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
    """Losses while things are made take nothing away from what was made.

    What is found when a part is taken up, `adopted` by stage, is there within moments, and is made by nobody.
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
    """What a fill says of the question, as one sentence; `alone` when it is the run's only one."""
    where = "" if alone or fill.members is None else f"With {fill.members} members: "
    made = show_size(fill.made)
    if not fill.enough:
        return (
            f"{where}{made} {things} were created at {_two(fill.rate)}/s: too few to tell whether creation slows down "
            f"as there are more of them."
        )
    rates = f"{_two(fill.first)}/s for the first third of {made} {things}, {_two(fill.last)}/s for the last"
    interval = f"95 % interval {fill.low:.2g} to {fill.high:.2g}"
    if fill.slower:
        return f"{where}Creation slows down: {rates}, {fill.first / fill.last:.2g} times slower ({interval})."
    if fill.high < 1:
        return f"{where}Creation gets faster: {rates}, {fill.last / fill.first:.2g} times as fast."
    ratio = f"a ratio of {fill.first / fill.last:.2g}, {interval}"
    if fill.high < SAME:
        return f"{where}Creation keeps its pace: {rates} ({ratio})."
    return f"{where}It is uncertain whether creation slows down: {rates} ({ratio})."


def _two(rate: float) -> str:
    """Two significant digits: 0.18, 800."""
    return f"{float(f'{rate:.2g}'):,g}"
