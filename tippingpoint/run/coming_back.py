"""Lowers the load in steps after it was too much, until the target meets its thresholds again.

A target may stay broken at a load that it held before, although what broke it is gone: a metastable failure
(N. Bronson et al., Metastable Failures in Distributed Systems, HotOS 2021). The steps show which of both it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from tippingpoint.analysis.findings import StageFindings, examine_stage
from tippingpoint.analysis.verdict import stage_checks
from tippingpoint.plan.base import Threshold
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.fields import as_amount
from tippingpoint.run.crew import Crew
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
        self._intervals.append((tick.t, _read(tick.lines)))
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
        run = await self._run()
        if self._plan.find is None:
            tried = self._judged(run)
            broken, held, strained = tried[-1]
        else:
            tried = [(as_amount(probe.size), probe.held, "") for probe in probe_events(run.events)]
            broken = min((size for size, held, _ in tried if held is False), default=0)
            held, strained = await self._break_again(broken) if broken else (True, "")
        if held is False:
            before = max((size for size, held, _ in tried if held and size < broken), default=None)
            await self._lower(broken, before)
        else:
            why = f"the generator itself was strained: {strained}" if strained else "the last load held"
            self._record.event("recovering", skipped=why)

    async def _break_again(self, size: float) -> tuple[bool | None, str]:
        """Put the load that broke the target on it once more, as a search ends with any load.

        Returns whether it held this time, and what strained the generator.
        """
        await self._crew.ask(Paused, lambda _: Pause())
        asked = self._plan.stage_at(size)
        await self._crew.prepare([asked], fresh=True)
        await self._stages.play("recover", size, asked, listed=None)
        _, held, strained = self._judged(await self._run())[-1]
        return held, strained

    async def _lower(self, broken: float, before: float | None) -> None:
        last = self._plan.find or self._plan.stages[-1]
        begun = self._record.now()
        for size in lower_loads(broken, before, whole=self._plan.load == "leases"):
            self._settling = Settling(self._plan.thresholds, min(WINDOW, last.hold / 2), self._record.now())
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

    async def _run(self) -> RunData:
        return await asyncio.to_thread(load_run, self._record.directory)

    def _judged(self, run: RunData) -> list[tuple[float, bool | None, str]]:
        """Return the loads so far, in order: whether each met all thresholds, or what strained the generator."""
        return [
            (found.stage.size, self._met(found), found.strained or "")
            for stage in run.stages
            if (found := examine_stage(run, self._plan, stage)).stage.kind != "storm"
        ]

    def _met(self, found: StageFindings) -> bool | None:
        if found.strained:
            return None
        checks = stage_checks(found.stage, self._plan.thresholds)
        return not found.gave_way and all(check.met is not False for check in checks)


def _read(lines: str) -> dict[str, Histogram]:
    """Read the lines of a journal's interval."""
    found: dict[str, Histogram] = {}
    for line in lines.splitlines():
        name, _, _, _, payload = line.split(",")
        found[name.removeprefix("Tag=")] = Histogram.decode(payload)
    return found
