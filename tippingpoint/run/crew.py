"""The workers of a run together: opened, asked, listened to, waited for, and ended."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tippingpoint.errors import Refused
from tippingpoint.run.interruption import EndedEarly, Interruption
from tippingpoint.run.messages import Answer, Command, End, Message, Prepared, Preparing, Tick
from tippingpoint.run.record import Record
from tippingpoint.run.watcher import RunnerEvents
from tippingpoint.run.worker import Job
from tippingpoint.run.worker_process import Gone, WorkerProcess, opened, start_worker
from tippingpoint.rundir.manifest import WorkerEntry
from tippingpoint.workloads.claim.workload import RELEASE_WITHIN
from tippingpoint.workloads.load import OWED, PrepareOrder, TargetFacts

_ANSWER_WITHIN = OWED + RELEASE_WITHIN + 10.0
"""Seconds that a worker may spend on its drain and its releases, and a little for its connections and files."""
_PREPARE_SILENCE = 300.0
"""Seconds without a word from a worker that makes what the stages need, after which it is taken for hung."""

A = TypeVar("A", bound=Answer)


class Headway:
    """Whether the workers get on with a stage, by their ticks: any of them may, whatever becomes of the others.

    Bringing leases up, what is held and what waits for a release grow. What is made comes to be there, and what is
    still to be made becomes less; taking things away, both become less.
    """

    def __init__(self, *, removing: bool, making: bool = False) -> None:
        self._held = -1 if removing else 1
        self._waiting = -1 if removing or making else 1
        self._furthest: dict[str, int] = {}

    def made(self, ticks: Mapping[str, Tick]) -> bool:
        """Whether any worker, by its name, is further with its latest tick of the stage than with those before."""
        ahead = False
        for worker, tick in ticks.items():
            there = self._held * tick.held + self._waiting * tick.waiting
            if worker not in self._furthest or there > self._furthest[worker]:
                self._furthest[worker] = there
                ahead = True
        return ahead


class Crew:
    """All workers of a run. Whatever waits here ends with EndedEarly when the run is to end meanwhile."""

    def __init__(
        self,
        record: Record,
        interruption: Interruption,
        watcher: RunnerEvents,
        ticked: Callable[[str, Tick], None],
    ) -> None:
        """`ticked` is told each tick of a worker, by its name."""
        self.workers: list[WorkerProcess] = []
        self.changed = asyncio.Event()
        """Set whenever a worker says something; waited for with `wait_for`."""
        self.ending = False
        self._record = record
        self._interruption = interruption
        self._watcher = watcher
        self._ticked = ticked
        self._preparing: dict[str, dict[str, tuple[int, int]]] = {}

    @property
    def alive(self) -> list[WorkerProcess]:
        """Those that have not ended."""
        return [worker for worker in self.workers if worker.alive]

    @property
    def cut(self) -> list[str]:
        """The names of those that ended before they were told to."""
        return [worker.name for worker in self.workers if worker.done is None]

    async def open(self, jobs: Sequence[Job]) -> TargetFacts:
        """Start a worker on each job, and wait until all have opened their load; Refused where one cannot."""
        self._record.manifest.workers = [WorkerEntry(name=job.name) for job in jobs]
        for job in jobs:
            try:
                self.workers.append(await start_worker(job, self._heard))
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

    async def prepare(self, size: int, *, fresh: bool) -> None:
        """Have the workers make what stages up to this size need; a failure ends the run with what it has."""
        answers = await self.ask(
            Prepared,
            lambda share: PrepareOrder(size=size, share=share, fresh=fresh),
            within=_PREPARE_SILENCE,
        )
        self._preparing.clear()
        problems = [answer.problem for answer in answers if answer.problem]
        if problems:
            raise EndedEarly("failed", problems[0])

    async def ask(
        self, kind: type[A], command: Callable[[tuple[int, int]], Command], within: float = _ANSWER_WITHIN
    ) -> list[A]:
        """Send every worker the command for its share (index, of how many) and wait for its answer.

        One that stays silent is taken for cut: who says nothing but ticks for `within` seconds. Returns the answers
        there are.
        """
        commands = {worker: command((index, len(self.workers))) for index, worker in enumerate(self.workers)}
        replies: dict[WorkerProcess, asyncio.Task[A | None]] = {}
        for worker in self.alive:
            worker.said = time.monotonic()
            replies[worker] = asyncio.create_task(worker.reply(kind))
            worker.tell(commands[worker])
        interrupted = asyncio.create_task(self._interruption.asked.wait())
        pending: set[asyncio.Task[A | None]] = set(replies.values())
        left = within
        while pending and not self._interruption.asked.is_set():
            heard = max(worker.said for worker, reply in replies.items() if reply in pending)
            left = heard + within - time.monotonic()
            if left <= 0:
                break
            await asyncio.wait([*pending, interrupted], timeout=left, return_when=asyncio.FIRST_COMPLETED)
            pending = {reply for reply in pending if not reply.done()}
            if any(reply.done() and (said := reply.result()) and said.problem for reply in replies.values()):
                break  # one that cannot go on is enough: the others are ended in order
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
        """The last ticks of those that are alive, by worker, where they came later in the run."""
        return {
            worker.name: worker.tick
            for worker in self.alive
            if worker.tick is not None and worker.tick.t > moment
        }

    @property
    def unwritten(self) -> bool:
        """Whether something of a journal waits in memory because the disk is full."""
        return any(worker.tick is not None and worker.tick.unwritten for worker in self.workers)

    def check(self) -> None:
        """Raise EndedEarly where the run cannot go on."""
        self._interruption.check()
        if not self._record.directory.is_dir():
            raise EndedEarly("failed", "its directory is gone")
        if not self.alive:
            raise EndedEarly("cut", "every worker ended before it was told to")

    async def wait(self, seconds: float) -> None:
        """Wait, unless the run is interrupted or its last worker is gone."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self.check()
            await self.wait_for(self._interruption.asked, min(left, 1.0))
        self.check()

    async def wait_for(self, event: asyncio.Event, seconds: float) -> None:
        """Wait for an event, at most so long, unless the run is interrupted."""
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
        """Have the workers end, in order; in a hurry they give nothing back."""
        self.ending = True
        self.tell(End(release=not self._interruption.hurried.is_set()))

    async def ended(self, settles_within: float) -> None:
        """Wait until all are gone; each has some seconds for that, and those that it needs to settle."""
        within = _ANSWER_WITHIN + settles_within
        await asyncio.gather(*(worker.ended(within) for worker in self.workers))

    def kill(self) -> None:
        """End the workers at once: they wait for the target's first word, and have nothing of it."""
        for worker in self.alive:
            worker.process.kill()

    def _heard(self, worker: WorkerProcess, message: Message | Gone) -> None:
        self.changed.set()
        match message:
            case Tick():
                self._ticked(worker.name, message)
            case Preparing():
                worker.said = time.monotonic()
                parts = self._preparing.setdefault(message.what, {})
                parts[worker.name] = (message.done, message.goal)
                done, goal = (sum(column) for column in zip(*parts.values(), strict=True))
                self._watcher.preparing(message.what, done, goal)
            case Gone() if worker.done is None and not self.ending:
                entry = next(entry for entry in self._record.manifest.workers if entry.name == worker.name)
                entry.status = "cut"
                self._record.save_manifest()
                self._record.event("worker-cut", worker=worker.name, exit_code=worker.process.returncode)
            case _:
                return
