"""All workers of a run: starts them, sends them commands, receives their messages, and ends them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tippingpoint.errors import Refused
from tippingpoint.plan.read import AnyStage
from tippingpoint.play.interruption import EndedEarly, Interruption
from tippingpoint.play.messages import Answer, Command, End, Message, Prepared, Preparing, Tick, Trouble
from tippingpoint.play.record import Record
from tippingpoint.play.watcher import RunnerEvents
from tippingpoint.play.worker import Job
from tippingpoint.play.worker_process import Gone, StartWorker, WorkerProcess, opened, start_worker
from tippingpoint.rundir.manifest import WorkerEntry
from tippingpoint.util import timing
from tippingpoint.util.patience import LOCAL_STALL_TOLERANCE
from tippingpoint.workloads.claim.workload import RELEASE_WITHIN
from tippingpoint.workloads.load import DRAIN_TIMEOUT, PrepareOrder, TargetFacts

_ANSWER_WITHIN = DRAIN_TIMEOUT + RELEASE_WITHIN + 10.0
"""Seconds that a worker may take for its drain and its releases, with a reserve for its connections and files."""
_LOOK = 1.0
"""Seconds between checks for a worker that has been silent for too long."""
_PREPARE_SILENCE = 300.0
"""Seconds without a message from a worker that prepares stages, after which it counts as hung."""

A = TypeVar("A", bound=Answer)


class Headway:
    """Whether the workers make progress in a stage, according to their ticks; one worker that does is enough.

    While leases come up, the number of held and waiting ones grows. While things are made, more exist and fewer are
    left to make. While things are removed, both numbers shrink.
    """

    def __init__(self, *, removing: bool, making: bool = False) -> None:
        self._held = -1 if removing else 1
        self._waiting = -1 if removing or making else 1
        self._furthest: dict[str, int] = {}

    def made(self, ticks: Mapping[str, Tick]) -> bool:
        """Return whether the latest tick of any worker in the stage is further than ever before."""
        ahead = False
        for worker, tick in ticks.items():
            there = self._held * tick.held + self._waiting * tick.waiting
            if worker not in self._furthest or there > self._furthest[worker]:
                self._furthest[worker] = there
                ahead = True
        return ahead


class WorkerPool:
    """All workers of a run. Every wait here raises EndedEarly when the run is to end meanwhile."""

    def __init__(
        self,
        record: Record,
        interruption: Interruption,
        watcher: RunnerEvents,
        ticked: Callable[[str, Tick], None],
        start: StartWorker = start_worker,
    ) -> None:
        """`ticked` is called with each worker's name and tick; `start` starts a worker."""
        self.workers: list[WorkerProcess] = []
        self.changed = asyncio.Event()
        """Set whenever a message of a worker arrives; waited for with `wait_for`."""
        self.ending = False
        self._record = record
        self._interruption = interruption
        self._watcher = watcher
        self._ticked = ticked
        self._start = start
        self._trouble = ""
        """Why a worker can no longer do its part, for a reason of its own."""
        self._preparing: dict[str, dict[str, tuple[int, int]]] = {}

    @property
    def alive(self) -> list[WorkerProcess]:
        """The workers that have not ended."""
        return [worker for worker in self.workers if worker.alive]

    @property
    def cut(self) -> list[str]:
        """The names of the workers that ended early."""
        return [worker.name for worker in self.workers if worker.done is None]

    async def open(self, jobs: Sequence[Job]) -> TargetFacts:
        """Start a worker for each job and wait until all have opened their load; raises Refused if one cannot."""
        self._record.manifest.workers = [WorkerEntry(name=job.name) for job in jobs]
        for job in jobs:
            try:
                self.workers.append(await self._start(job, self._heard, self._record.descriptors))
            except OSError as problem:
                raise Refused(f"worker {job.name}: cannot be started: {problem.strerror}", 4) from None
        facts = await self._interruption.unless_asked(
            asyncio.gather(*(opened(worker) for worker in self.workers))
        )
        return facts[0]

    def tell(self, command: Command) -> None:
        """Send every worker a command that has no answer."""
        for worker in self.workers:
            worker.tell(command)

    async def prepare(self, stages: Sequence[AnyStage], *, fresh: bool) -> None:
        """Have the workers prepare stages like these; a failure ends the run, which keeps its results."""
        answers = await self.ask(
            Prepared,
            lambda share: PrepareOrder(stages=stages, share=share, fresh=fresh),
            within=_PREPARE_SILENCE,
        )
        self._preparing.clear()
        problems = [answer.problem for answer in answers if answer.problem]
        if problems:
            raise EndedEarly("failed", problems[0])

    async def ask(
        self, kind: type[A], command: Callable[[tuple[int, int]], Command], within: float = _ANSWER_WITHIN
    ) -> list[A]:
        """Send every worker the command for its share (index, of how many) and wait for the answers.

        A worker that sends nothing but ticks for `within` seconds counts as cut; times during which the runner itself
        stood still are excluded. Returns the answers that arrived.
        """
        commands = {worker: command((index, len(self.workers))) for index, worker in enumerate(self.workers)}
        replies: dict[WorkerProcess, asyncio.Task[A | None]] = {}
        for worker in self.alive:
            worker.said = timing.monotonic()
            replies[worker] = asyncio.create_task(worker.reply(kind))
            worker.tell(commands[worker])
        interrupted = asyncio.create_task(self._interruption.asked.wait())
        pending: set[asyncio.Task[A | None]] = set(replies.values())
        left, stood_still = within, 0.0
        while pending and not self._interruption.asked.is_set():
            heard = max(worker.said for worker, reply in replies.items() if reply in pending)
            looked = timing.monotonic()
            left = heard + within + stood_still - looked
            if left <= 0:
                break
            look = min(left, _LOOK)
            await asyncio.wait([*pending, interrupted], timeout=look, return_when=asyncio.FIRST_COMPLETED)
            took = timing.monotonic() - looked
            if took - look > LOCAL_STALL_TOLERANCE:  # messages that arrived meanwhile have not been read yet
                stood_still += took
            pending = {reply for reply in pending if not reply.done()}
            if any(reply.done() and (said := reply.result()) and said.problem for reply in replies.values()):
                break  # one that cannot go on is enough: all are ended in an orderly way
        silent = bool(pending) and left <= 0
        interrupted.cancel()
        for worker, reply in replies.items():
            if not reply.done():
                reply.cancel()
                if silent:
                    worker.process.kill()
        self.check()
        return [
            found
            for reply in replies.values()
            if reply.done() and not reply.cancelled() and (found := reply.result()) is not None
        ]

    def ticks_after(self, moment: float) -> dict[str, Tick]:
        """Return the last ticks of the live workers, by name, if they are later in the run than `moment`."""
        return {
            worker.name: worker.tick
            for worker in self.alive
            if worker.tick is not None and worker.tick.t > moment
        }

    @property
    def unwritten(self) -> bool:
        """Whether a part of a journal is kept in memory because the disk is full."""
        return any(worker.tick is not None and worker.tick.unwritten for worker in self.workers)

    def check(self) -> None:
        """Raise EndedEarly if the run cannot continue."""
        self._interruption.check()
        if not self._record.is_there:
            raise EndedEarly("failed", "the run's directory is gone")
        if self._trouble:
            raise EndedEarly("cut", self._trouble)
        if not self.alive:
            raise EndedEarly("cut", f"every worker ended early{self._last_words()}")

    def _last_words(self) -> str:
        """Return the reason that the first worker with one gave for its end, to follow another text."""
        said = [
            f": worker {worker.name}: {words}"
            for worker in self.workers
            if worker.done is None and (words := worker.last_words)
        ]
        return next(iter(said), "")

    async def wait(self, seconds: float) -> None:
        """Wait, unless the run is interrupted or its last worker is gone."""
        deadline = timing.monotonic() + seconds
        while (left := deadline - timing.monotonic()) > 0:
            self.check()
            await self.wait_for(self._interruption.asked, min(left, 1.0))
        self.check()

    async def wait_for(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for an event, at most this many seconds, unless the run is interrupted."""
        interrupted = asyncio.ensure_future(self._interruption.asked.wait())
        happened = asyncio.ensure_future(event.wait())
        await asyncio.wait(
            [interrupted, happened], timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED
        )
        for future in (interrupted, happened):
            future.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await future
        self.check()

    def tell_end(self) -> None:
        """Ask the workers to end; in a hurry they release nothing."""
        self.ending = True
        self.tell(End(release=not self._interruption.hurried.is_set()))

    async def ended(self, settles_within: float) -> None:
        """Wait until all workers are gone; each has a time limit, to which the target's time to settle is added."""
        within = _ANSWER_WITHIN + settles_within
        await asyncio.gather(*(worker.ended(within) for worker in self.workers))

    def kill(self) -> None:
        """Kill the workers, which still wait for the target's first answer and have made nothing."""
        for worker in self.alive:
            worker.process.kill()

    def _heard(self, worker: WorkerProcess, message: Message | Gone) -> None:
        self.changed.set()
        match message:
            case Tick():
                self._ticked(worker.name, message)
            case Preparing():
                worker.said = timing.monotonic()
                parts = self._preparing.setdefault(message.what, {})
                parts[worker.name] = (message.done, message.goal)
                done, goal = (sum(column) for column in zip(*parts.values(), strict=True))
                self._watcher.preparing(message.what, done, goal)
            case Trouble():
                self._trouble = self._trouble or f"worker {worker.name}: {message.problem}"
            case Gone() if worker.done is None and not worker.refused and not self.ending:
                entry = next(entry for entry in self._record.manifest.workers if entry.name == worker.name)
                entry.status = "cut"
                self._record.save_manifest()
                fields = {"problem": worker.last_words} if worker.last_words else {}
                exit_code = worker.process.returncode
                self._record.event("worker-cut", worker=worker.name, exit_code=exit_code, **fields)
            case _:
                return
