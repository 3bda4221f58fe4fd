"""Queries a Prometheus for the figures of a plan's thresholds.

All times are Unix seconds: our clock at the run's start, advanced by the monotonic clock.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping

from tippingpoint.analysis.search.stage_margins import ramped
from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.monitoring.prometheus import Prometheus
from tippingpoint.monitoring.stage_figures import (
    LOOK_BACK,
    Measured,
    Scrapes,
    StageFigures,
    check_hosts,
    wanted_figures,
)
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.figures import figures_of
from tippingpoint.plan.read import Plan
from tippingpoint.rundir.figure_values import FigureValue
from tippingpoint.util import timing
from tippingpoint.util.durations import format_duration
from tippingpoint.util.numbers import show_quantity

LOOK_EVERY = 1.0
"""Seconds between two queries of figures with `abort`."""
IN_A_ROW = 4
"""The number of consecutive scrapes that have to miss a threshold with `abort`."""
MEASURED_WITHIN = 10.0
"""Seconds that an ended stage waits for its figures."""
_AGAIN_AFTER = 1.0
"""Seconds after which a Prometheus that did not answer is asked again."""


class AskedFigures:
    """The figures of one plan, as Prometheus has them."""

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
        """Seconds by which Prometheus' clock is ahead of ours."""
        self._began = timing.wall() - timing.monotonic()

    async def open(self) -> None:
        """Ask Prometheus whether it has the requested figures.

        Raises TargetError if it does not answer, and UserError for a host that it does not scrape, or for a hold that
        is too short for its scrapes.
        """
        scrapes = await self.reach()
        for place, threshold in figures_of(self._plan):
            check_hosts(place, threshold, scrapes)
        self._check_holds()

    async def reach(self) -> Scrapes:
        """Learn how far Prometheus' clock is ahead, and which hosts it has scraped recently; returns these scrapes.

        Raises TargetError if it does not answer.
        """
        try:
            before = self._now()
            told = await self._prometheus.query("time()")
            self._ahead = float(told[0].values[-1]) - (before + self._now()) / 2 if told else 0.0
            now = self._now() + self._ahead
            for figures in (self._figures, self._watched):
                await figures.measure(now - LOOK_BACK, now)
            scrapes = await self._figures.scrapes(now - LOOK_BACK, now)
        except OperationFailed as problem:
            raise TargetError(
                self._prometheus.where, str(problem), "a Prometheus that answers within reach"
            ) from None
        intervals = [self._watched.interval(one) for one in self._watched.wanted]
        self._interval = max((each for each in intervals if each is not None), default=self._interval)
        return scrapes

    def _now(self) -> float:
        return self._began + timing.monotonic()

    def _check_holds(self) -> None:
        plan = self._plan
        if in_ramp(plan):
            return
        find = plan.find
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

    async def span(self, begin: float, end: float) -> dict[str, Measured]:
        """Measure a span of time. Raises OperationFailed or TargetError if Prometheus does not answer."""
        return await self._figures.measure(begin + self._ahead, end + self._ahead)

    async def told(self, begin: float, end: float, within: float) -> Mapping[str, Measured]:
        """Return the measurements, or within `within` seconds why they are unknown."""
        try:
            async with asyncio.timeout(within):
                try:
                    return await self.span(begin, end)
                except (OperationFailed, TargetError):
                    await asyncio.sleep(_AGAIN_AFTER)
                    return await self.span(begin, end)
        except (OperationFailed, TargetError) as problem:
            return self.nothing(_problem(problem))
        except TimeoutError:
            return self.nothing(f"{self._prometheus.where}: has not answered within {within:.3g} s")

    def nothing(self, why: str) -> dict[str, Measured]:
        """Return that nothing was measured, and why."""
        return {one.name: Measured(None, why=why, unanswered=True) for one in self._figures.wanted}

    async def watch(
        self,
        now: Callable[[], float],
        since: Callable[[], float | None],
        missed: Callable[[str], None],
        unanswered: Callable[[str], None],
    ) -> None:
        """Watch thresholds with `abort` until one is clearly missed: by four scrapes in a row. Then call `missed`.

        Scrapes count from the moment `since` on; None while there is no load. `unanswered` is called once if Prometheus
        does not answer.
        """
        told = False
        while self._aborting:
            await asyncio.sleep(LOOK_EVERY)
            begin, end = since(), now()
            if begin is None:
                continue
            begin = max(begin, end - (IN_A_ROW + 0.5) * self._interval - 1)
            try:
                found = await self._watched.measure(begin + self._ahead, end + self._ahead)
            except (OperationFailed, TargetError) as problem:
                if not told:
                    unanswered(_problem(problem))
                told = True
                continue
            for threshold in self._aborting:
                measured = found[threshold.subject]
                allowed, unit = threshold.quantity
                if measured.lowest is None or measured.lowest <= allowed or measured.scrapes < IN_A_ROW:
                    continue
                observed, limit = (show_quantity(each, unit) for each in (measured.value or 0.0, allowed))
                missed(f"{threshold.subject} was {observed} (threshold {limit}, abort)")
                return


def in_ramp(plan: Plan) -> bool:
    """Return whether a plan's load is already on the target while it is brought up, so that no hold is needed."""
    return isinstance(plan, CtsPlan) or ramped(plan) is None


def as_value(number: int, name: str, measured: Measured) -> FigureValue:
    """Return the measurement of a figure in the stage of this number, in the form that a run keeps."""
    return FigureValue(
        stage=number,
        name=name,
        value=None if measured.value is None else float(f"{measured.value:.6g}"),
        host=measured.host,
        error=None if measured.error is None else round(measured.error, 4),
        why=measured.why,
    )


def _problem(problem: OperationFailed | TargetError) -> str:
    return f"{problem.where}: {problem.problem}" if isinstance(problem, TargetError) else str(problem)
