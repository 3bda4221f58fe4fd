"""Lowers the load in steps after it was too much, until the target meets its thresholds again.

A target may stay broken at a load that it held before, although what broke it is gone: a metastable failure
(N. Bronson et al., Metastable Failures in Distributed Systems, HotOS 2021). The steps show which of both it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from math import inf

from tippingpoint.analysis.findings import StageFindings, examine_stage
from tippingpoint.analysis.held_loads import MOST
from tippingpoint.analysis.recovery.comeback import says_nothing
from tippingpoint.analysis.verdict import stage_checks
from tippingpoint.plan.base import Threshold
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.fields import as_amount
from tippingpoint.run.crew import Crew
from tippingpoint.run.hold_so_far import read_tick
from tippingpoint.run.messages import Pause, Paused, Tick
from tippingpoint.run.record import Record
from tippingpoint.run.stages import Stages
from tippingpoint.rundir.histogram import Histogram
from tippingpoint.rundir.probe_events import probe_events
from tippingpoint.rundir.results import RunData, load_run
from tippingpoint.rundir.stages import StageResult

SHARES = (0.9, 0.75, 0.5, 0.25)
"""The lower loads, as shares of the one that broke. The largest load that held before is one more."""
WINDOW = 5.0
"""Seconds for which thresholds have to hold, or half of a step that is shorter than twice that."""
TRIES = 3
"""How often a load is tried that says nothing of the target, as the generator was late. On a busy machine it is late in
bursts. A failure that keeps itself up is still there at the next try."""
MOST_BROKEN = 3
"""How many of the loads that broke in a search are tried. At a soft edge, the smallest often holds the next time."""


def lower_loads(broken: float, held: float | None, *, whole: bool = True) -> list[float]:
    """Return the loads of the steps, in order; the last ones are none at all, and what held before once more."""
    before = [held] if held is not None else []
    lower = {*(round(share * broken, None if whole else 3) for share in SHARES), *before}
    return [*sorted((size for size in lower if 0 < size < broken), reverse=True), 0, *before]


class Settling:
    """Watches workers' ticks until all thresholds have held for a while. `settled` is set then."""

    def __init__(self, thresholds: Sequence[Threshold], window: float, since: float) -> None:
        """`since` is the moment in the run from which on intervals count."""
        self._thresholds = thresholds
        self._window = window
        self._since = since
        self._intervals: deque[tuple[float, dict[str, Histogram]]] = deque()
        self.settled = asyncio.Event()
        self.good_since = since
        """When the time began in which thresholds held, once they do."""

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


class ComingBack:
    """Plays the steps, and writes what came of each as an event `recovering`."""

    def __init__(self, plan: ClaimPlan, stages: Stages, crew: Crew, record: Record) -> None:
        self._plan = plan
        self._stages = stages
        self._crew = crew
        self._record = record
        self._settling: Settling | None = None

    def heard(self, tick: Tick) -> None:
        """Take a worker's tick."""
        if self._settling is not None:
            self._settling.heard(tick)

    async def play(self) -> None:
        """Lower the load until thresholds hold again, if the last load, or one of a search, broke them."""
        tried, why = await self._broken()
        surely = await self._surely_holds()
        broken, held = tried[-1] if tried else (0.0, None)
        if held is False:
            before = max(
                (size for size, held in tried if held and size < broken and size <= surely), default=None
            )
            await self._lower(broken, before)
        else:
            self._record.event("recovering", skipped=why)

    async def _broken(self) -> tuple[list[tuple[float, bool | None]], str]:
        """Put a load on the target that breaks it.

        Returns the loads that were tried, and whether they held, in order; and why the last one did not break it.
        """
        run = await self._run()
        if self._plan.find is None:
            tried = [(found.stage.size, self._met(found)) for found in self._examined(run)]
            size, held = tried[-1]
            if held is not None:
                return tried, "the last load held"
            again = [size] * (TRIES - 1)
        else:
            probes = probe_events(run.events)
            tried = [(as_amount(probe.size), probe.held) for probe in probes]
            broken = sorted({size for size, held in tried if held is False})
            if not broken:
                return [], "no load broke"
            aborted = min((probe.size for probe in probes if probe.aborted), default=inf)
            broken = [size for size in broken if size < aborted]
            if not broken:
                return [], "the load that broke was aborted, and is not put on the target again"
            await self._crew.ask(Paused, lambda _: Pause())
            await self._crew.prepare([self._plan.stage_at(broken[0])], fresh=True)
            again = [size for size in broken[:MOST_BROKEN] for _ in range(TRIES)]
        why, held_at = "", 0.0
        for size in again:
            if size == held_at:
                continue
            asked = self._plan.stage_at(size)
            await self._stages.play("recover", size, asked, listed=None)
            found = self._examined(await self._run())[-1]
            tried.append((size, held := self._met(found)))
            if held is False:
                break
            why = f"the generator itself was the limit: {says_nothing(found)}"
            if held:
                why, held_at = "no load that broke in the search broke again", size
        return tried, why

    async def _surely_holds(self) -> float:
        """Return the load up to which a load that held counts: below the interval of a search's answer.

        Within the interval, a load that held once may break the next time, and nothing stays broken.
        """
        found = [event for event in (await self._run()).events if event["event"] == "found"]
        low = found[-1].get("low") if found else None
        return low if low is not None else inf

    async def _lower(self, broken: float, before: float | None) -> None:
        last = self._plan.find or self._plan.stages[-1]
        begun = self._record.now()
        for size in lower_loads(broken, before, whole=self._plan.load == "leases"):
            for _ in range(TRIES):
                self._settling = Settling(
                    self._plan.thresholds, min(WINDOW, last.hold / 2), self._record.now()
                )
                since = self._record.now()
                until = self._settling.settled if size else None
                asked = self._plan.stage_at(size)
                number = await self._stages.play("recover", size, asked, listed=None, until=until)
                held = self._settling.settled.is_set() if size else None
                self._record.event(
                    "recovering",
                    stage=number,
                    size=size,
                    held=held,
                    after=round(self._settling.good_since - begun, 3) if held else None,
                    seconds=round(self._record.now() - since, 3),
                    broken=broken,
                    before=before,
                )
                if held:
                    return
                if held is None or not says_nothing(self._examined(await self._run())[-1]):
                    break

    async def _run(self) -> RunData:
        return await asyncio.to_thread(load_run, self._record.directory)

    def _examined(self, run: RunData) -> list[StageFindings]:
        """Return the findings on the stages so far, in order, without storms; the last one may still be running."""
        return [examine_stage(run, self._plan, stage) for stage in run.stages if stage.kind != "storm"]

    def _met(self, found: StageFindings) -> bool | None:
        """Return whether a stage met all thresholds and was held; None if it says nothing of the target."""
        checks = stage_checks(found.stage, self._plan.thresholds)
        if found.gave_way or any(check.met is False for check in checks):
            return None if says_nothing(found) else False
        return None if found.load_missing else True
