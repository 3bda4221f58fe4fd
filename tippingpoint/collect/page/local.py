"""The page of the runs in a directory of this machine: the run in progress live, reports, comparisons and trends.

It is served on loopback without TLS. A reader is let in by the address that `tippingpoint serve` prints, which contains
a token, because others on this machine can reach loopback, too.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from tippingpoint.analysis.analyse import analyse
from tippingpoint.analysis.verdict import Verdict
from tippingpoint.collect.page.access import SESSION, PageAccess
from tippingpoint.collect.page.site import RunView, Site, file_answer, live_answer
from tippingpoint.compare.baseline_texts import PREFIX
from tippingpoint.errors import UserError
from tippingpoint.report.document import build_document
from tippingpoint.report.formats.html import render_html
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.results import GrowingRun, load_run
from tippingpoint.util import timing

FOLLOWED = 60
"""The most runs in a trend, the newest."""
_TOKEN = "token"
"""The name of the token in the address that lets a reader in."""


class LocalPages(Site):
    """The pages of the runs in one directory of this machine."""

    secure = False
    no_run = "There is no run here yet. Start one: tippingpoint run PLAN"

    def __init__(self, directory: Path, access: PageAccess, answers: Path) -> None:
        """`answers` is a directory of our own for the reports that are made."""
        super().__init__(access)
        self._directory = directory
        # Pages on several ports share the cookies of their host.
        self.cookie = "tippingpoint-" + hashlib.sha256(bytes(directory.resolve())).hexdigest()[:8]
        self._answers = answers
        self._verdicts: dict[str, Verdict] = {}
        self._judging: asyncio.Task[None] | None = None
        self._growing: dict[str, GrowingRun] = {}
        self._one_at_a_time = asyncio.Lock()
        self.seen = timing.monotonic()
        """When the last request came."""

    def _admit(self, request: web.Request) -> web.Response | None:
        self.seen = timing.monotonic()
        given = request.query.get(_TOKEN, "")
        if not self._access.is_token(given):
            return None
        there = str(request.rel_url.without_query_params(_TOKEN))
        response = web.Response(status=303, headers={"Location": there})
        mark = self._access.login(timing.wall())
        response.set_cookie(self.cookie, mark, max_age=SESSION, httponly=True, samesite="Strict")
        return response

    def _of_runs(self) -> list[web.RouteDef]:
        return [
            web.get("/runs/{run}", self._run),
            web.get("/runs/{run}/report.{format:html|md|json|junit}", self._report),
        ]

    # -- the list ----------------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.Response:
        answer = await super()._list(request)
        if self._judging is None or self._judging.done():
            self._judging = asyncio.create_task(self._judge())
        return answer

    def _views(self) -> list[RunView]:
        self.seen = timing.monotonic()
        return [self._view(manifest) for manifest in self._manifests()]

    def _manifests(self) -> list[Manifest]:
        """Return the manifests of all runs, the newest first; what cannot be read is left out."""
        found: list[Manifest] = []
        with suppress(FileNotFoundError, NotADirectoryError):
            for name in os.listdir(self._directory):
                with suppress(UserError, OSError, ValueError):
                    found.append(Manifest.load(self._directory / name))
        return sorted(found, key=lambda manifest: manifest.started, reverse=True)

    def _view(self, manifest: Manifest) -> RunView:
        verdict = self._verdicts.get(manifest.id)
        live = manifest.status == "running"
        return RunView(
            id=manifest.id,
            plan=str((manifest.plan or {}).get("name", "")) or manifest.title,
            target=manifest.target.kind,
            made=manifest.started,
            units=1,
            reported=0 if live else 1,
            state="in progress"
            if live
            else f"{manifest.status}{f': {manifest.reason}' if manifest.reason else ''}",
            outcome="" if verdict is None or live else verdict.label,
            sentence="" if verdict is None or live else verdict.sentence,
            live=live,
            reportable=not live,
        )

    async def _judge(self) -> None:
        """Judge runs one after the other, the newest first. It takes no CPU from a run in progress here."""
        manifests = await asyncio.to_thread(self._manifests)
        if any(manifest.status == "running" for manifest in manifests):
            return
        for manifest in manifests:
            if manifest.id not in self._verdicts:
                with suppress(UserError, OSError):
                    self._verdicts[manifest.id] = await asyncio.to_thread(self._verdict, manifest)

    def _verdict(self, manifest: Manifest) -> Verdict:
        return analyse(load_run(self._directory / manifest.id)).verdict

    # -- one run -----------------------------------------------------------------------------------

    async def _run(self, request: web.Request) -> web.StreamResponse:
        """Show a run's report. If the run is in progress, the report follows what is written."""
        self.seen = timing.monotonic()
        directory = self._find(request.match_info["run"])
        async with self._one_at_a_time:
            page = await asyncio.to_thread(self._page, directory)
        return live_answer(page)

    def _page(self, directory: Path) -> str:
        growing = self._growing.setdefault(directory.name, GrowingRun(directory))
        run = growing.load()
        live = run.manifest.status == "running"
        if not live:
            del self._growing[directory.name]
        return render_html(build_document(analyse(run)), live=live)

    async def _report(self, request: web.Request) -> web.StreamResponse:
        directory = self._find(request.match_info["run"])
        form = request.match_info["format"]
        path = await self._answer("report", str(directory), "--format", form)
        return file_answer(path, form, f"{directory.name}.{'xml' if form == 'junit' else form}")

    def _find(self, name: str) -> Path:
        directory = self._directory / name
        if "/" in name or name in ("", ".", "..") or not (directory / "manifest.json").is_file():
            raise web.HTTPNotFound(reason="There is no such run here")
        return directory

    # -- several -----------------------------------------------------------------------------------

    async def _compared(
        self, names: list[str], others: list[str], control: list[str], form: str, tolerance: float
    ) -> Path:
        def places(of: Sequence[str]) -> list[str]:
            return [name if name.startswith(PREFIX) else str(self._find(name)) for name in of]

        options = ["--format", form, "--tolerance", str(tolerance)]
        if others:
            options += ["--with", *places(others)]
        if control:
            options += ["--control", *places(control)]
        return await self._answer("compare", *places(names), *options)

    async def _followed(self, form: str, by: str) -> Path:
        ended = [manifest.id for manifest in self._manifests() if manifest.status != "running"][:FOLLOWED]
        if not ended:
            raise UserError("runs", str(self._directory), "a directory with runs that have ended")
        places = [str(self._directory / name) for name in ended]
        return await self._answer("trend", *places, "--format", form, "--by", by)

    async def _answer(self, *asked: str) -> Path:
        """Return the file with the output of one of our commands; raises UserError with its line if it refuses."""
        async with self._one_at_a_time:
            file, name = tempfile.mkstemp(dir=self._answers)
            try:
                program = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "tippingpoint", *asked),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=file,
                    stderr=asyncio.subprocess.PIPE,
                )
            finally:
                os.close(file)
            _, said = await program.communicate()
        if not await asyncio.to_thread(os.path.getsize, name):
            os.unlink(name)
            line = (said.decode(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]
            raise UserError(asked[0], asked[1], line.removeprefix("tippingpoint: "))
        _forget_oldest(self._answers)
        return Path(name)


def _forget_oldest(directory: Path, kept: int = 20) -> None:
    """Keep only the newest answers: each is requested only once."""
    for path in sorted(directory.iterdir(), key=lambda path: path.stat().st_mtime)[:-kept]:
        path.unlink(missing_ok=True)
