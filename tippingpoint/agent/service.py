"""The agent: it saves its orders first, then plays, closes and cleans up after one part at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from tippingpoint import __version__
from tippingpoint.agent import requests
from tippingpoint.agent.clocks import Clocks
from tippingpoint.agent.closing import close_cut, cut_in
from tippingpoint.agent.exporter import Exporter, Measured
from tippingpoint.agent.figure_collector import FigureCollector
from tippingpoint.agent.joining import digest_of
from tippingpoint.agent.judging import Judging
from tippingpoint.agent.login_check import LoginCheck
from tippingpoint.agent.lost import inherit
from tippingpoint.agent.part import Ended, PartRunner, part_name, plan_of
from tippingpoint.agent.probing import probe
from tippingpoint.agent.prometheus import check_figures, opened
from tippingpoint.agent.removal import Removal
from tippingpoint.agent.reports import keep_digests, write_reports
from tippingpoint.agent.run_store import RunStore, StoredRun, furthest
from tippingpoint.agent.state import ENDED, PartState, Phase, State
from tippingpoint.agent.tasks import Tasks
from tippingpoint.agent.wake import wake
from tippingpoint.conduct.director import stop
from tippingpoint.conduct.run_state import REMOVED, SharedRun, UnitProgress, UnitWord
from tippingpoint.conduct.search_messages import ClearHold, ProbeReport
from tippingpoint.errors import UserError, describe
from tippingpoint.plan.read import Plan
from tippingpoint.play.resume import ResumedRun, take_up
from tippingpoint.play.worker_process import StartWorker, start_worker
from tippingpoint.rundir.ledger import entries
from tippingpoint.util import timing
from tippingpoint.util.network_errors import in_words

if TYPE_CHECKING:  # a run without Prometheus figures needs no Prometheus client
    from tippingpoint.monitoring.prometheus import Prometheus
    from tippingpoint.play.run_figures import RunFigures

TAKE_UP_WITHIN = 90.0
"""Seconds after a restart in which the charm must confirm that a run goes on; otherwise the part that was cut is
closed. The hook of a machine's start comes within some tens of seconds."""
BEAT = 30.0
"""Seconds after which the charm is woken during a run, or while it waits for a secret to be granted. The charm decides
how often it reports to others; the leader checks each time which units are still running."""
_LINE = 1000
"""The most characters of a problem, as in words of units."""

_REQUESTS: TypeAdapter[requests.AnyRequest] = TypeAdapter(requests.AnyRequest)


