"""Watches thresholds with `abort` during a run, and ends it before its target suffers for long.

One hiccup does not end a run: a threshold has to be missed in eight windows in a row, and in all of them together. So
nothing shorter than 12 s ends it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tippingpoint.analysis.latency import freed_costs
from tippingpoint.analysis.thresholds import Check, stage_checks
from tippingpoint.plan.base import Threshold
from tippingpoint.plan.share import threshold_part
from tippingpoint.play.messages import Tick
from tippingpoint.rundir.histogram import Counts, Histogram, add_each
from tippingpoint.rundir.stages import StageResult

WINDOW = 2.0
"""The shortest length of a window, in seconds."""
FEWEST = 5
"""The fewest attempts in a window; until it has as many, it continues."""
IN_A_ROW = 8
"""The number of windows in a row that have to miss a threshold."""
_HAIR = 0.001
"""Seconds by which a tick may begin early: its times are rounded."""


@dataclass
class _Window:
    """What was measured in a window, which may still be open. Times are seconds since the run's start."""

    begin: float
    held: bool
    """Whether the load was held all the time."""
    end: float = 0.0
    histograms: dict[str, Histogram] = field(default_factory=dict[str, Histogram])

    @property
    def stage(self) -> StageResult:
        hold = self.begin if self.held else None
        return StageResult(0, 0, "ramp", self.begin, hold, self.end, self.histograms, self.histograms)


class EarlyWarning:
    """The thresholds of a plan that have `abort`. `missed` is set when one is clearly missed."""

    def __init__(
        self,
        thresholds: Sequence[Threshold],
        since: float = 0.0,
        share: Callable[[], float] = lambda: 1.0,
    ) -> None:
        """What began before `since` (seconds since the run's start) does not count.

        `share` is the share of the run's load that is visible here, from 0 to 1: a throughput has to reach that share
        of its limit.
        """
        self._watches = [
            _Watch(threshold, since, share)
            for threshold in thresholds
            if threshold.abort and threshold.operation
        ]
        self._since = since
        self.missed = asyncio.Event()
        self.why = ""
        """What was missed, in a line: extend p99 was 2.3 s (threshold 1 s, abort). Empty until then."""

    def alarm(self, why: str) -> None:
        """Note that a threshold which is watched elsewhere is clearly missed."""
        if not self.missed.is_set():
            self.why = why
            self.missed.set()

    def heard(self, tick: Tick, holding: bool) -> str:
        """Take a worker's tick; `holding` means that the load is up and held. Returns `why`."""
        if not self._watches or self.missed.is_set() or tick.t - tick.seconds < self._since - _HAIR:
            return self.why
        for watch in self._watches:
            check = watch.heard(tick.t, tick.measured, holding)
            if check is not None:
                observed, allowed = check.show(check.observed or 0.0), check.show(check.allowed)
                whole = watch.threshold.throughput
                if check.is_least and whole is not None and whole > check.allowed:
                    allowed = f"{allowed} for its share of {check.show(whole)}"
                self.alarm(f"{check.title} was {observed} (threshold {allowed}, abort)")
                break
        return self.why


class _Watch:
    """One threshold, and its last windows."""

    def __init__(self, threshold: Threshold, since: float, share: Callable[[], float]) -> None:
        self.threshold = threshold
        self._share = share
        self._window = _Window(since, held=True)
        self._closed: deque[_Window] = deque(maxlen=IN_A_ROW)

    def heard(self, t: float, found: Mapping[str, Counts], holding: bool) -> Check | None:
        """Take what one worker measured up to a moment; returns the check that is clearly missed, if any."""
        window = self._window
        add_each(window.histograms, found)
        window.held &= holding
        window.end = max(window.end, t)
        if window.end - window.begin < WINDOW or not self._tells(window.stage):
            return None
        self._closed.append(window)
        self._window = _Window(window.end, held=True)
        return self._missed_in_all()

    def _tells(self, stage: StageResult) -> bool:
        """Whether a window has enough attempts. A throughput needs none: without attempts it is low."""
        return self.threshold.throughput is not None or stage.attempts(self.threshold.operation) >= FEWEST

    def _missed_in_all(self) -> Check | None:
        if len(self._closed) < IN_A_ROW:
            return None
        missed = [self._missed(window) for window in self._closed]
        whole = _Window(
            self._closed[0].begin, all(window.held for window in self._closed), self._closed[-1].end
        )
        for window in self._closed:
            add_each(whole.histograms, window.histograms)
        in_all = set(missed[0]).intersection(*missed[1:])
        found = self._missed(whole)
        return next((check for limit, check in found.items() if limit in in_all), None)

    def _missed(self, window: _Window) -> dict[str, Check]:
        """Return the checks that a window misses, by their limit, except those that the generator may have caused."""
        stage, operation = window.stage, self.threshold.operation
        enough = stage.attempts(operation) >= FEWEST
        return {
            check.limit: check
            for check in stage_checks(stage, [self._shared])
            if check.met is False
            and (window.held if check.is_least else enough)
            and not (
                check.percentile is not None
                and freed_costs(stage, operation).percentile(check.percentile) <= check.allowed
            )
        }

    @property
    def _shared(self) -> Threshold:
        """The threshold for the share of the load that is visible here."""
        return threshold_part(self.threshold, self._share())
