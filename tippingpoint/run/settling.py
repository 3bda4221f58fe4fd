"""Watches for the moment from which on a target meets its thresholds again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from math import inf

from tippingpoint.analysis.held_loads import MOST
from tippingpoint.analysis.verdict import stage_checks
from tippingpoint.plan.base import Threshold
from tippingpoint.run.hold_so_far import read_tick
from tippingpoint.run.messages import Tick
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.stages import StageResult


class Settling:
    """Watches workers' ticks until all thresholds have held for a while. `settled` is set then."""

    def __init__(self, thresholds: Sequence[Threshold], window: float) -> None:
        """`window` is how many seconds they have to hold."""
        self._thresholds = thresholds
        self._window = window
        self._since = inf
        self._intervals: deque[tuple[float, dict[str, Histogram]]] = deque()
        self.settled = asyncio.Event()
        self.good_since = inf
        """When the time began in which thresholds held, once they do."""

    def begin(self, since: float) -> None:
        """Count intervals from this moment in the run on; none counts before."""
        self._since = since

    def heard(self, tick: Tick) -> None:
        """Take a worker's tick, with what ended in its last interval."""
        if self.settled.is_set() or tick.t - tick.seconds < self._since - 0.001:
            return
        self._intervals.append((tick.t, read_tick(tick)))
        begin = tick.t - self._window
        while self._intervals and self._intervals[0][0] <= begin:
            self._intervals.popleft()
        if begin >= self._since and self._hold(begin, tick.t):
            self.good_since = begin
            self.settled.set()

    def _hold(self, begin: float, end: float) -> bool:
        histograms: dict[str, Histogram] = {}
        for _, interval in self._intervals:
            for name, found in interval.items():
                histograms.setdefault(name, Histogram()).add(found)
        stage = StageResult(0, 0, "recover", begin, begin, end, histograms, histograms)
        # A lost lease is no error, but a target that loses most of them does not hold.
        for operation in {threshold.operation for threshold in self._thresholds}:
            if stage.failures(operation) > MOST * stage.attempts(operation):
                return False
        met = [check.met for check in stage_checks(stage, self._thresholds)]
        return False not in met and True in met