class Agent:
    """One unit's agent, below its state directory. `answer` handles all requests."""

    def __init__(
        self, state: Path, wake_file: Path, unit: str = "", start_worker: StartWorker = start_worker
    ) -> None:
        """With `unit`, orders for another unit are refused: its charm is at the wrong socket. `start_worker` is the
        same as for Runner."""
        self._directory = state
        self._wake_file = wake_file
        self._unit = unit
        self._start_worker = start_worker
        self._store = RunStore(state)
        self._state = State.load(state)
        self._clocks = Clocks()
        self._measured = Measured()
        self._exporter = Exporter(self._measured)
        self._no_metrics = ""
        self._tasks = Tasks()
        self._removal = Removal(
            self._store, self._wanted_parts, self._wake, lambda: self._state.unit or self._unit
        )
        self._login_check = LoginCheck(wake_file.parent, lambda: self._playing is not None, self._wake)
        self._judging = Judging(state, self._wake)
        self._collector = FigureCollector(self._wake)
        self._awaits = False
        """Whether the charm waits for something that no event announces."""
        self._part: PartRunner | None = None
        self._playing: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._told = asyncio.Event()
        """Set once orders have come since the start."""
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

    # -- start and end -----------------------------------------------------------------------------

    async def open(self, metrics: str | None = None) -> None:
        """Start: take care of what the last agent left, and export figures on ADDRESS:PORT unless that is in use."""
        if metrics is not None:
            try:
                await self._exporter.open(metrics)
            except OSError as problem:
                self._no_metrics = f"{metrics}: no figures are exported: {in_words(problem)}"
                log(self._no_metrics)
        self._beating = asyncio.create_task(self._beat())
        part = self._state.part
        if part is not None and part.phase not in ENDED:
            self._playing = asyncio.create_task(self._recover(part))
            self._wake()
        else:
            self._follow()
        self._removal.begin()

    async def close(self) -> None:
        """End: leave a current part to the next agent, after releasing what can be released."""
        if self._beating is not None:
            self._beating.cancel()
        if self._part is not None:
            await self._part.cut()
        for task in (self._playing, self._measuring):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await self._login_check.close()
        await self._judging.close()
        await self._collector.close()
        await self._tasks.close()
        await self._removal.close()
        await self._clocks.close()
        await self._exporter.close()

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer a request; raises ValidationError for an unknown one, and other errors with a line for people."""
        understood = _REQUESTS.validate_python(request)
        return await self._answers[type(understood)](understood)

    # -- the part ----------------------------------------------------------------------------------

    async def _orders(self, orders: requests.Orders) -> dict[str, Any]:
        if self._unit not in ("", orders.unit):
            raise UserError("unit", orders.unit, f"{self._unit}, whose agent this is")
        known = self._state
        run = orders.run
        self._state = known.model_copy(
            update={
                "run": run,
                "unit": orders.unit,
                "target": orders.target,
                "prometheus": orders.prometheus,
                "reference": orders.reference,
            }
        )
        if self._state != known:
            self._save()
            self._keep_run()
        await self._clocks.listen(orders.address)
        self._told.set()
        self._follow()
        self._collector.tell(run if orders.leads else None, orders.prometheus, self._offset)
        if run is not None and run.over and orders.target:
            self._remove_what_is_left_of(orders.lost, run, orders.target)
        return {}

    async def _access(self, access: requests.AccessRequest) -> dict[str, Any]:
        self._awaits = access.awaits
        known = self._login_check.tell(access.target, access.files)
        return {"problem": known.problem, "refused": known.refused, "trying": known.trying}

    async def _leave(self, leave: requests.Leave) -> dict[str, Any]:
        run = self._state.run
        if run is not None and not (run.stopped or run.over):
            self._state = self._state.model_copy(update={"run": stop(run, REMOVED)})
            with _told_in_the_log():
                self._save()
        self._told.set()
        self._follow()
        if self._playing is not None:
            measured = asyncio.ensure_future(
                self._part.measured() if self._part is not None else asyncio.shield(self._playing)
            )
            await asyncio.wait(
                [measured, self._playing], timeout=leave.seconds, return_when=asyncio.FIRST_COMPLETED
            )
            measured.cancel()
        return {"word": self._last_word(), "result": self._result() or await self._live_result()}

    def _last_word(self) -> dict[str, Any] | None:
        """Return the last word of a unit that is being removed: its part has ended, even if it is still busy."""
        run, part = self._state.run, self._state.part
        if run is None:
            return None
        word = self._as_word(
            part if part is not None and part.run == run.id else PartState(run=run.id, directories=[]), None
        )
        ended = word.phase in ENDED
        update = {"leaves": True, **({} if ended else {"phase": "over", "problem": REMOVED})}
        return word.model_copy(update=update).model_dump(mode="json", exclude_none=True)

    async def _live_result(self) -> dict[str, str] | None:
        """Return the result so far of a part that has not ended; None if it has measured nothing."""
        part = self._state.part
        live = None if part is None else self._live(part.run)
        if part is None or live is None:
            return None
        try:
            digest = await asyncio.to_thread(digest_of, live[1])
        except Exception as lost:  # as _close_part does
            log(f"{part.directories[-1]}: no result: {describe(lost)}")
            return None
        return {"run": part.run, "digest": digest} if digest else None

    def _follow(self) -> None:
        """Carry out the latest orders, except what is already under way."""
        run = self._state.run
        if self._playing is not None:
            if self._part is None:
                return  # it sees the orders when that has ended
            if run is None:
                self._part.stop("the run was removed")
            elif run.id != self._part.run_id:
                self._part.stop(f"run {run.id} was started")
            else:
                self._measure()
                self._part.tell(run, self._offset)
        elif run is not None and self._is_new(run):
            self._begin(run)

    def _is_new(self, run: SharedRun) -> bool:
        """Return whether a run should be played, and has not been yet."""
        part = self._state.part
        if run.over or run.stopped or (part is not None and part.run == run.id):
            return False
        kept = self._store.load(run.id)
        return kept is None or not kept.parts

    def _begin(self, run: SharedRun, takes_up: ResumedRun | None = None) -> None:
        """Begin this unit's part of a run, or resume it under its old names."""
        before = self._state.part.directories if takes_up is not None and self._state.part is not None else []
        name = part_name(run, self._state.unit)
        directories = [*before, f"{name}.{len(before) + 1}" if before else name]
        again = run.turns[-1].number if before and run.shared and run.turns else 0
        self._enter(PartState(run=run.id, directories=directories, again=again))
        self._keep_run()
        self._playing = asyncio.create_task(self._play(run, takes_up))

    async def _play(self, run: SharedRun, takes_up: ResumedRun | None) -> None:
        """Play a part from its beginning to its last word; then begin what comes next."""
        try:
            context = opened(self._state.prometheus if run.searches_alone else None)
        except UserError as refused:
            await self._close_part(Ended("failed", str(refused), removed=False), None)
            return
        async with context as prometheus:
            ended, directory = await self._play_with(run, takes_up, prometheus)
        await self._close_part(ended, directory)

    async def _play_with(
        self, run: SharedRun, takes_up: ResumedRun | None, prometheus: Prometheus | None
    ) -> tuple[Ended, Path | None]:
        """Play a part to its end; `prometheus` is what it queries in a search that one unit does alone."""
        state = self._state
        assert state.part is not None
        try:
            plan = plan_of(run, state.unit, state.target)
            part = PartRunner(
                run,
                plan,
                state.unit,
                self._store.parts,
                self._measured,
                self._reached,
                self._reported,
                self._clear,
                self._wake,
                run_id=state.part.directories[-1],
                takes_up=takes_up,
                again=state.part.again,
                figures=self._figures(plan, prometheus),
                start_worker=self._start_worker,
            )
        except Exception as problem:
            return Ended("failed", describe(problem), removed=False), None
        self._part = part
        self._follow()
        return await part.run(), part.directory

    def _figures(self, plan: Plan, prometheus: Prometheus | None) -> RunFigures | None:
        access = self._state.prometheus
        if prometheus is None or access is None:
            return None
        from tippingpoint.play.run_figures import RunFigures

        return RunFigures(plan, prometheus, access.only)

    async def _recover(self, cut: PartState) -> None:
        """Resume a part that was cut if possible and if the run continues; otherwise close it."""
        directory = self._store.parts / cut.directories[-1]
        try:
            _, taken_up = await asyncio.to_thread(take_up, directory)
        except Exception:  # a part that cannot be read is closed as it is
            taken_up = None
        if taken_up is not None and await self._still_on(cut.run):
            assert self._state.run is not None
            self._begin(self._state.run, taken_up)
            return
        phase, problem = await asyncio.to_thread(close_cut, directory, cut_in(cut.turn))
        await self._close_part(Ended(phase, problem, removed=False), directory)

    async def _still_on(self, run: str) -> bool:
        """Return whether the charm confirms in time that a run continues, and with this unit if it searches."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TAKE_UP_WITHIN):
                await self._told.wait()
            now = self._state.run
            if now is None or now.id != run or now.over or now.stopped:
                return False
            return not now.shared or now.may_return(self._state.unit)
        return False

    async def _close_part(self, ended: Ended, directory: Path | None) -> None:
        """Save a part's result, report that it has ended, and begin what comes next."""
        part = self._state.part
        assert part is not None
        if ended.removed:
            for name in part.directories:
                self._store.set_removed(name)
        problem = ended.problem
        if directory is not None:
            try:
                directories = [*map(self._store.parts.joinpath, part.directories[:-1]), directory]
                digest = await asyncio.to_thread(digest_of, directories)
                if digest:
                    self._store.keep_digest(part.run, self._state.unit, digest)
            except Exception as lost:
                log(f"{part.directories[-1]}: no result: {describe(lost)}")
                problem = problem or "its result could not be assembled (see the log of the agent's service)"
        await self._measure_again()
        self._part = self._playing = None
        assert self._state.part is not None  # it has the new offset
        self._enter(self._state.part.model_copy(update={"phase": ended.phase, "problem": problem[:_LINE]}))
        self._keep_run()
        self._store.prune(self._named_runs())
        self._removal.begin()
        self._follow()

    def _remove_what_is_left_of(self, units: list[str], run: SharedRun, target: Mapping[str, Any]) -> None:
        """Take over what lost units left on the target, once."""
        for unit in units:
            kept = self._store.load(run.id) or StoredRun(run=run)
            if unit == self._state.unit or part_name(run, unit) in kept.parts:
                continue
            try:
                part = inherit(run, unit, target, self._store.parts)
                self._store.save(kept.model_copy(update={"parts": [*kept.parts, part]}))
            except UserError as problem:
                log(f"what {unit} left on the target is unknown: {problem}")
                continue
            self._removal.begin()

    def _reached(self, phase: Phase, turn: int) -> None:
        """Note that the part has reached a phase."""
        if self._state.part is not None:
            self._enter(self._state.part.model_copy(update={"phase": phase, "turn": turn}))

    def _reported(self, report: ProbeReport) -> None:
        """Note what the part has measured in a turn that the leader judges."""
        if self._state.part is not None:
            self._enter(self._state.part.model_copy(update={"report": report}))

    def _clear(self, shown: ClearHold) -> None:
        """Note what the part's share of a turn that the leader judges shows before its hold is over."""
        if self._state.part is not None:
            self._enter(self._state.part.model_copy(update={"clear": shown}))

    def _enter(self, part: PartState) -> None:
        """Save the state of the part, and wake the charm if it is new."""
        if part != self._state.part:
            self._state = self._state.model_copy(update={"part": part})
            with _told_in_the_log():  # a full disk ends no run
                self._save()
            self._wake()

    # -- the clock ---------------------------------------------------------------------------------

    @property
    def _offset(self) -> float:
        """Seconds that our clock is ahead of the reference's, if known."""
        part = self._state.part
        return (part.offset or 0.0) if part is not None else 0.0

    def _measure(self) -> None:
        """Measure our clock's offset from the reference's, once both are known."""
        part = self._state.part
        busy = self._measuring is not None and not self._measuring.done()
        if part is not None and part.offset is None and self._state.reference and not busy:
            self._measuring = asyncio.create_task(self._measure_once())

    async def _measure_once(self) -> None:
        found = await self._clocks.measure(self._state.reference)
        part = self._state.part
        if found is None or part is None:
            return
        offset, error = found
        self._enter(part.model_copy(update={"offset": offset, "offset_error": error}))
        if self._part is not None and self._state.run is not None and self._state.run.id == self._part.run_id:
            self._part.tell(self._state.run, offset)

    async def _measure_again(self) -> None:
        """Measure it again at the end, because clocks drift."""
        if self._measuring is not None:
            await asyncio.wait([self._measuring])
        if self._state.reference:
            with contextlib.suppress(OSError, UserError):
                await self._measure_once()

    # -- words -------------------------------------------------------------------------------------

    async def _word(self, _: requests.Word) -> dict[str, Any]:
        word = self._said()
        figures = self._collector.news()
        return {
            "figures": None if figures is None else figures.model_dump(mode="json"),
            "word": None if word is None else word.model_dump(mode="json", exclude_none=True),
            "result": self._result(),
            "report": self._report_of_turn(),
        }

    def _report_of_turn(self) -> dict[str, Any] | None:
        """Return what this unit measured in its latest turn of the current search; None outside of one."""
        part = self._state.part
        if part is None or part.report is None or part.phase in ENDED:
            return None
        return part.report.model_dump(mode="json", exclude_defaults=True)

    async def _judge(self, judge: requests.Judge) -> dict[str, Any]:
        following = self._judging.ask(judge.shared, judge.after, judge.words, judge.reports)
        return {"next": None if following is None else following.model_dump(mode="json", exclude_none=True)}

    def _said(self) -> UnitWord | None:
        """Return this unit's word on the current run, or on another one while that is being ended."""
        state, part = self._state, self._state.part
        if state.run is not None and (part is None or part.run != state.run.id):
            unbegun = PartState(run=state.run.id, directories=[])
            if state.run.stopped:
                unbegun = unbegun.model_copy(update={"phase": "over", "problem": state.run.stopped[:_LINE]})
                return self._as_word(unbegun, None)
            waits = self._playing is not None and self._is_new(state.run)
            progress = UnitProgress(stage=0, size=0, held=0, preparing="the previous run is ended first")
            return self._as_word(unbegun, progress) if waits else None
        if part is None or (state.run is None and self._playing is None):
            return None
        return self._as_word(part, self._part.progress if self._part is not None else None)

    def _as_word(self, part: PartState, progress: UnitProgress | None) -> UnitWord:
        left = self._removal.problem(part.run)
        return UnitWord(
            run=part.run,
            phase=part.phase,
            turn=part.turn,
            problem="; ".join(filter(None, (part.problem, left)))[:_LINE],
            left=left[:_LINE],
            t=timing.wall(),
            cores=len(os.sched_getaffinity(0)),
            clock=self._clocks.address,
            offset=part.offset,
            offset_error=part.offset_error,
            progress=progress,
            held=part.report.turn if part.report is not None else 0,
            again=part.again,
            clear=part.clear,
        )

    def _result(self) -> dict[str, str] | None:
        """Return this unit's result in the current run; None before its part has ended."""
        part = self._state.part
        if part is None or part.phase not in ENDED:
            return None
        digest = self._store.digests(part.run).get(self._state.unit)
        return None if digest is None else {"run": part.run, "digest": digest}

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
        now = self._state.run is not None and self._state.run.id == run.id
        if run.stopped:
            return f"{'stopped' if run.over or not now else 'stopping'}: {run.stopped}"
        return "running" if now and not run.over else "over"

    async def _keep(self, keep: requests.Keep) -> dict[str, Any]:
        run = self._keep_words(self._store.load(keep.shared.id) or StoredRun(run=keep.shared), keep).run.id
        await asyncio.to_thread(keep_digests, self._store, run, keep.digests)
        self._store.prune(self._named_runs())
        return {}

    def _keep_words(self, kept: StoredRun, given: requests.Keep | requests.Report) -> StoredRun:
        words = {**kept.words, **{unit: word for unit, word in given.words.items() if word is not None}}
        kept = kept.model_copy(update={"run": furthest(kept.run, given.shared), "words": words})
        self._store.save(kept)
        return kept

    async def _report(self, report: requests.Report) -> dict[str, Any]:
        kept = self._keep_words(self._kept(report), report)
        written = await asyncio.to_thread(
            write_reports, self._store, kept, report.digests, self._live(kept.run.id), report.format
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

    def _live(self, run: str) -> tuple[str, list[Path]] | None:
        """Return this unit and its directories, if its part of a run is still running."""
        part = self._state.part
        if self._part is None or part is None or part.run != run:
            return None
        return self._state.unit, [self._store.parts / name for name in part.directories]

    def _keep_run(self) -> None:
        """Save the latest state of the run, and which directories are this unit's part of it."""
        run, part = self._state.run, self._state.part
        if run is None:
            return
        kept = self._store.load(run.id) or StoredRun(run=run)
        ours = part.directories if part is not None and part.run == run.id else []
        parts = list(dict.fromkeys([*ours, *kept.parts]))
        fresh = kept.model_copy(update={"run": furthest(kept.run, run), "parts": parts})
        with _told_in_the_log():
            if fresh != kept or not kept.parts:
                self._store.save(fresh)

    def _named_runs(self) -> list[str]:
        """The runs that are in use."""
        return [run.id for run in (self._state.run,) if run] + [
            part.run for part in (self._state.part,) if part
        ]

    def _wanted_parts(self) -> list[str]:
        """The parts that are running or may be resumed: their objects must stay."""
        part = self._state.part
        return part.directories if part is not None and part.phase not in ENDED else []

    # -- requests ------------------------------------------------------------------------------------

    async def _clean(self, clean: requests.Clean) -> dict[str, Any]:
        wanted = self._wanted_parts()
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
                    lines.append(f"{part}: removed {await self._removal.remove(part)}")
                except Exception as problem:
                    lines.append(f"{part}: {describe(problem)}")
        return "\n".join(lines) or "nothing is left of any run"

    async def _task(self, task: requests.Task) -> dict[str, Any]:
        outcome = self._tasks.ask(task.id)
        if outcome is None:
            return {"done": False, "text": "", "failed": False}
        return {"done": True, "text": outcome.text, "failed": outcome.failed}

    async def _repair(self, _: requests.Repair) -> dict[str, Any]:
        return {"task": self._tasks.begin(self._played().repair())}

    async def _evict_member(self, request: requests.EvictMember) -> dict[str, Any]:
        return {"task": self._tasks.begin(self._played().evict(request.member))}

    def _played(self) -> PartRunner:
        if self._part is None:
            raise UserError("run", "none", "a run in progress; start one first")
        return self._part

    async def _probe(self, request: requests.Probe) -> dict[str, Any]:
        target: Mapping[str, Any] = request.target or self._state.target
        made = entries(self._part.directory) if self._part is not None else []
        return {"task": self._tasks.begin(probe(target, made[-1] if made else None))}

    async def _check_figures(self, check: requests.CheckFigures) -> dict[str, Any]:
        return {"task": self._tasks.begin(check_figures(check.plan, check.prometheus))}

    async def _ping(self, _: requests.Ping) -> dict[str, Any]:
        part = self._state.part
        running = part.run if part is not None and self._playing is not None else ""
        return {"version": __version__, "running": running, "metrics": self._no_metrics}

    # -- waking the charm --------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Wake the charm regularly while there is a run, or while it waits for something."""
        while True:
            await asyncio.sleep(BEAT)
            run, part = self._state.run, self._state.part
            in_it = run is not None and not run.over and part is not None and part.run == run.id
            if self._playing is not None or in_it or self._awaits:
                self._wake()

    def _wake(self) -> None:
        wake(self._wake_file)

    def _save(self) -> None:
        self._state.save(self._directory)


@contextlib.contextmanager
def _told_in_the_log() -> Generator[None]:
    try:
        yield
    except UserError as problem:
        log(str(problem))


def log(line: str) -> None:
    """Write a line to the service's log."""
    print(f"tippingpoint agent: {line}", file=sys.stderr, flush=True)
