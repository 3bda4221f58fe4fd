"""This unit's part of a run: orders are saved first; then one part at a time is played, closed and cleaned up after."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tippingpoint.agent import requests
from tippingpoint.agent.clocks import Clocks
from tippingpoint.agent.closing import close_cut, cut_in
from tippingpoint.agent.exporter import Measured
from tippingpoint.agent.joining import digest_of
from tippingpoint.agent.log import in_the_log, log
from tippingpoint.agent.lost import inherit
from tippingpoint.agent.part import Ended, PartRunner, part_name, plan_of
from tippingpoint.agent.prometheus import opened
from tippingpoint.agent.removal import Removal
from tippingpoint.agent.run_store import RunStore, StoredRun, furthest
from tippingpoint.agent.state import ENDED, PartState, Phase, State
from tippingpoint.conduct.director import stop
from tippingpoint.conduct.run_state import REMOVED, SharedRun, UnitProgress, UnitWord
from tippingpoint.conduct.search_messages import ClearHold, ProbeReport
from tippingpoint.errors import UserError, describe
from tippingpoint.plan.read import Plan
from tippingpoint.play.resume import ResumedRun, take_up
from tippingpoint.play.worker_process import StartWorker
from tippingpoint.util import timing

if TYPE_CHECKING:  # a run without Prometheus figures needs no Prometheus client
    from tippingpoint.monitoring.prometheus import Prometheus
    from tippingpoint.play.run_figures import RunFigures

TAKE_UP_WITHIN = 90.0
"""Seconds after a restart in which the charm must confirm that a run goes on; otherwise the part that was cut is
closed. The hook of a machine's start comes within some tens of seconds."""
_LINE = 1000
"""The most characters of a problem, as in words of units."""


