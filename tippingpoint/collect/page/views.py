"""The pages of collected runs: all runs, each run's report, live while it goes on, and comparisons."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, cast

from aiohttp import web

from tippingpoint.collect.followed import asked as followed_as
from tippingpoint.collect.followed import followed
from tippingpoint.collect.page.access import PageAccess
from tippingpoint.collect.page.reports import Reports
from tippingpoint.collect.page.site import RunView, Site, file_answer, live_answer
from tippingpoint.collect.runs import Runs, StoredRun
from tippingpoint.compare.baseline_texts import PREFIX
from tippingpoint.errors import UserError
from tippingpoint.report.formats.html import render_html
from tippingpoint.util import timing

_RECENT = 3600.0
"""Seconds without a word after which a page that follows a run stops polling."""


class Pages(Site):
    """The pages of the runs in one directory of a collector."""

    exports = True

    def __init__(self, runs: Runs, access: PageAccess, reports: Reports) -> None:
        super().__init__(access)
        self._runs = runs
        self._reports = reports

    def _of_runs(self) -> list[web.RouteDef]:
        return [
            web.get("/runs/{run}", self._run),
            web.get("/runs/{run}/report.{format:html|md|json|junit}", self._report),
            web.get("/runs/{run}/export.tar.gz", self._export),
        ]

    def _views(self) -> list[RunView]:
        now = timing.wall()
        return [_view(run, now) for run in self._runs.newest_first()]

    async def _run(self, request: web.Request) -> web.StreamResponse:
        """Show a run's report. If the run goes on, or its results are still arriving, the report follows what comes."""
        now = timing.wall()
        run = await asyncio.to_thread(self._find, request.match_info["run"])
        if await asyncio.to_thread(lambda: run.complete):
            return file_answer(await self._reports.answer("report", [run], format="html"), "html", run.id)
        if run.shared.over:
            path = await self._reports.answer("report", [run], format="json")
        else:
            course = await asyncio.to_thread(lambda: run.course)
            path = await self._reports.answer("live", [run], course=course, state=run.state(now))
        live = now - run.heard < _RECENT
        return live_answer(
            await asyncio.to_thread(lambda: render_html(json.loads(path.read_bytes()), live=live))
        )

    async def _report(self, request: web.Request) -> web.StreamResponse:
        run = await asyncio.to_thread(self._find, request.match_info["run"])
        form = request.match_info["format"]
        path = await self._reports.answer("report", [run], format=form)
        return file_answer(path, form, f"{run.id}.{'xml' if form == 'junit' else form}")

    async def _export(self, request: web.Request) -> web.StreamResponse:
        run = await asyncio.to_thread(self._find, request.match_info["run"])
        return file_answer(await self._reports.answer("export", [run]), "tar.gz", f"{run.id}.tar.gz")

    async def _compared(
        self, names: list[str], others: list[str], control: list[str], form: str, tolerance: float
    ) -> Path:
        def find() -> list[StoredRun]:
            every = dict.fromkeys([*names, *others, *control])
            return [self._find(name) for name in every if not name.startswith(PREFIX)]

        runs = await asyncio.to_thread(find)
        return await self._reports.answer(
            "compare", runs, names=names, others=others, control=control, format=form, tolerance=tolerance
        )

    async def _followed(self, form: str, by: str) -> Path:
        runs = await asyncio.to_thread(followed, self._runs)
        asked = await asyncio.to_thread(followed_as, self._runs, form, by)
        return await self._reports.answer("trend", runs, **asked)

    def _find(self, name: str) -> StoredRun:
        try:
            return self._runs.find(name or "-")
        except (UserError, OSError, ValueError):  # a name may be anything, for example too long for a file
            raise web.HTTPNotFound(reason="There is no such run here") from None


def _view(run: StoredRun, now: float) -> RunView:
    shared, verdict = run.shared, run.verdict
    target: Any = shared.plan.get("target")  # the sender may have sent anything as a plan
    reported = run.reported
    judging = verdict is None and run.complete
    return RunView(
        id=run.id,
        plan=str(shared.plan.get("name", "")),
        target=str(cast("dict[str, Any]", target).get("kind", "")) if isinstance(target, dict) else "",
        made=shared.made,
        units=len(shared.units),
        reported=reported,
        state="verdict pending" if judging else run.state(now),
        outcome="" if verdict is None else verdict.outcome,
        sentence="" if verdict is None else verdict.sentence,
        live=verdict is None and now - run.heard < _RECENT,
        reportable=run.reportable,
    )
