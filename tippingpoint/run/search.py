"""Plays a search: puts the loads on the target that the searcher asks for, and tells it how each went.

The load goes from one probe to the next without a pause, unless the searcher asks to begin from nothing. A hold ends
early when the answer is clear, and a whole probe when a threshold with `abort` is missed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite

from tippingpoint.analysis.judged_probe import JudgedProbe, judge_probe
from tippingpoint.analysis.search.early_end import EarlyEnds, Tally
from tippingpoint.analysis.search.probes import Margin, Probe
from tippingpoint.analysis.search.rebuilt import aim_of, steering
from tippingpoint.analysis.search.searcher import Ask, Searcher
from tippingpoint.analysis.search.stage_margins import judged, margin_names, stage_margins, tallies
from tippingpoint.plan.find import Find
from tippingpoint.plan.read import AnyStage, SearchPlan
from tippingpoint.run.asked_figures import in_ramp
from tippingpoint.run.crew import Crew
from tippingpoint.run.early_warning import EarlyWarning
from tippingpoint.run.hold_so_far import HoldSoFar
from tippingpoint.run.interruption import EndedEarly
from tippingpoint.run.messages import Settle, Settled, Tick
from tippingpoint.run.probe_loads import ProbeLoads, each_from_nothing, round_of
from tippingpoint.run.record import Record
from tippingpoint.run.room import Room
from tippingpoint.run.run_figures import RunFigures
from tippingpoint.run.stages import Stages
from tippingpoint.rundir.probe_events import ProbeEvent
from tippingpoint.rundir.results import GrowingRun
from tippingpoint.util import timing

_LOOK_EVERY = 1.0
"""Seconds between two looks at a hold: workers tell once a second what they measured."""

Put = Callable[[Ask, float], Awaitable[Probe]]
"""Tries a load, from that moment of the search on."""


async def find_limit(searcher: Searcher, put: Put, elapsed: Callable[[], float]) -> None:
    """Try the loads that the searcher asks for, until it asks for no more; `elapsed` is the search's clock."""
    while (ask := searcher.ask(now := elapsed())) is not None:
        searcher.tell(await put(ask, now))