class UnitPart:
    """The unit's part of the current run, and what is left of earlier ones."""

    def __init__(
        self,
        directory: Path,
        unit: str,
        store: RunStore,
        measured: Measured,
        start_worker: StartWorker,
        wake: Callable[[], None],
    ) -> None:
        """The state is kept below `directory`. `unit` is known before the first orders, or empty. `wake` is called when
        there is news for the charm; `start_worker` is the same as for Runner."""
        self._directory = directory
        self._store = store
        self._measured = measured
        self._start_worker = start_worker
        self._wake = wake
        self.state = State.load(directory)
        """The latest orders, and the latest part."""
        self.removal = Removal(store, self.wanted_parts, wake, lambda: self.state.unit or unit)
        self.clocks = Clocks()
        self.running: PartRunner | None = None
        """What plays the part; None before it is ready, and afterwards."""
        self.playing: asyncio.Task[None] | None = None
        """The part from its first preparation until it is closed."""
        self._measuring: asyncio.Task[None] | None = None
        self._ordered = asyncio.Event()
        """Set once orders have come since the start."""

    def open(self) -> None:
        """Take care of what the last agent left."""
        part = self.state.part
        if part is not None and part.phase not in ENDED:
            self.playing = asyncio.create_task(self._recover(part))
            self._wake()
        else:
            self._follow()
        self.removal.begin()

    async def close(self) -> None:
        """Leave a current part to the next agent, after releasing what can be released."""
        if self.running is not None:
            await self.running.cut()
        for task in (self.playing, self._measuring):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])
        await self.removal.close()
        await self.clocks.close()

    async def order(self, orders: requests.Orders) -> None:
        """Save orders, and carry them out."""
        known, run = self.state, orders.run
        self.state = known.model_copy(
            update={
                "run": run,
                "unit": orders.unit,
                "target": orders.target,
                "prometheus": orders.prometheus,
                "reference": orders.reference,
            }
        )
        if self.state != known:
            self._save()
            self._keep_run()
        await self.clocks.listen(orders.address)
        self._ordered.set()
        self._follow()
        if run is not None and run.over and orders.target:
            self._inherit(orders.lost, run, orders.target)

    async def leave(self, within: float) -> None:
        """End the part because the unit is being removed; returns once nothing is measured any more, or after `within`
        seconds."""
        run = self.state.run
        if run is not None and not (run.stopped or run.over):
            self.state = self.state.model_copy(update={"run": stop(run, REMOVED)})
            with in_the_log():
                self._save()
        self._ordered.set()
        self._follow()
        if self.playing is not None:
            measured = asyncio.ensure_future(
                self.running.measured() if self.running is not None else asyncio.shield(self.playing)
            )
            await asyncio.wait([measured, self.playing], timeout=within, return_when=asyncio.FIRST_COMPLETED)
            measured.cancel()

    def _inherit(self, units: list[str], run: SharedRun, target: Mapping[str, Any]) -> None:
        """Take over what lost units left on the target, once."""
        for unit in units:
            kept = self._store.load(run.id) or StoredRun(run=run)
            if unit == self.state.unit or part_name(run, unit) in kept.parts:
                continue
            try:
                part = inherit(run, unit, target, self._store.parts)
                self._store.save(kept.model_copy(update={"parts": [*kept.parts, part]}))
            except UserError as problem:
                log(f"what {unit} left on the target is unknown: {problem}")
                continue
            self.removal.begin()

    def _follow(self) -> None:
        """Carry out the latest orders, except what is already under way."""
        run = self.state.run
        if self.playing is not None:
            if self.running is None:
                return  # it sees the orders when that has ended
            if run is None:
                self.running.stop("the run was removed")
            elif run.id != self.running.run_id:
                self.running.stop(f"run {run.id} was started")
            else:
                self._measure()
                self.running.tell(run, self.offset)
        elif run is not None and self._is_new(run):
            self._begin(run)

    def _is_new(self, run: SharedRun) -> bool:
        """Return whether a run should be played, and has not been yet."""
        part = self.state.part
        if run.over or run.stopped or (part is not None and part.run == run.id):
            return False
        kept = self._store.load(run.id)
        return kept is None or not kept.parts

    def _begin(self, run: SharedRun, takes_up: ResumedRun | None = None) -> None:
        """Begin this unit's part of a run, or resume it under its old names."""
        before = self.state.part.directories if takes_up is not None and self.state.part is not None else []
        name = part_name(run, self.state.unit)
        directories = [*before, f"{name}.{len(before) + 1}" if before else name]
        again = run.turns[-1].number if before and run.shared and run.turns else 0
        self._enter(PartState(run=run.id, directories=directories, again=again))
        self._keep_run()
        self.playing = asyncio.create_task(self._play(run, takes_up))

    async def _play(self, run: SharedRun, takes_up: ResumedRun | None) -> None:
        """Play a part from its beginning to its last word; then begin what comes next."""
        try:
            context = opened(self.state.prometheus if run.searches_alone else None)
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
        state = self.state
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
        self.running = part
        self._follow()
        return await part.run(), part.directory

    def _figures(self, plan: Plan, prometheus: Prometheus | None) -> RunFigures | None:
        access = self.state.prometheus
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
            assert self.state.run is not None
            self._begin(self.state.run, taken_up)
            return
        phase, problem = await asyncio.to_thread(close_cut, directory, cut_in(cut.turn))
        await self._close_part(Ended(phase, problem, removed=False), directory)

    async def _still_on(self, run: str) -> bool:
        """Return whether the charm confirms in time that a run continues, and with this unit if it searches."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TAKE_UP_WITHIN):
                await self._ordered.wait()
            now = self.state.run
            if now is None or now.id != run or now.over or now.stopped:
                return False
            return not now.shared or now.may_return(self.state.unit)
        return False

    async def _close_part(self, ended: Ended, directory: Path | None) -> None:
        """Save a part's result, report that it has ended, and begin what comes next."""
        part = self.state.part
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
                    self._store.keep_digest(part.run, self.state.unit, digest)
            except Exception as lost:
                log(f"{part.directories[-1]}: no result: {describe(lost)}")
                problem = problem or "its result could not be assembled (see the log of the agent's service)"
        await self._measure_again()
        self.running = self.playing = None
        assert self.state.part is not None  # it has the new offset
        self._enter(self.state.part.model_copy(update={"phase": ended.phase, "problem": problem[:_LINE]}))
        self._keep_run()
        self._store.prune(self.named_runs())
        self.removal.begin()
        self._follow()

    def _reached(self, phase: Phase, turn: int) -> None:
        """Note that the part has reached a phase."""
        if self.state.part is not None:
            self._enter(self.state.part.model_copy(update={"phase": phase, "turn": turn}))

    def _reported(self, report: ProbeReport) -> None:
        """Note what the part has measured in a turn that the leader judges."""
        if self.state.part is not None:
            self._enter(self.state.part.model_copy(update={"report": report}))

    def _clear(self, shown: ClearHold) -> None:
        """Note what the part's share of a turn that the leader judges shows before its hold is over."""
        if self.state.part is not None:
            self._enter(self.state.part.model_copy(update={"clear": shown}))

    def _enter(self, part: PartState) -> None:
        """Save the state of the part, and wake the charm if it is new."""
        if part != self.state.part:
            self.state = self.state.model_copy(update={"part": part})
            with in_the_log():  # a full disk ends no run
                self._save()
            self._wake()

    def _keep_run(self) -> None:
        """Save the latest state of the run, and which directories are this unit's part of it."""
        run, part = self.state.run, self.state.part
        if run is None:
            return
        kept = self._store.load(run.id) or StoredRun(run=run)
        ours = part.directories if part is not None and part.run == run.id else []
        parts = list(dict.fromkeys([*ours, *kept.parts]))
        fresh = kept.model_copy(update={"run": furthest(kept.run, run), "parts": parts})
        with in_the_log():
            if fresh != kept or not kept.parts:
                self._store.save(fresh)

    # -- the clock ---------------------------------------------------------------------------------

    @property
    def offset(self) -> float:
        """Seconds that our clock is ahead of the reference's, if known."""
        part = self.state.part
        return (part.offset or 0.0) if part is not None else 0.0

    def _measure(self) -> None:
        """Measure our clock's offset from the reference's, once both are known."""
        part = self.state.part
        busy = self._measuring is not None and not self._measuring.done()
        if part is not None and part.offset is None and self.state.reference and not busy:
            self._measuring = asyncio.create_task(self._measure_once())

    async def _measure_once(self) -> None:
        found = await self.clocks.measure(self.state.reference)
        part = self.state.part
        if found is None or part is None:
            return
        offset, error = found
        self._enter(part.model_copy(update={"offset": offset, "offset_error": error}))
        if (
            self.running is not None
            and self.state.run is not None
            and self.state.run.id == self.running.run_id
        ):
            self.running.tell(self.state.run, offset)

    async def _measure_again(self) -> None:
        """Measure it again at the end, because clocks drift."""
        if self._measuring is not None:
            await asyncio.wait([self._measuring])
        if self.state.reference:
            with contextlib.suppress(OSError, UserError):
                await self._measure_once()

    # -- words -------------------------------------------------------------------------------------

    def word(self) -> UnitWord | None:
        """Return this unit's word on the current run, or on another one while that is being ended."""
        state, part = self.state, self.state.part
        if state.run is not None and (part is None or part.run != state.run.id):
            unbegun = PartState(run=state.run.id, directories=[])
            if state.run.stopped:
                unbegun = unbegun.model_copy(update={"phase": "over", "problem": state.run.stopped[:_LINE]})
                return self._as_word(unbegun, None)
            waits = self.playing is not None and self._is_new(state.run)
            progress = UnitProgress(stage=0, size=0, held=0, preparing="the previous run is ended first")
            return self._as_word(unbegun, progress) if waits else None
        if part is None or (state.run is None and self.playing is None):
            return None
        return self._as_word(part, self.running.progress if self.running is not None else None)

    def last_word(self) -> UnitWord | None:
        """Return the last word of a unit that is being removed: its part has ended, even if it is still busy."""
        run, part = self.state.run, self.state.part
        if run is None:
            return None
        word = self._as_word(
            part if part is not None and part.run == run.id else PartState(run=run.id, directories=[]), None
        )
        ended = word.phase in ENDED
        update = {"leaves": True, **({} if ended else {"phase": "over", "problem": REMOVED})}
        return word.model_copy(update=update)

    def _as_word(self, part: PartState, progress: UnitProgress | None) -> UnitWord:
        left = self.removal.problem(part.run)
        return UnitWord(
            run=part.run,
            phase=part.phase,
            turn=part.turn,
            problem="; ".join(filter(None, (part.problem, left)))[:_LINE],
            left=left[:_LINE],
            t=timing.wall(),
            cores=len(os.sched_getaffinity(0)),
            clock=self.clocks.address,
            offset=part.offset,
            offset_error=part.offset_error,
            progress=progress,
            held=part.report.turn if part.report is not None else 0,
            again=part.again,
            clear=part.clear,
        )

    def report(self) -> ProbeReport | None:
        """Return what this unit measured in its latest turn of the current search; None outside of one."""
        part = self.state.part
        if part is None or part.report is None or part.phase in ENDED:
            return None
        return part.report

    def result(self) -> dict[str, str] | None:
        """Return this unit's result in the current run; None before its part has ended."""
        part = self.state.part
        if part is None or part.phase not in ENDED:
            return None
        digest = self._store.digests(part.run).get(self.state.unit)
        return None if digest is None else {"run": part.run, "digest": digest}

    async def live_result(self) -> dict[str, str] | None:
        """Return the result so far of a part that has not ended; None if it has measured nothing."""
        part = self.state.part
        live = None if part is None else self.live(part.run)
        if part is None or live is None:
            return None
        try:
            digest = await asyncio.to_thread(digest_of, live[1])
        except Exception as lost:  # as _close_part does
            log(f"{part.directories[-1]}: no result: {describe(lost)}")
            return None
        return {"run": part.run, "digest": digest} if digest else None

    def live(self, run: str) -> tuple[str, list[Path]] | None:
        """Return this unit and its directories, if its part of a run is still running."""
        part = self.state.part
        if self.running is None or part is None or part.run != run:
            return None
        return self.state.unit, [self._store.parts / name for name in part.directories]

    def named_runs(self) -> list[str]:
        """The runs that are in use."""
        return [run.id for run in (self.state.run,) if run] + [
            part.run for part in (self.state.part,) if part
        ]

    def wanted_parts(self) -> list[str]:
        """The parts that are running or may be resumed: their objects must stay."""
        part = self.state.part
        return part.directories if part is not None and part.phase not in ENDED else []

    def _save(self) -> None:
        self.state.save(self._directory)
