"""The Prometheus figures of a run's thresholds: measured in each stage, and kept as events of the run.

Each stage is measured when it ends. A search waits for that; a listed stage is measured while the next one is played.
Figures that could not be measured then are requested once more at the end of the run, because Prometheus keeps what it
scraped. If Prometheus is away, the figure is unknown, and the run goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.monitoring.stage_figures import Measured
from tippingpoint.plan.read import Plan
from tippingpoint.play.asked_figures import MEASURED_WITHIN, AskedFigures, as_value, in_ramp
from tippingpoint.play.record import Record
from tippingpoint.rundir.figure_values import EVENT, FigureValue
from tippingpoint.rundir.results import load_run
from tippingpoint.util import timing

ALL_WITHIN = 60.0
"""Seconds that the end of a run waits for the figures of all listed stages."""


class RunFigures:
    """Measures the figures of one run."""

    def __init__(self, plan: Plan, prometheus: Prometheus, selector: str = "") -> None:
        """`selector` are label matchers, without braces, for the target's series.

        Raises UserError for a figure that the target does not have.
        """
        self._plan = plan
        self._asked = AskedFigures(plan, prometheus, selector)
        self._meanwhile: list[asyncio.Task[None]] = []
        """Measurements of listed stages that have ended, done or under way."""
        self._look: asyncio.Task[dict[str, Measured]] | None = None
        self._looked_at = 0
        self._latest: dict[str, Measured] = {}

    async def open(self) -> None:
        """Ask Prometheus whether it has the requested figures; raises what AskedFigures.open raises."""
        await self._asked.open()

    def since(self, began: float, hold_began: float | None) -> float:
        """Return the moment of the run from which a stage is measured: when its hold begins, or when the stage begins
        if it has no hold or is measured while its load is brought up."""
        return began if hold_began is None or in_ramp(self._plan) else hold_began

    def so_far(
        self, record: Record, number: int, began: float, hold_began: float | None
    ) -> dict[str, FigureValue]:
        """Return the latest figures of a stage in progress, and start the next query."""
        begin = self.since(began, hold_began)
        if self._looked_at != number:
            self._forget()
            self._looked_at = number
        if self._look is not None and self._look.done():
            with contextlib.suppress(OperationFailed, TargetError):
                self._latest = self._look.result()
            self._look = None
        if self._look is None:
            self._look = asyncio.create_task(self._span(record, begin, record.now()))
        return {name: as_value(number, name, found) for name, found in self._latest.items()}

    async def measure(
        self, record: Record, number: int, began: float, hold_began: float | None, end: float
    ) -> None:
        """Measure a stage that has ended, and write the figures as events; all times are moments of the run."""
        self._forget()
        begin = self.since(began, hold_began)
        found = await self._told(record, begin, end, MEASURED_WITHIN)
        self._write(record, number, found)

    def measure_meanwhile(
        self, record: Record, number: int, began: float, hold_began: float | None, end: float
    ) -> None:
        """Begin to measure a listed stage that has ended; all times are moments of the run."""
        begin = self.since(began, hold_began)

        async def measured() -> None:
            with contextlib.suppress(OperationFailed, TargetError, TimeoutError):
                async with asyncio.timeout(MEASURED_WITHIN):
                    found = await self._span(record, begin, end)
                self._write(record, number, found)

        self._meanwhile.append(asyncio.create_task(measured()))

    async def complete(self, record: Record) -> None:
        """Measure all stages of a run that has ended, except those already measured."""
        deadline = timing.monotonic() + ALL_WITHIN
        self._forget()
        await asyncio.gather(*self._meanwhile)
        gone = ""
        run = await asyncio.to_thread(load_run, record.inside)
        for stage in run.stages:
            if stage.kind in ("destroy", "recover") or stage.figures:
                continue
            begin = stage.begin if in_ramp(self._plan) else stage.hold_begin
            if begin is None:
                self._write(record, stage.number, self._asked.nothing("its load was never held"))
                continue
            end = record.now() if stage.end is None else stage.end
            left = deadline - timing.monotonic()
            if left <= 0 and not gone:
                gone = f"the {ALL_WITHIN:.0f} s for the figures of all stages were over"
            found = self._asked.nothing(gone) if gone else await self._told(record, begin, end, left)
            if not gone and all(measured.unanswered for measured in found.values()):
                gone = next(iter(found.values())).why
            self._write(record, stage.number, found)

    async def watch(
        self, record: Record, since: Callable[[], float | None], missed: Callable[[str], None]
    ) -> None:
        """Watch thresholds with `abort` until one is clearly missed: by four scrapes in a row. Then call `missed`.

        Scrapes count from the moment `since` of the run on; None while there is no load.
        """

        def begin() -> float | None:
            moment = since()
            return None if moment is None else record.started_wall + moment

        await self._asked.watch(
            lambda: record.started_wall + record.now(),
            begin,
            missed,
            lambda why: record.note(f"figures with abort were not watched all the time: {why}"),
        )

    def _forget(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look.add_done_callback(_ignore)
        self._look, self._latest, self._looked_at = None, {}, 0

    async def _span(self, record: Record, begin: float, end: float) -> dict[str, Measured]:
        return await self._asked.span(record.started_wall + begin, record.started_wall + end)

    async def _told(self, record: Record, begin: float, end: float, within: float) -> Mapping[str, Measured]:
        return await self._asked.told(record.started_wall + begin, record.started_wall + end, within)

    def _write(self, record: Record, number: int, found: Mapping[str, Measured]) -> None:
        for name, measured in found.items():
            record.event(EVENT, **as_value(number, name, measured).model_dump())


def _ignore(task: asyncio.Task[dict[str, Measured]]) -> None:
    """Collect the result of a background task."""
    if not task.cancelled():
        task.exception()
