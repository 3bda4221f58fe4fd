"""Watches for the moment at which a target meets its thresholds again."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from math import inf

from tippingpoint.analysis.held_loads import MOST
from tippingpoint.analysis.thresholds import stage_checks
from tippingpoint.plan.base import Threshold
from tippingpoint.plan.read import SearchPlan
from tippingpoint.rundir.histogram import Counts, Histogram, add_each
from tippingpoint.rundir.stages import StageResult

WINDOW = 5.0
"""Seconds for which thresholds must hold, or half of a step that is shorter than twice that."""
LOOKS = 3
"""In a workload that observes, they must also hold for this many observations."""


def hold_of(plan: SearchPlan) -> float:
    """Return the maximum number of seconds to hold a lower load: as long as the last stage, or the search's loads."""
    return (plan.find or plan.stages[-1]).hold


def window_of(plan: SearchPlan) -> float:
    """Return for how many seconds thresholds must hold."""
    return min(max(WINDOW, LOOKS * plan.observe_every), hold_of(plan) / 2)


class RecoveryWatch:
    """Watches measurements until all thresholds have held for a while."""

    def __init__(self, thresholds: Sequence[Threshold], window: float) -> None:
        """`window` is the number of seconds that they must hold."""
        self._thresholds = thresholds
        self._window = window
        self._since = inf
        self._intervals: deque[tuple[float, Mapping[str, Histogram | Counts]]] = deque()
        self.good_since = inf
        """When the period began in which thresholds have held; infinite until then."""

    @property
    def recovered(self) -> bool:
        """Whether they have held for a while."""
        return self.good_since < inf

    def begin(self, since: float) -> None:
        """Count intervals from this moment in the run; none counts before."""
        self._since = since

    def add(self, t: float, seconds: float, ended: Mapping[str, Histogram | Counts]) -> None:
        """Add what ended in the `seconds` before a moment. Intervals must be added in order of time."""
        if not self.counts(t, seconds):
            return
        self._intervals.append((t, ended))
        begin = t - self._window
        while self._intervals and self._intervals[0][0] <= begin:
            self._intervals.popleft()
        if begin >= self._since and self._hold(begin, t):
            self.good_since = begin

    def counts(self, t: float, seconds: float) -> bool:
        """Return whether operations that ended in the `seconds` before a moment are still of interest."""
        return not self.recovered and t - seconds >= self._since - 0.001

    def _hold(self, begin: float, end: float) -> bool:
        histograms: dict[str, Histogram] = {}
        for _, interval in self._intervals:
            add_each(histograms, interval)
        stage = StageResult(0, 0, "recover", begin, begin, end, histograms, histograms)
        # A lost lease is not an error, but a target that loses most leases does not hold.
        for operation in {threshold.operation for threshold in self._thresholds}:
            if stage.failures(operation) > MOST * stage.attempts(operation):
                return False
        met = [check.met for check in stage_checks(stage, self._thresholds)]
        return False not in met and True in met
