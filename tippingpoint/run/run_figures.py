"""The figures of Prometheus that thresholds of a run are about: measured in each stage, and kept as events of the run.

Each stage is measured when it ends. A search waits for that; a listed stage is measured while the next one is played.
What could not be had then is asked for once more at the end of the run, because Prometheus keeps what it scraped. If it
is away, the figure is not known, and the run goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Mapping

from tippingpoint.analysis.search.stage_margins import ramped
from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.monitoring.stage_figures import (
    LOOK_BACK,
    Measured,
    StageFigures,
    check_hosts,
    wanted_figures,
)
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.figures import figures_of
from tippingpoint.plan.read import Plan
from tippingpoint.run.record import Record
from tippingpoint.rundir.figure_values import EVENT, FigureValue
from tippingpoint.rundir.results import load_run
from tippingpoint.util.durations import format_duration
from tippingpoint.util.quantities import show_quantity

LOOK_EVERY = 1.0
"""Seconds between two looks at figures with `abort`."""
IN_A_ROW = 4
"""The number of scrapes in a row that have to miss a threshold with `abort`."""
MEASURED_WITHIN = 10.0
"""Seconds that a stage that has ended waits for its figures."""
ALL_WITHIN = 60.0
"""Seconds that the end of a run waits for the figures of all listed stages."""
_AGAIN_AFTER = 1.0
"""Seconds after which a Prometheus that did not answer is asked once more."""


class RunFigures:
    """Measures the figures of one run."""

    def __init__(self, plan: Plan, prometheus: Prometheus, selector: str = "") -> None:
        """`selector` are label matchers, without braces, for the target's series.

        Raises UserError for a figure that the target does not have.
        """
        self._plan = plan
        self._prometheus = prometheus
        by_name = {one.name: one for one in wanted_figures(plan.target.kind, figures_of(plan))}
        self._figures = StageFigures(prometheus, list(by_name.values()), selector)
        self._aborting = [threshold for threshold in plan.thresholds if threshold.figure and threshold.abort]
        names = {threshold.subject for threshold in self._aborting}
        self._watched = StageFigures(
            prometheus, [one for one in by_name.values() if one.name in names], selector
        )
        self._interval = 1.0
        """Seconds between scrapes of the slowest host of a figure with `abort`."""
        self._ahead = 0.0
        """Seconds that Prometheus' clock is ahead of ours."""
        self._meanwhile: list[asyncio.Task[None]] = []
        """Measurements of listed stages that have ended, done or under way."""
        self._look: asyncio.Task[dict[str, Measured]] | None = None
        self._looked_at = 0
        self._latest: dict[str, Measured] = {}

    async def open(self) -> None:
        """Ask Prometheus whether it can tell what is wanted.

        Raises TargetError if it does not answer, and UserError for a host that it does not scrape, or for a hold that
        is too short for its scrapes.
        """
        try:
            before = time.time()
            told = await self._prometheus.query("time()")
            self._ahead = float(told[0].values[-1]) - (before + time.time()) / 2 if told else 0.0
            now = time.time() + self._ahead
            for figures in (self._figures, self._watched):
                await figures.measure(now - LOOK_BACK, now)
            scrapes = await self._figures.scrapes(now - LOOK_BACK, now)
        except OperationFailed as problem:
            raise TargetError(
                self._prometheus.where, str(problem), "a Prometheus that answers within reach"
            ) from None
        for place, threshold in figures_of(self._plan):
            check_hosts(place, threshold, scrapes)
        self._check_holds()
        intervals = [self._watched.interval(one) for one in self._watched.wanted]
        self._interval = max((each for each in intervals if each is not None), default=self._interval)

    def _check_holds(self) -> None:
        plan = self._plan
        if in_ramp(plan):
            return
        find = None if isinstance(plan, CtsPlan) else plan.find
        holds = {f"stages.{number}.hold": stage.hold for number, stage in enumerate(plan.stages)}
        for field, hold in ({"find.hold": find.hold} if find is not None else holds).items():
            for one in self._figures.wanted:
                interval = self._figures.interval(one)
                scrapes = 2 if one.is_rate else 1
                if interval is not None and hold < scrapes * interval:
                    least = format_duration(float(math.ceil(scrapes * interval)))
                    needs = "two scrapes" if one.is_rate else "a scrape"
                    raise UserError(
                        field,
                        format_duration(hold),
                        f"at least {least}: {one.name} needs {needs} in it, which are {interval:.3g} s apart",
                    )

    def so_far(self, record: Record, number: int, begin: float) -> dict[str, FigureValue]:
        """Return what is known by now of the stage that began at a moment of the run, and ask anew meanwhile."""
        if self._looked_at != number:
            self._forget()
            self._looked_at = number
        if self._look is not None and self._look.done():
            with contextlib.suppress(OperationFailed, TargetError):
                self._latest = self._look.result()
            self._look = None
        if self._look is None:
            self._look = asyncio.create_task(self._span(record, begin, record.now()))
        return {name: _value(number, name, found) for name, found in self._latest.items()}

    async def measure(self, record: Record, number: int, begin: float, end: float) -> None:
        """Measure a stage that has ended, from one moment of the run to another, and write the figures as events."""
        self._forget()
        found = await self._told(record, begin, end, MEASURED_WITHIN)
        self._write(record, number, found)

    def measure_meanwhile(
        self, record: Record, number: int, began: float, hold_began: float, end: float
    ) -> None:
        """Begin to measure a listed stage that has ended; the others are moments of the run."""
        begin = began if in_ramp(self._plan) else hold_began

        async def measured() -> None:
            with contextlib.suppress(OperationFailed, TargetError, TimeoutError):
                async with asyncio.timeout(MEASURED_WITHIN):
                    found = await self._span(record, begin, end)
                self._write(record, number, found)

        self._meanwhile.append(asyncio.create_task(measured()))

    async def complete(self, record: Record) -> None:
        """Measure all stages of a run that has ended, but for those that have been measured."""
        deadline = time.monotonic() + ALL_WITHIN
        self._forget()
        await asyncio.gather(*self._meanwhile)
        gone = ""
        run = await asyncio.to_thread(load_run, record.directory)
        for stage in run.stages:
            if stage.kind in ("destroy", "recover") or stage.figures:
                continue
            begin = stage.begin if in_ramp(self._plan) else stage.hold_begin
            if begin is None:
                self._write(record, stage.number, self._nothing("its load was never held"))
                continue
            end = record.now() if stage.end is None else stage.end
            left = deadline - time.monotonic()
            if left <= 0 and not gone:
                gone = f"the {ALL_WITHIN:.0f} s for the figures of all stages were over"
            found = self._nothing(gone) if gone else await self._told(record, begin, end, left)
            if not gone and all(measured.unanswered for measured in found.values()):
                gone = next(iter(found.values())).why
            self._write(record, stage.number, found)

    async def watch(
        self, record: Record, since: Callable[[], float | None], missed: Callable[[str], None]
    ) -> None:
        """Watch thresholds with `abort` until one is clearly missed: by four scrapes in a row. Then call `missed`.

        `since` is the moment of the run from which on scrapes count; None while there is no load.
        """
        unanswered = False
        while self._aborting:
            await asyncio.sleep(LOOK_EVERY)
            begin, end = since(), record.now()
            if begin is None:
                continue
            begin = max(begin, end - (IN_A_ROW + 0.5) * self._interval - 1)
            try:
                found = await self._watched.measure(
                    *(record.started_wall + self._ahead + moment for moment in (begin, end))
                )
            except (OperationFailed, TargetError) as problem:
                if not unanswered:
                    record.note(f"figures with abort were not watched all the time: {_problem(problem)}")
                unanswered = True
                continue
            for threshold in self._aborting:
                measured = found[threshold.subject]
                allowed, unit = threshold.quantity
                if measured.lowest is None or measured.lowest <= allowed or measured.scrapes < IN_A_ROW:
                    continue
                observed, limit = (show_quantity(each, unit) for each in (measured.value or 0.0, allowed))
                missed(f"{threshold.subject} was {observed} (limit {limit}, abort)")
                return

    def _forget(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look.add_done_callback(_ignore)
        self._look, self._latest, self._looked_at = None, {}, 0

    async def _span(self, record: Record, begin: float, end: float) -> dict[str, Measured]:
        offset = record.started_wall + self._ahead
        return await self._figures.measure(offset + begin, offset + end)

    async def _told(self, record: Record, begin: float, end: float, within: float) -> Mapping[str, Measured]:
        """Return what was measured, or why that is not known."""
        try:
            async with asyncio.timeout(within):
                try:
                    return await self._span(record, begin, end)
                except (OperationFailed, TargetError):
                    await asyncio.sleep(_AGAIN_AFTER)
                    return await self._span(record, begin, end)
        except (OperationFailed, TargetError) as problem:
            return self._nothing(_problem(problem))
        except TimeoutError:
            return self._nothing(f"{self._prometheus.where}: has not answered within {within:.3g} s")

    def _nothing(self, why: str) -> dict[str, Measured]:
        return {one.name: Measured(None, why=why, unanswered=True) for one in self._figures.wanted}

    def _write(self, record: Record, number: int, found: Mapping[str, Measured]) -> None:
        for name, measured in found.items():
            record.event(EVENT, **_value(number, name, measured).model_dump())


def _value(number: int, name: str, measured: Measured) -> FigureValue:
    return FigureValue(
        stage=number,
        name=name,
        value=None if measured.value is None else float(f"{measured.value:.6g}"),
        host=measured.host,
        error=None if measured.error is None else round(measured.error, 4),
        why=measured.why,
    )


def in_ramp(plan: Plan) -> bool:
    """Tell whether a plan's load is on the target while it is brought up, and a hold is not needed."""
    return isinstance(plan, CtsPlan) or ramped(plan) is None


def _problem(problem: OperationFailed | TargetError) -> str:
    return f"{problem.where}: {problem.problem}" if isinstance(problem, TargetError) else str(problem)


def _ignore(task: asyncio.Task[dict[str, Measured]]) -> None:
    """Take the outcome of a task that nobody waits for."""
    if not task.cancelled():
        task.exception()
