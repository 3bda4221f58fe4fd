"""The agent: answers the requests of the charm on its unit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tippingpoint import __version__
from tippingpoint.agent import requests
from tippingpoint.agent.exporter import Exporter, Measured
from tippingpoint.agent.figure_collector import FigureCollector
from tippingpoint.agent.judging import Judging
from tippingpoint.agent.log import log
from tippingpoint.agent.login_check import LoginCheck
from tippingpoint.agent.part import PartRunner
from tippingpoint.agent.probing import probe
from tippingpoint.agent.prometheus import check_figures
from tippingpoint.agent.reports import keep_digests, write_reports
from tippingpoint.agent.run_store import RunStore, StoredRun, furthest
from tippingpoint.agent.tasks import Tasks
from tippingpoint.agent.unit_part import UnitPart
from tippingpoint.agent.wake import wake
from tippingpoint.conduct.run_state import SharedRun
from tippingpoint.errors import UserError, describe
from tippingpoint.play.worker_process import StartWorker, start_worker
from tippingpoint.rundir.ledger import entries
from tippingpoint.util.network_errors import in_words

BEAT = 30.0
"""Seconds after which the charm is woken during a run, or while it waits for a secret to be granted. The charm decides
how often it reports to others; the leader checks each time which units are still running."""

_REQUESTS: TypeAdapter[requests.AnyRequest] = TypeAdapter(requests.AnyRequest)


class Agent:
    """One unit's agent, below its state directory. `answer` handles all requests."""

    def __init__(
        self, state: Path, wake_file: Path, unit: str = "", start_worker: StartWorker = start_worker
    ) -> None:
        """With `unit`, orders for another unit are refused: its charm is at the wrong socket. `start_worker` is the
        same as for Runner."""
        self._wake_file = wake_file
        self._unit = unit
        self._store = RunStore(state)
        self._measured = Measured()
        self._exporter = Exporter(self._measured)
        self._no_metrics = ""
        self._tasks = Tasks()
        self._part = UnitPart(state, unit, self._store, self._measured, start_worker, self._wake)
        self._login_check = LoginCheck(wake_file.parent, lambda: self._part.playing is not None, self._wake)
        self._judging = Judging(state, self._wake)
        self._collector = FigureCollector(self._wake)
        self._awaits = False
        """Whether the charm waits for something that no event announces."""
        self._beating: asyncio.Task[None] | None = None
        self._answers: dict[type[Any], Callable[[Any], Awaitable[dict[str, Any]]]] = {
            requests.Orders: self._orders,
            requests.AccessRequest: self._access,
            requests.Leave: self._leave,
            requests.Word: self._word,
            requests.Judge: self._judge,
            requests.Runs: self._runs,
            requests.Keep: self._keep,
            requests.Report: self._report,
            requests.Clean: self._clean,
            requests.Task: self._task,
            requests.Repair: self._repair,
            requests.EvictMember: self._evict_member,
            requests.Probe: self._probe,
            requests.CheckFigures: self._check_figures,
            requests.Ping: self._ping,
        }

    async def open(self, metrics: str | None = None) -> None:
        """Start: take care of what the last agent left, and export figures on ADDRESS:PORT unless that is in use."""
        if metrics is not None:
            try:
                await self._exporter.open(metrics)
            except OSError as problem:
                self._no_metrics = f"{metrics}: no figures are exported: {in_words(problem)}"
                log(self._no_metrics)
        self._beating = asyncio.create_task(self._beat())
        self._part.open()

    async def close(self) -> None:
        """End: leave a current part to the next agent, after releasing what can be released."""
        if self._beating is not None:
            self._beating.cancel()
        await self._tasks.close()
        await self._part.close()
        await self._login_check.close()
        await self._judging.close()
        await self._collector.close()
        await self._exporter.close()

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request; raises ValidationError for an unknown one, and other errors with a line for people."""
        understood = _REQUESTS.validate_python(request)
        return await self._answers[type(understood)](understood)

    # -- the part ----------------------------------------------------------------------------------

    async def _orders(self, orders: requests.Orders) -> dict[str, Any]:
        if self._unit not in ("", orders.unit):
            raise UserError("unit", orders.unit, f"{self._unit}, whose agent this is")
        await self._part.order(orders)
        self._collector.tell(orders.run if orders.leads else None, orders.prometheus, self._part.offset)
        return {}

    async def _access(self, access: requests.AccessRequest) -> dict[str, Any]:
        self._awaits = access.awaits
        known = self._login_check.tell(access.target, access.files)
        return {"problem": known.problem, "refused": known.refused, "trying": known.trying}

    async def _leave(self, leave: requests.Leave) -> dict[str, Any]:
        await self._part.leave(leave.seconds)
        word = self._part.last_word()
        return {
            "word": None if word is None else word.model_dump(mode="json", exclude_none=True),
            "result": self._part.result() or await self._part.live_result(),
        }

    async def _word(self, _: requests.Word) -> dict[str, Any]:
        word, figures, report = self._part.word(), self._collector.news(), self._part.report()
        return {
            "figures": None if figures is None else figures.model_dump(mode="json"),
            "word": None if word is None else word.model_dump(mode="json", exclude_none=True),
            "result": self._part.result(),
            "report": None if report is None else report.model_dump(mode="json", exclude_defaults=True),
        }

    async def _judge(self, judge: requests.Judge) -> dict[str, Any]:
        following = self._judging.ask(judge.shared, judge.after, judge.words, judge.reports)
        return {"next": None if following is None else following.model_dump(mode="json", exclude_none=True)}

    async def _repair(self, _: requests.Repair) -> dict[str, Any]:
        return {"task": self._tasks.begin(self._played().repair())}

    async def _evict_member(self, request: requests.EvictMember) -> dict[str, Any]:
        return {"task": self._tasks.begin(self._played().evict(request.member))}

    def _played(self) -> PartRunner:
        if self._part.running is None:
            raise UserError("run", "none", "a run in progress; start one first")
        return self._part.running

    async def _probe(self, request: requests.Probe) -> dict[str, Any]:
        target: Mapping[str, Any] = request.target or self._part.state.target
        made = entries(self._part.running.directory) if self._part.running is not None else []
        return {"task": self._tasks.begin(probe(target, made[-1] if made else None))}

    async def _ping(self, _: requests.Ping) -> dict[str, Any]:
        part = self._part.state.part
        running = part.run if part is not None and self._part.playing is not None else ""
        return {"version": __version__, "running": running, "metrics": self._no_metrics}

    # -- runs --------------------------------------------------------------------------------------

    async def _runs(self, _: requests.Runs) -> dict[str, Any]:
        return {
            "runs": [
                {
                    "id": kept.run.id,
                    "plan": str(kept.run.plan.get("name", "")),
                    "started": kept.run.started,
                    "status": self._status(kept.run),
                    "verdict": kept.verdict,
                    "units": kept.run.units,
                }
                for kept in self._store.all()
            ]
        }

    def _status(self, run: SharedRun) -> str:
        now = self._part.state.run is not None and self._part.state.run.id == run.id
        if run.stopped:
            return f"{'stopped' if run.over or not now else 'stopping'}: {run.stopped}"
        return "running" if now and not run.over else "over"

    async def _keep(self, keep: requests.Keep) -> dict[str, Any]:
        run = self._keep_words(self._store.load(keep.shared.id) or StoredRun(run=keep.shared), keep).run.id
        await asyncio.to_thread(keep_digests, self._store, run, keep.digests)
        self._store.prune(self._part.named_runs())
        return {}

    def _keep_words(self, kept: StoredRun, given: requests.Keep | requests.Report) -> StoredRun:
        words = {**kept.words, **{unit: word for unit, word in given.words.items() if word is not None}}
        kept = kept.model_copy(update={"run": furthest(kept.run, given.shared), "words": words})
        self._store.save(kept)
        return kept

    async def _report(self, report: requests.Report) -> dict[str, Any]:
        kept = self._keep_words(self._kept(report), report)
        written = await asyncio.to_thread(
            write_reports, self._store, kept, report.digests, self._part.live(kept.run.id), report.format
        )
        latest = self._store.load(kept.run.id) or kept
        self._store.save(latest.model_copy(update={"verdict": written.outcome}))
        return {"text": written.text, "path": str(written.path), "run": kept.run.id}

    def _kept(self, report: requests.Report) -> StoredRun:
        """Return what is known about the run for which a report is requested."""
        if not report.run and report.shared is None:
            latest = self._store.all()[:1]
            if not latest:
                raise UserError("run", "none", "a run that was started; there is none yet")
            return latest[0]
        name = report.run or (report.shared.id if report.shared is not None else "")
        kept = self._store.load(name)
        if kept is None and report.shared is not None and report.shared.id == name:
            kept = StoredRun(run=report.shared)
        if kept is None:
            raise UserError("run", name, "the id of a run that is kept here")
        return kept

    async def _clean(self, clean: requests.Clean) -> dict[str, Any]:
        wanted = self._part.wanted_parts()
        if clean.run:
            kept = self._store.load(clean.run)
            if kept is None:
                raise UserError("run", clean.run, "the id of a run that is kept here")
            if any(part in wanted for part in kept.parts):
                raise UserError("run", clean.run, "one that has ended: it is still running; stop it first")
            parts = kept.parts
        else:
            parts = [part for kept in self._store.all() for part in kept.parts if part not in wanted]
        return {"task": self._tasks.begin(self._clean_parts(parts))}

    async def _clean_parts(self, parts: list[str]) -> str:
        lines: list[str] = []
        for part in parts:
            if (self._store.parts / part).is_dir():
                try:
                    lines.append(f"{part}: removed {await self._part.removal.remove(part)}")
                except Exception as problem:
                    lines.append(f"{part}: {describe(problem)}")
        return "\n".join(lines) or "nothing is left of any run"

    # -- tasks -------------------------------------------------------------------------------------

    async def _task(self, task: requests.Task) -> dict[str, Any]:
        outcome = self._tasks.ask(task.id)
        if outcome is None:
            return {"done": False, "text": "", "failed": False}
        return {"done": True, "text": outcome.text, "failed": outcome.failed}

    async def _check_figures(self, check: requests.CheckFigures) -> dict[str, Any]:
        return {"task": self._tasks.begin(check_figures(check.plan, check.prometheus))}

    # -- waking the charm --------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Wake the charm regularly while there is a run, or while it waits for something."""
        while True:
            await asyncio.sleep(BEAT)
            run, part = self._part.state.run, self._part.state.part
            in_it = run is not None and not run.over and part is not None and part.run == run.id
            if self._part.playing is not None or in_it or self._awaits:
                self._wake()

    def _wake(self) -> None:
        wake(self._wake_file)
