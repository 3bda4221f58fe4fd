"""Queries Prometheus for the figures of the run that this unit leads, in parallel with everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tippingpoint.agent.prometheus import PrometheusAccess
from tippingpoint.conduct.figure_messages import FigureNews
from tippingpoint.conduct.run_state import SharedRun
from tippingpoint.errors import TargetError, UserError, describe
from tippingpoint.plan.figures import subjects_of
from tippingpoint.plan.read import Plan
from tippingpoint.rundir.figure_values import FigureValue
from tippingpoint.util import timing

if TYPE_CHECKING:  # a run without Prometheus figures needs no Prometheus client
    from tippingpoint.monitoring.stage_figures import Measured
    from tippingpoint.play.asked_figures import AskedFigures
    from tippingpoint.play.shared_figures import Due

_LOOK_EVERY = 0.5
"""Seconds between two checks for whether a turn is over."""
_NOBODY = "no Prometheus is related any more"


class FigureCollector:
    """Measures the finished turns of one run, and watches figures with `abort` meanwhile.

    Its results are sent until the SharedRun has them. The next leader queries the rest, which Prometheus keeps.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        """`wake` is called when there is news."""
        self._wake = wake
        self._run: SharedRun | None = None
        self._plan: Plan | None = None
        self._access: PrometheusAccess | None = None
        self._ahead = 0.0
        """Seconds by which our clock is ahead of the reference's."""
        self._values: dict[int, list[FigureValue]] = {}
        self._abort = self._unwatched = ""
        self._task: asyncio.Task[None] | None = None

    def tell(self, run: SharedRun | None, access: PrometheusAccess | None, ahead: float) -> None:
        """Take the latest state of the run that this unit leads; None if there is none. `ahead` is how many seconds
        our clock is ahead of the reference's."""
        asks = run is not None and not run.over and not run.searches_alone and run.asks_figures
        known = self._run
        self._run, self._ahead = (run if asks else None), ahead
        if run is None or not asks:
            self._cancel()
            return
        if known is None or known.id != run.id or access != self._access or self._task is None:
            self._cancel()
            if known is None or known.id != run.id:
                self._values, self._abort, self._unwatched = {}, "", ""
            self._plan, self._access = run.validated(), access
            self._task = asyncio.create_task(self._ask(self._plan, access))

    def news(self) -> FigureNews | None:
        """Return the known figures of the run; None if this unit queries none."""
        run = self._run
        if run is None or self._plan is None:
            return None
        known = run.figures.turns
        fresh = [value for turn, values in self._values.items() if turn not in known for value in values]
        return FigureNews(
            run=run.id,
            values=fresh,
            measuring=any(turn.turn not in self._values for turn in self._due(run, self._plan)),
            abort=self._abort,
            unwatched=self._unwatched,
        )

    async def close(self) -> None:
        """Give up."""
        task = self._task
        self._cancel()
        if task is not None:
            await asyncio.wait([task])

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _due(self, run: SharedRun, plan: Plan) -> list[Due]:
        from tippingpoint.play.shared_figures import due  # it imports numpy

        return due(run, plan, timing.wall() - self._ahead)

    async def _ask(self, plan: Plan, access: PrometheusAccess | None) -> None:
        why = _NOBODY
        try:
            if access is not None:
                await self._ask_at(plan, access)
        except UserError as refused:
            why = str(refused)
        except Exception as problem:  # a bug of ours ends no run
            why = describe(problem)
        while True:
            await self._measure(plan, None, why)
            await asyncio.sleep(_LOOK_EVERY)

    async def _ask_at(self, plan: Plan, access: PrometheusAccess) -> None:
        from tippingpoint.play.asked_figures import AskedFigures

        async with access.opened() as prometheus:
            figures = AskedFigures(plan, prometheus, access.only)
            away = "Prometheus has not been queried yet"
            watch: asyncio.Task[None] | None = None
            try:
                while True:
                    if away:
                        away = await _reached(figures)
                    if not away and watch is None:
                        watch = asyncio.create_task(self._watch(figures))
                    await self._measure(plan, figures, away)
                    await asyncio.sleep(_LOOK_EVERY)
            finally:
                if watch is not None:
                    watch.cancel()

    async def _watch(self, figures: AskedFigures) -> None:
        from tippingpoint.play.shared_figures import loaded_since

        def since() -> float | None:
            begun = None if self._run is None else loaded_since(self._run, timing.wall() - self._ahead)
            return None if begun is None else begun + self._ahead

        await figures.watch(timing.wall, since, self._missed, self._not_watched)

    def _missed(self, why: str) -> None:
        self._abort = why
        self._wake()

    def _not_watched(self, why: str) -> None:
        self._unwatched = why

    async def _measure(self, plan: Plan, figures: AskedFigures | None, away: str) -> None:
        """Measure all turns that are over. Without an answer, a listed turn is queried again later."""
        if self._run is None:
            return
        for turn in self._due(self._run, plan):
            if turn.turn in self._values:
                continue
            found: Mapping[str, Measured] | None = None
            why = away
            if turn.begin is None:
                why = "its load was never held"
            elif figures is not None and not away:
                from tippingpoint.play.asked_figures import MEASURED_WITHIN

                begin, end = turn.begin + self._ahead, turn.end + self._ahead
                found = await figures.told(begin, end, MEASURED_WITHIN)
                why = next((each.why for each in found.values() if each.unanswered), "")
            if why and not turn.last_try and turn.begin is not None:
                continue
            self._values[turn.turn] = _as_values(plan, turn.turn, found, why)
            self._wake()


async def _reached(figures: AskedFigures) -> str:
    """Return why Prometheus does not answer; empty if it does."""
    try:
        await figures.reach()
    except TargetError as problem:
        return f"{problem.where}: {problem.problem}"
    return ""


def _as_values(plan: Plan, turn: int, found: Mapping[str, Measured] | None, why: str) -> list[FigureValue]:
    if found is None:
        return [FigureValue(stage=turn, name=name, value=None, why=why) for name in subjects_of(plan)]
    from tippingpoint.play.asked_figures import as_value

    return [as_value(turn, name, measured) for name, measured in found.items()]
