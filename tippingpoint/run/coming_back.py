"""Lowers the load in steps after it was too much, until the target meets its thresholds again.

A target may stay broken at a load that it held before, although what broke it is gone: a metastable failure
(N. Bronson et al., Metastable Failures in Distributed Systems, HotOS 2021). The steps show which of both it is.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from math import inf

from tippingpoint.analysis.findings import StageFindings, examine_stage
from tippingpoint.analysis.recovery.comeback import says_nothing
from tippingpoint.plan.fields import as_amount
from tippingpoint.plan.read import SearchPlan
from tippingpoint.run.crew import Crew
from tippingpoint.run.descent import Descent, Showed, Tried, judged_whole, showed
from tippingpoint.run.lower_loads import LowerLoads
from tippingpoint.run.messages import Tick
from tippingpoint.run.record import Record
from tippingpoint.run.settling import WINDOW, Settling, hold_of, window_of
from tippingpoint.run.stage_figures import close_figures
from tippingpoint.rundir.probe_events import probe_events
from tippingpoint.rundir.results import GrowingRun, RunData


@dataclass(frozen=True)
class _Step:
    stage: int | None
    began: float
    showed: Showed
    good_since: float = inf
    """The moment from which on thresholds held again, if they did."""


class ComingBack:
    """Plays the steps of a run on this machine, and writes what came of each as an event `recovering`."""

    def __init__(self, plan: SearchPlan, loads: LowerLoads, crew: Crew, record: Record) -> None:
        self._plan = plan
        self._loads = loads
        self._crew = crew
        self._record = record
        self._so_far = GrowingRun(record.inside)
        self._settling: Settling | None = None

    def heard(self, tick: Tick) -> None:
        """Take a worker's tick."""
        if self._settling is not None:
            self._settling.heard(tick)

    async def play(self) -> None:
        """Lower the load until thresholds hold again, if the last load, or one of a search, broke them."""
        descent = await self._descent()
        begun: float | None = None
        while (following := descent.ask()) is not None:
            if following.fresh:
                await self._loads.from_nothing(following.load)
            if not following.lowers:
                descent.tell(await self._again(following.load))
                continue
            step = await self._step(following.load)
            begun = step.began if begun is None else begun
            self._write(following.load, step, descent, begun)
            descent.tell(step.showed)
        if descent.skipped:
            self._record.event("recovering", skipped=descent.skipped)

    async def _descent(self) -> Descent:
        if self._plan.find is None:
            run = await self._closed()
            stages = [stage for stage in run.stages if stage.kind not in ("storm", "destroy")]
            found = [examine_stage(run, self._plan, stage) for stage in stages]
            return Descent(self._plan, [(each.stage.size, showed(self._plan, each).held) for each in found])
        run = await self._run()
        probes = probe_events(run.events)
        tried: list[Tried] = [(as_amount(probe.size), probe.held) for probe in probes]
        aborted = min((probe.size for probe in probes if probe.aborted), default=inf)
        answers = [event for event in run.events if event["event"] == "found"]
        low = answers[-1].get("low") if answers else None
        return Descent(self._plan, tried, aborted=aborted, surely=inf if low is None else low)

    def _write(self, size: float, step: _Step, descent: Descent, begun: float) -> None:
        held, missing = step.showed.held, step.showed.missing
        self._record.event(
            "recovering",
            stage=step.stage,
            size=size,
            held=held,
            after=round(step.good_since - begun, 3) if held else None,
            seconds=round(self._record.now() - step.began, 3),
            broken=descent.broken,
            before=descent.before,
            **({"why": missing} if missing else {}),
        )

    async def _again(self, size: float) -> Showed:
        """Put a load on the target that is to break it once more."""
        played = await self._loads.play(size)
        return Showed(None, missing=played.why) if played.why else showed(self._plan, await self._judged())

    async def _step(self, size: float) -> _Step:
        """Put a lower load on the target, and see whether thresholds hold again."""
        began = self._record.now()
        if judged_whole(self._plan):
            if not size:
                await self._loads.none_for(max(WINDOW, hold_of(self._plan)))
                return _Step(None, began, Showed(None))
            played = await self._loads.play(size)
            if played.why:
                return _Step(played.stage, began, Showed(None, missing=played.why))
            told = showed(self._plan, await self._judged())
            return _Step(played.stage, began, replace(told, held=told.held is True), began)
        self._settling = settling = Settling(self._plan.thresholds, window_of(self._plan))
        played = await self._loads.play(size, settling if size else None)
        self._settling = None
        if played.why or not size:
            return _Step(played.stage, began, Showed(None, missing=played.why))
        held = settling.settled.is_set()
        nothing = "" if held else says_nothing(self._latest(await self._run()))
        return _Step(played.stage, began, Showed(held, nothing), settling.good_since)

    async def _run(self) -> RunData:
        return await asyncio.to_thread(self._so_far.load)

    async def _closed(self) -> RunData:
        """Close the latest stage's figures, and return the run. A stage that goes on has no throughput."""
        await close_figures(self._crew)
        return await self._run()

    async def _judged(self) -> StageFindings:
        """Return the findings on the latest stage, once its figures are closed."""
        return self._latest(await self._closed())

    def _latest(self, run: RunData) -> StageFindings:
        return examine_stage(run, self._plan, run.stages[-1])
