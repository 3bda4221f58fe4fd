"""Lowers the load in steps after it was too much, until the target meets its thresholds again.

A target may stay broken at a load that it held before, although what broke it is gone: a metastable failure
(N. Bronson et al., Metastable Failures in Distributed Systems, HotOS 2021). The steps show which of both it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from tippingpoint.analysis.findings import StageFindings, examine_stage
from tippingpoint.analysis.recovery.comeback import says_nothing
from tippingpoint.analysis.search.stage_margins import judged
from tippingpoint.analysis.verdict import stage_checks
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.fields import as_amount
from tippingpoint.plan.read import SearchPlan
from tippingpoint.run.lower_loads import LowerLoads
from tippingpoint.run.messages import Tick
from tippingpoint.run.probe_loads import each_from_nothing
from tippingpoint.run.record import Record
from tippingpoint.run.settling import Settling
from tippingpoint.rundir.probe_events import probe_events
from tippingpoint.rundir.results import RunData, load_run

SHARES = (0.9, 0.75, 0.5, 0.25)
"""The lower loads, as shares of the one that broke. The largest load that held before is one more."""
WINDOW = 5.0
"""Seconds for which thresholds have to hold, or half of a step that is shorter than twice that."""
LOOKS = 3
"""They have to hold for this many observations, too, in a workload that observes."""
TRIES = 3
"""How often a load is tried that says nothing of the target, as the generator was late. On a busy machine it is late in
bursts. A failure that keeps itself up is still there at the next try."""
MOST_BROKEN = 3
"""How many of the loads that broke in a search are tried. At a soft edge, the smallest often holds the next time."""


def lower_loads(broken: float, held: float | None, possible: Callable[[float], float] = round) -> list[float]:
    """Return the loads of the steps, in order; the last ones are none at all, and what held before once more.

    `possible` returns the load that is nearest to one and can be put on the target.
    """
    before = [held] if held is not None else []
    lower = {*(possible(share * broken) for share in SHARES), *before}
    return [*sorted((size for size in lower if 0 < size < broken), reverse=True), 0, *before]


@dataclass(frozen=True)
class _Step:
    stage: int | None
    began: float
    held: bool | None = None
    """Whether thresholds held again; None without a load."""
    good_since: float = inf
    """The moment from which on they held, if they did."""
    why: str = ""
    """Why the load was never there; empty if it was."""


class ComingBack:
    """Plays the steps, and writes what came of each as an event `recovering`."""

    def __init__(self, plan: SearchPlan, loads: LowerLoads, record: Record) -> None:
        self._plan = plan
        self._loads = loads
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
            tried = [
                (found.stage.size, self._met(found))
                for found in self._examined(run)
                if found.stage.kind != "destroy"
            ]
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
            await self._loads.from_nothing(broken[0])
            again = [size for size in broken[:MOST_BROKEN] for _ in range(TRIES)]
        why, held_at = "", 0.0
        for place, size in enumerate(again):
            if size == held_at:
                continue
            if place and self._plan.find is not None and each_from_nothing(self._plan):
                await self._loads.from_nothing(size)
            if refused := (await self._loads.play(size)).why:
                return (tried if self._plan.find is None else []), refused
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
        begun = self._record.now()
        for size in lower_loads(broken, before, self._loads.possible):
            for _ in range(TRIES):
                step = await self._step(size)
                self._record.event(
                    "recovering",
                    stage=step.stage,
                    size=size,
                    held=step.held,
                    after=round(step.good_since - begun, 3) if step.held else None,
                    seconds=round(self._record.now() - step.began, 3),
                    broken=broken,
                    before=before,
                    **({"why": step.why} if step.why else {}),
                )
                if step.held or step.why:
                    return
                if not size or not says_nothing(self._examined(await self._run())[-1]):
                    break

    async def _step(self, size: float) -> _Step:
        """Put a lower load on the target, and see whether thresholds hold again."""
        began = self._record.now()
        if self._loads.judged_whole:
            if not size:
                await self._loads.none_for(max(WINDOW, self._hold))
                return _Step(None, began)
            played = await self._loads.play(size)
            held = None if played.why else self._met(self._examined(await self._run())[-1]) is True
            return _Step(played.stage, began, held, began, played.why)
        self._settling = settling = Settling(self._plan.thresholds, self._window)
        played = await self._loads.play(size, settling if size else None)
        self._settling = None
        held = settling.settled.is_set() if size and not played.why else None
        return _Step(played.stage, began, held, settling.good_since, played.why)

    @property
    def _hold(self) -> float:
        return (self._plan.find or self._plan.stages[-1]).hold

    @property
    def _window(self) -> float:
        """For how many seconds thresholds have to hold."""
        window = WINDOW
        if not isinstance(self._plan, ClaimPlan):
            window = max(window, LOOKS * self._plan.workload.observe_every)
        return min(window, self._hold / 2)

    async def _run(self) -> RunData:
        return await asyncio.to_thread(load_run, self._record.directory)

    def _examined(self, run: RunData) -> list[StageFindings]:
        """Return the findings on the stages so far, in order, without storms; the last one may still be running."""
        return [examine_stage(run, self._plan, stage) for stage in run.stages if stage.kind != "storm"]

    def _met(self, found: StageFindings) -> bool | None:
        """Return whether a stage met all thresholds and was held; None if it says nothing of the target."""
        stage = found.stage
        if self._plan.find is not None:  # a load of a search is judged as its probes were
            stage = judged(replace(stage, kind="find"), plan=self._plan)
        checks = stage_checks(stage, self._plan.thresholds)
        if found.gave_way or any(check.met is False for check in checks):
            return None if says_nothing(found) else False
        return None if found.load_missing else True