class Search:
    """A run's search. Its probes are stages, and the events `probe` and `found` are its result."""

    def __init__(
        self,
        plan: SearchPlan,
        find: Find,
        stages: Stages,
        crew: Crew,
        room: Room,
        record: Record,
        gone: Callable[[], Awaitable[str]],
        resumed: Sequence[ProbeEvent] = (),
        figures: RunFigures | None = None,
    ) -> None:
        """`gone` tells why the target cannot be reached any more, or an empty text. `figures` are those of Prometheus
        that thresholds are about.

        `resumed` are the probes of the run that this one resumes.
        """
        self._plan = plan
        self._find = find
        self._stages = stages
        self._crew = crew
        self._record = record
        self._gone = gone
        self._resumed = resumed
        self._figures = figures
        self._searcher = Searcher(aim_of(find))
        self._early = EarlyEnds(find.hold)
        self._began = 0.0
        self._loads = ProbeLoads(plan, stages, crew, room)
        self._so_far: HoldSoFar | None = None
        self._run = GrowingRun(record.inside)
        self._warning = EarlyWarning(())

    def heard(self, tick: Tick) -> None:
        """Take a worker's tick."""
        if self._so_far is not None:
            self._so_far.add(tick)
            self._warning.heard(tick, self._so_far.held)

    async def play(self) -> None:
        """Search, and write the answer as an event."""
        for event in self._resumed:
            self._tell(event)
        spent = max((event.began + event.seconds for event in self._resumed), default=0.0)
        self._began = self._record.now() - spent
        await find_limit(self._searcher, self._put, lambda: self._elapsed)
        answer = self._searcher.answer
        self._record.event(
            "found",
            ended=answer.ended,
            limit=answer.limit,
            low=answer.low,
            high=answer.high if isfinite(answer.high) else None,
        )

    def _tell(self, event: ProbeEvent) -> None:
        self._record.event("probe", **event.model_copy(update={"stage": None}).model_dump())
        self._searcher.tell(steering(self._plan, event))

    async def _put(self, ask: Ask, began: float) -> Probe:
        fresh = ask.fresh or self._loads.is_empty or each_from_nothing(self._plan)
        asked = self._plan.stage_at(ask.load)
        size = self._plan.load_at(ask.load)
        number = self._stages.following
        if refused := await self._loads.prepare(asked, number, fresh=fresh):
            raise EndedEarly("cut", refused)
        begin = self._record.now()
        self._warning = warning = EarlyWarning(self._plan.thresholds, begin)
        self._so_far = so_far = HoldSoFar(number, size, "find", begin)
        with self._watching(begin, warning):
            await self._loads.bring_up(number, size, size, asked, until=warning.missed)
            if not warning.missed.is_set():
                await self._hold(so_far, ask, asked)
        aborted = warning.why
        ended = self._record.now()
        if aborted:
            await self._loads.stop()
        if self._figures is not None:
            await self._figures.measure(self._record, number, so_far.since(ramp=in_ramp(self._plan)), ended)
        judged_as = await self._judged(number, so_far)
        if aborted:
            judged_as = replace(judged_as, held=False, broken=(f"aborted: {aborted}",))
        problem = await self._why_silent() if judged_as.silent else ""
        event = judged_as.event(
            self._plan,
            number,
            size,
            fresh=fresh,
            began=began,
            seconds=self._elapsed - began,
            gone=problem,
            aborted=bool(aborted),
        )
        self._record.event("probe", **event.model_dump())
        if problem:
            raise EndedEarly("cut", f"the target is gone: {problem}")
        return steering(self._plan, event)

    @contextlib.contextmanager
    def _watching(self, since: float, warning: EarlyWarning) -> Generator[None]:
        """Watch figures with `abort` meanwhile, from a moment of the run on."""
        if self._figures is None:
            yield
            return
        watch = asyncio.create_task(self._figures.watch(self._record, lambda: since, warning.alarm))
        try:
            yield
        finally:
            watch.cancel()

    async def _why_silent(self) -> str:
        """Take the load away, and return why the target is gone; empty if it was only too much for it."""
        await self._loads.stop()
        return await self._gone()

    async def _hold(self, so_far: HoldSoFar, ask: Ask, asked: AnyStage) -> None:
        """Hold the load until the answer is clear, at most as long as was asked for.

        In each round of renewals every lease is renewed once, so that a part of one does not stand for the load.
        """
        longest = min(ask.hold, asked.hold)
        so_far.begin_hold(self._record.now())
        self._stages.begin_hold(longest)
        ends = timing.monotonic() + longest
        while (left := ends - timing.monotonic()) > 0:
            await self._crew.wait_for(self._warning.missed, min(left, _LOOK_EVERY))
            if left <= _LOOK_EVERY or self._warning.missed.is_set():
                break
            if self._figures is not None:
                since = so_far.since(ramp=in_ramp(self._plan))
                so_far.figures = self._figures.so_far(self._record, so_far.number, since)
            margins, counted = await asyncio.to_thread(self._shown, so_far)
            whole_round = so_far.held_for >= round_of(self._plan, asked)
            clear = self._early.clear(ask.load, margins, counted, so_far.held_for, longest)
            if whole_round and clear is not None:
                break
        await self._stages.end_hold_in_order()
        margins, counted = await asyncio.to_thread(self._shown, so_far)
        self._early.remember(ask.load, margins, counted, so_far.held_for)

    def _shown(self, so_far: HoldSoFar) -> tuple[list[Margin], list[Tally]]:
        """Return what a hold shows so far. May be called on another thread than the one that ticks come from."""
        so_far.read()
        stage = judged(so_far.stage, plan=self._plan)
        found = stage_margins(stage, self._plan.thresholds, seconds=so_far.parts)
        # A load does not hold before its figures are known.
        known = {margin.name for margin in found}
        figures = margin_names([threshold for threshold in self._plan.thresholds if threshold.figure])
        unknown = [Margin(name, 0.0, inf) for name in figures if name not in known]
        return found + unknown, tallies(stage, self._plan.thresholds, so_far.parts)

    async def _judged(self, number: int, so_far: HoldSoFar) -> JudgedProbe:
        """Close the stage's figures, and judge it; the load goes on."""
        unanswered: dict[str, list[float]] = {}
        for answer in await self._crew.ask(Settled, lambda _: Settle()):
            for operation, ages in answer.unanswered.items():
                unanswered.setdefault(operation, []).extend(ages)
        self._so_far = None
        if self._crew.unwritten:
            raise EndedEarly("cut", "no disk space left for the journal, which the search needs")
        return await asyncio.to_thread(self._judge, number, so_far, unanswered)

    def _judge(
        self, number: int, so_far: HoldSoFar, unanswered: Mapping[str, Sequence[float]]
    ) -> JudgedProbe:
        so_far.read()
        return judge_probe(
            self._run.load(),
            self._plan,
            number,
            self._plan.thresholds,
            self._find.also,
            unanswered=unanswered,
            parts=so_far.parts,
        )

    @property
    def _elapsed(self) -> float:
        return self._record.now() - self._began
