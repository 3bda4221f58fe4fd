"""A run from its plan to its closed journals: stages one after the other, faults in between, nothing left behind.

With a conductor it is one unit's part of a run of many: the plan's part that is its share, whose stages begin and are
held when the conductor says, together with those of the other units.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from tippingpoint.analysis.held_loads import why_not_held
from tippingpoint.analysis.verdict import stage_checks, stage_saturated
from tippingpoint.errors import Refused, TargetError, UserError
from tippingpoint.plan.base import UNDONE_BY, Fault
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.fields import StageKind
from tippingpoint.plan.read import Plan
from tippingpoint.plan.share import begins_after, part_of, size_of
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.run.cleaning import clean_entries
from tippingpoint.run.faults import Action, LabControl
from tippingpoint.run.messages import (
    Answer,
    Begun,
    Command,
    End,
    Evict,
    Evicted,
    Hold,
    Message,
    Pause,
    Paused,
    Prepared,
    Preparing,
    Repair,
    Tick,
)
from tippingpoint.run.search import Found, find_load
from tippingpoint.run.worker import Job
from tippingpoint.run.worker_process import Gone, WorkerProcess, opened, start_worker, tidy_stderr
from tippingpoint.rundir.journal import RESCUE_PREFIX, Events
from tippingpoint.rundir.ledger import Entry, remember
from tippingpoint.rundir.manifest import (
    Host,
    Manifest,
    RunStatus,
    TargetEntry,
    WorkerEntry,
    new_run_id,
    process_started,
)
from tippingpoint.rundir.ownership import LastingEntry
from tippingpoint.rundir.results import load_run
from tippingpoint.targets.registry import target_of
from tippingpoint.units.conductor import Conductor
from tippingpoint.units.shared_run import Phase, Turn
from tippingpoint.util.exit_codes import BAD_INPUT, INTERRUPTED, TARGET_FAILED
from tippingpoint.util.open_files import allow_connections
from tippingpoint.util.text import choose, show_names
from tippingpoint.workloads.claim.workload import RELEASE_WITHIN
from tippingpoint.workloads.load import OWED, PrepareOrder, ShareOrder, StageOrder

_PREPARE_SILENCE = 300.0
"""Seconds without a word from a worker that makes what the stages need, after which it is taken for hung."""
_ANSWER_WITHIN = OWED + RELEASE_WITHIN + 10.0
_LATE = 1.0
"""Seconds after a turn's begin from which it is told that it was begun late."""
_HOLDS: Mapping[StageKind, Phase] = {
    "ramp": "hold",
    "storm": "storm hold",
    "find": "find hold",
    "confirm": "confirm hold",
}

T = TypeVar("T")
A = TypeVar("A", bound=Answer)


@dataclass(frozen=True)
class StageProgress:
    """Where a run is; sent each time a worker ticks."""

    elapsed: float
    stage: int
    stages: int | None
    """How many stages are listed; None in a search."""
    size: int
    kind: StageKind
    remaining: float | None
    """Seconds of hold left; None while the load is brought up."""
    listed: int | None = None
    """Which of the listed stages it is, from 1; `stage` counts storms too."""

    @property
    def phase(self) -> Phase:
        """What goes on in the stage."""
        if self.kind == "destroy":
            return "drain"
        return self.kind if self.remaining is None else _HOLDS[self.kind]


class RunnerEvents:
    """What a runner tells whoever watches it; the default watches nothing."""

    def began(self, manifest: Manifest, directory: Path) -> None:
        """The workers are ready; the first stage follows."""

    def progress(self, progress: StageProgress, worker: str, tick: Tick) -> None:
        """A worker's tick: its gauges, and the journal lines of its last interval."""

    def preparing(self, what: str, done: int, goal: int) -> None:
        """Something that the stages need is being made, by all workers together."""

    def removing(self, what: str, done: int, goal: int) -> None:
        """What the run made is being removed from the target."""

    def event(self, t: float, event: str, fields: dict[str, Any]) -> None:
        """Something single happened: a fault, a worker that is gone, a stage's end in a search."""


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


class _EndedEarly(Exception):
    """The run is to end now, with what it has."""

    def __init__(self, status: RunStatus, reason: str) -> None:
        self.status: RunStatus = status
        super().__init__(reason)


@dataclass(frozen=True)
class TakenUp:
    """A run that was cut, and that another one goes on with."""

    entry: LastingEntry
    """What it made, and under which names."""
    stage: int
    """The listed stage it was in, from 1: earlier ones are not done again."""


class Runner:
    """One run of a plan on this machine's cores. `interrupt` ends it early and in order, at any time.

    With `force`, what the target says it has no room for is tried all the same. With a `conductor` it is the part of
    `unit` in a run of many units, under an id of its own: it gets ready for the `share` (its index, of how many), and
    then has the shares that the turns say.
    """

    def __init__(
        self,
        plan: Plan,
        out: Path,
        watcher: RunnerEvents | None = None,
        *,
        force: bool = False,
        takes_up: TakenUp | None = None,
        run_id: str | None = None,
        conductor: Conductor | None = None,
        share: tuple[int, int] = (0, 1),
        unit: str = "",
    ) -> None:
        self._plan = plan
        self._target = target_of(plan.target.kind)
        self._conductor = conductor
        self._unit = unit
        self._share = share
        self._own = plan
        """The part of the plan that is ours."""
        self._force = force
        self._takes_up = takes_up
        self._watcher = watcher or RunnerEvents()
        self._started_wall = time.time()
        self._started = time.monotonic()
        self._id = run_id or new_run_id(plan.name, self._started_wall)
        self.directory = out / self._id
        self._rescue = Path(tempfile.gettempdir()) / f"{RESCUE_PREFIX}{self._id}"
        self._part = self._rescue.with_name(self._rescue.name + ".part")
        self._workers: list[WorkerProcess] = []
        self._made: list[Entry] = []
        self._taken = False
        self._began = False
        """Whether the target let us in, so that something may have been made since."""
        self._gone = ""
        """What somebody has removed from the target meanwhile, in a sentence."""
        self._preparing: dict[str, dict[str, tuple[int, int]]] = {}
        self._interrupt = asyncio.Event()
        self._changed = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stage: StageOrder | None = None
        self._first = takes_up.stage if takes_up is not None else 1
        self._stage_count = self._first - 1
        self._there = 0
        """How many things there was room for: those of the stage before, or of the one that is taken up."""
        self._reason = ""
        self._evicting = asyncio.Lock()
        self._hold_ends: float | None = None
        self._hold_began = 0.0
        self._fault_tasks: set[asyncio.Task[None]] = set()
        self._undone: list[Fault] = []
        self._ending = False
        self.measured = asyncio.Event()
        """Set when the workers have ended: the journals are whole, what was made is removed next."""
        self._lab = LabControl(plan.lab) if plan.lab is not None else None

    def interrupt(self, reason: str = "ended early on request") -> None:
        """End the run in order; a second call gives leases up to expire instead of releasing them."""
        if self._interrupt.is_set():
            self._hurry.set()
            for worker in self._workers:
                worker.tell(End(release=False))
        else:
            self._reason = reason
        self._interrupt.set()

    def repair(self) -> None:
        """Have what is kept up looked at now, and what was given up tried again: only containers are kept up so."""
        if self._stage is not None:
            for worker in self._workers:
                worker.tell(Repair())

    async def evict(self, member: str) -> str:
        """Have a member that is gone removed from the target by force, as one event of the run; returns why it was not,
        in one line, or nothing. UserError for a run that has nothing to do with members."""
        if not isinstance(self._plan, SpawnPlan):
            raise UserError("member", member, "a run that makes containers on LXD")
        async with self._evicting:
            worker = next((worker for worker in self._workers if worker.alive), None)
            if worker is None or self._stage is None or self._ending:
                return "no stage is on"
            answer = asyncio.create_task(worker.reply(Evicted))
            await asyncio.sleep(0)  # the reply is waited for before it is asked for
            worker.tell(Evict(member=member))
            said = await answer
        problem = "the worker that was to do it has ended" if said is None else said.problem
        if not self._ending:
            self._event("evict-member", member=member, problem=problem)
        return problem

    async def run(self) -> Path:
        """Run the plan; returns the run's directory, wherever it had to be.

        Raises UserError when the plan cannot be run here, TargetError when the target refuses us or cannot be reached,
        and Refused when it was interrupted before anything was made. These leave no directory, unless something of the
        target had been taken, or the part is a unit's.
        """
        self._check_conducted()
        await self._check_lab()
        self._own = part_of(self._plan, *self._share)
        if self._takes_up is not None and isinstance(self._own, SpawnPlan):
            self._there = self._own.stages[self._takes_up.stage - 1].size
        try:
            self.directory.mkdir(parents=True)
        except OSError as problem:
            raise UserError(
                "--out", str(self.directory.parent), f"a directory that can be written ({problem.strerror})"
            ) from None
        self._manifest = Manifest(
            id=self._id,
            title=self._plan.name,
            workload=self._plan.workload.kind,
            load_unit=self._plan.load_unit,
            target=TargetEntry(kind=self._plan.target.kind),
            plan=self._plan.model_dump(mode="json", exclude_none=True),
            unit=self._unit,
            share=self._share if self._conductor is not None else None,
            first_stage=self._first,
            things_of=self._takes_up.entry.run if self._takes_up is not None else "",
            started=self._started_wall,
            pid=os.getpid(),
            pid_started=process_started(os.getpid()),
            host=Host.here(),
            counted=True,
        )
        try:
            self._manifest.save(self.directory)
            self._events = Events(self.directory / "events.jsonl")
        except OSError as problem:
            raise UserError(
                "--out", str(self.directory), f"a directory with room in it ({problem.strerror})"
            ) from None
        status: RunStatus = "complete"
        reason = ""
        try:
            await self._open()
            self._watcher.began(self._manifest, self.directory)
            await self._load_target()
        except _EndedEarly as early:
            status, reason = early.status, str(early)
            if status == "interrupted" and not self._began and self._conductor is self._takes_up is None:
                for worker in self._workers:  # they wait for the target's first word, and have nothing of it
                    if worker.alive:
                        worker.process.kill()
                await self._close()
                if await self._clean(silently=True):
                    shutil.rmtree(self.directory, ignore_errors=True)
                    raise Refused(f"{reason}, before anything was made", INTERRUPTED) from None
            if status == "interrupted":
                self._event(status)
        except (UserError, TargetError, Refused) as refused:
            await self._close()
            bad_input = isinstance(refused, UserError) or (
                isinstance(refused, Refused) and refused.exit_code == BAD_INPUT
            )
            # What refused us at the first word has nothing of ours; a model may have been made before that.
            clean = not self._made or await self._clean(silently=bad_input)
            # What the directory would have is the line that is raised; a worker that broke has left its words there.
            unmet = not isinstance(refused, Refused) or refused.exit_code == TARGET_FAILED
            if clean and (bad_input or (unmet and not self._began and self._conductor is None)):
                shutil.rmtree(self.directory, ignore_errors=True)
            else:
                self._finish("failed", str(refused))
            raise
        except Exception as unexpected:  # nobody's but ours: what was made goes all the same
            await self._close()
            await self._clean()
            self._finish("failed", f"{type(unexpected).__name__}: {unexpected}")
            raise
        except BaseException:
            await self._close()
            raise
        await self._close()
        await self._clean()
        cut = [worker.name for worker in self._workers if worker.done is None]
        if cut and status == "complete":
            status = "cut"
            they = choose(len(cut), "it was", "they were")
            reason = f"{show_names(cut, 'worker')} of {len(self._workers)} ended before {they} told to"
        if self._gone and status == "complete":
            status, reason = self._without_what_it_made()
        return self._finish(status, reason)

    # -- opening and closing ---------------------------------------------------------------------

    def _check_conducted(self) -> None:
        """Refuse a plan that only one machine can run."""
        if self._conductor is None:
            return
        if isinstance(self._plan, ClaimPlan) and self._plan.find is not None:
            raise UserError("find", self._plan.name, "a plan that lists its stages, for many units")
        if self._plan.lab is not None or any(fault.member is not None for fault in self._plan.faults):
            raise UserError("faults", self._plan.name, "a plan whose faults need no lab, for many units")

    async def _check_lab(self) -> None:
        """Refuse a plan whose faults have nothing to act on before anything is made."""
        wanted = {fault.member for fault in self._plan.faults if fault.member is not None}
        if not wanted:
            return
        if self._lab is None:
            raise UserError("lab", "missing", "the control socket of a lab, as faults act on its members")
        there = {member.name for member in await self._lab.members()}
        if wanted - there:
            raise UserError(
                "faults.member", ", ".join(sorted(wanted - there)), f"one of {', '.join(sorted(there))}"
            )

    async def _open(self) -> None:
        count = self._plan.workers or len(os.sched_getaffinity(0))
        if isinstance(self._own, SpawnPlan):  # a group is one worker's
            count = max(1, min(count, max(stage.groups for stage in self._own.stages)))
        self._check_size(count)
        if self._takes_up is not None:
            entry: Entry = self._takes_up.entry
            self._made.append(entry)  # it is there, and ours to remove, however early this ends
        else:
            entry = self._target.new_entry(self._plan, self._id, self.directory.resolve())
        remember(self.directory, entry)
        await self._unless_interrupted(self._target.reach(entry))
        if self._takes_up is None and not entry.made_by_workers:
            self._made.append(entry)
        await self._make_room(self._first)
        self._began = not entry.made_by_workers  # else these are the first to ask the target anything
        workspace = await self._unless_interrupted(self._target.take(entry, self._plan, self._note))
        self._taken = True
        self._manifest.workers = [WorkerEntry(name=str(index)) for index in range(count)]
        for index in range(count):
            job = Job(
                plan=self._plan,
                share=self._share,
                directory=self.directory.resolve(),
                rescue=self._rescue,
                name=str(index),
                workspace=workspace.model_dump(mode="json"),
                started_wall=self._started_wall,
                started=self._started,
            )
            try:
                self._workers.append(await start_worker(job, self._heard))
            except OSError as problem:
                raise Refused(f"worker {index}: cannot be started: {problem.strerror}", 4) from None
        facts = await self._unless_interrupted(asyncio.gather(*(opened(worker) for worker in self._workers)))
        self._began = True
        if entry.made_by_workers:
            self._made.append(entry)
        self._manifest.target = TargetEntry.model_validate(facts[0], from_attributes=True)
        self._save_manifest()

    async def _unless_interrupted(self, work: Awaitable[T]) -> T:
        """The result of some work, which is given up when the run is interrupted meanwhile."""
        working = asyncio.ensure_future(work)
        interrupted = asyncio.create_task(self._interrupt.wait())
        await asyncio.wait([working, interrupted], return_when=asyncio.FIRST_COMPLETED)
        interrupted.cancel()
        if not working.done():
            working.cancel()
            # It may see what it was at to its end, unless we are in a hurry.
            hurried = asyncio.create_task(self._hurry.wait())
            await asyncio.wait([working, hurried], return_when=asyncio.FIRST_COMPLETED)
            hurried.cancel()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            self._check_alive()
        return working.result()

    def _check_size(self, workers: int) -> None:
        """Refuse a plan that needs more connections than a worker's process may open."""
        for field, (size, connections) in self._target.connections(self._own).items():
            fits = allow_connections(-(-size // workers) * connections) // connections * workers
            if fits < size:
                raise UserError(
                    field,
                    size,
                    f"at most {fits}, as each of {workers} workers has a connection for every unit and may open "
                    f"no more files (ulimit -n); more workers fit more",
                )

    async def _close(self) -> None:
        """End the workers, in order where they listen, and meanwhile undo what faults left undone."""
        self._ending = True
        for task in self._fault_tasks:
            task.cancel()
        for worker in self._workers:
            worker.tell(End(release=not self._hurry.is_set()))
        # Each worker may spend its drain and its releases, and a little for its connections and files.
        within = _ANSWER_WITHIN + self._target.settles_within
        await asyncio.gather(
            *(worker.ended(within) for worker in self._workers),
            *(self._undo(fault) for fault in [*self._undone]),
        )
        self.measured.set()

    async def _clean(self, *, silently: bool = False) -> bool:
        """Remove what no worker could give back; whether nothing of ours is left, as far as we know.

        Silently, only what is left is told: what was refused says why in one line.
        """
        remedy = f"tippingpoint clean {self.directory}"
        things = max((size for _, size in self._own.loads), default=0)
        if isinstance(self._own, SpawnPlan):
            things += max(stage.groups for stage in self._own.stages)
        within = self._target.clean_within(things)
        cleaning = asyncio.ensure_future(clean_entries(self._made, self._id, self._watcher.removing))
        hurried = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait([hurried, cleaning], timeout=within, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        cleaning.cancel()  # unless it has ended
        await asyncio.wait([cleaning])
        try:
            removed = cleaning.result()
        except (TargetError, UserError, asyncio.CancelledError) as problem:
            given_up = "left as it is, as asked" if self._hurry.is_set() else f"not done within {within:g} s"
            self._event("left-behind", problem=str(problem) or given_up, remedy=remedy)
            return False
        if removed:
            if not silently:
                self._event("cleaned", removed=removed)
        elif self._taken and (gone := next(filter(None, (entry.always_there for entry in self._made)), "")):
            self._gone = f"{gone} was gone before the run ended"
            self._event("model-gone", problem=self._gone)
        return True

    def _without_what_it_made(self) -> tuple[RunStatus, str]:
        """What a run is whose model somebody has removed: a real Juju 4.0.15 keeps its units' connections then, and
        goes on granting them leases."""
        if not isinstance(self._plan, ClaimPlan):
            return "cut", self._gone
        reason = f"{self._gone}; leases after that were of units that no longer existed"
        # Nobody knows which probes were before that, so that a search has found nothing.
        return ("cut" if self._plan.find is None else "failed"), reason

    def _finish(self, status: RunStatus, reason: str) -> Path:
        """Close the run's own files; when the disk is full the whole run moves to where there is room."""
        self._manifest.status = status
        self._manifest.reason = reason
        self._manifest.ended = time.time()
        self._manifest.pid = None
        for worker, entry in zip(self._workers, self._manifest.workers, strict=False):
            entry.status = "complete" if worker.done is not None else "cut"
        if not self.directory.is_dir():
            raise UserError(
                "--out",
                str(self.directory),
                "the run's directory to stay there while it is written (it is gone)",
            )
        tidy_stderr(self.directory)
        lost = [worker.done.problem for worker in self._workers if worker.done and worker.done.problem]
        if lost:
            self._event("journal-lost", problem="; ".join(lost))
        try:
            self._events.close(self._rescue)
            if self._save_manifest() and not self._rescue.exists():
                return self.directory
            return self._move_to_rescue()
        except OSError as problem:
            # No room here and none there: what is on the disk is what there is.
            shutil.rmtree(self._part, ignore_errors=True)
            with contextlib.suppress(OSError):
                self._rescue.rmdir()  # unless tails are in it
            self._manifest.reason = f"no room left, here or in {self._rescue}: {problem.strerror}"
            self._save_manifest()
            return self.directory

    def _move_to_rescue(self) -> Path:
        """Put the run's files together where there is room; the tails of what did not fit are there already."""
        gathered = self._part
        gathered.mkdir()
        tails = self._rescue if self._rescue.exists() else gathered
        # The password of a user that a run made is of no use any more, and nobody else's to read.
        passwords = [path for entry in self._made for path in entry.passwords]
        for path in self.directory.iterdir():
            if path.resolve() in passwords:
                continue
            with open(gathered / path.name, "wb") as whole:
                for part in (path, tails / path.name):
                    if part.exists() and part.parent != gathered:
                        with open(part, "rb") as source:
                            shutil.copyfileobj(source, whole)
        self._manifest.reason = (
            self._manifest.reason
            or f"no room left in {self.directory.parent}: the whole run is in {self._rescue}"
        )
        self._manifest.save(gathered)
        if tails is not gathered:
            shutil.rmtree(tails)
        gathered.rename(self._rescue)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory = self._rescue
        return self._rescue

    def _save_manifest(self) -> bool:
        try:
            self._manifest.save(self.directory)
        except OSError:
            (self.directory / "manifest.json.new").unlink(missing_ok=True)
            return False
        return True

    # -- the load --------------------------------------------------------------------------------

    async def _load_target(self) -> None:
        plan = self._plan
        if isinstance(plan, ClaimPlan) and plan.find is not None:
            self._start_faults(stage=None)
            self._say_found(await find_load(plan.find, self._probe))
            return
        await self._prepare(self._largest, fresh=False)
        if self._conductor is not None:
            await self._take_turns(self._conductor)
            return
        self._start_faults(stage=None)
        for number, (stage, (kind, size)) in enumerate(zip(plan.stages, plan.loads, strict=True), start=1):
            if number < self._first:
                continue
            if number > self._first:
                refused = await self._look_for_room(number)
                if refused:
                    raise _EndedEarly("cut", refused)
            await self._run_stage(kind, size, stage.over, stage.hold, listed=number)

    @property
    def _largest(self) -> int:
        """The most load that our part has in any stage."""
        return max(size_of(self._plan, self._own, stage) for stage in range(1, len(self._own.stages) + 1))

    async def _look_for_room(self, stage: int) -> str:
        """Make room for a stage, or say why it cannot be begun."""
        try:
            await self._make_room(stage)
        except UserError as refused:
            return f"stage {stage} was not begun: {refused}"
        except TargetError as problem:  # it fails: what becomes of the stage will be seen
            self._event("room-unknown", stage=stage, problem=str(problem))
        return ""

    async def _make_room(self, stage: int) -> None:
        """Have the members that a stage asks for, as far as a lab starts them; UserError when it does not fit."""
        plan = self._own
        if not isinstance(plan, SpawnPlan):
            return
        await self._unless_interrupted(self._start_members(plan.stages[stage - 1].members or 0))
        if not self._force:
            await self._unless_interrupted(self._check_room(stage))

    async def _check_room(self, stage: int) -> None:
        try:
            await self._target.check_room(self._made[0], self._own, stage, self._there)
        except UserError as refused:
            if refused.field.startswith("target."):
                raise
            field = f"stages.{stage - 1}.{refused.field}"
            raise UserError(field, refused.value, refused.accepted) from None

    async def _start_members(self, wanted: int) -> None:
        """Have a lab start members, in its order, until so many run."""
        if self._lab is None or not wanted:
            return
        members = await self._lab.members()
        running = sum(member.running for member in members)
        for member in members:
            if running < wanted and not member.running:
                await self._lab.act("start", member.name)
                self._undone = [undone for undone in self._undone if undone.member != member.name]
                running += 1
                self._event("member-started", member=member.name)

    async def _prepare(self, size: int, *, fresh: bool) -> None:
        """Have the workers make what stages up to this size need; a failure ends the run with what it has."""
        everyone = len(self._workers)
        orders = {
            worker: PrepareOrder(size=size, share=(index, everyone), fresh=fresh)
            for index, worker in enumerate(self._workers)
        }
        answers = await self._ask(Prepared, orders, within=_PREPARE_SILENCE)
        self._preparing.clear()
        problems = [answer.problem for answer in answers if answer.problem]
        if problems:
            raise _EndedEarly("failed", problems[0])

    async def _run_stage(
        self, kind: StageKind, size: int, over: float, hold: float, *, listed: int | None
    ) -> int:
        """Bring a load up and hold it; returns the number of the stage as the journals have it."""
        number = await self._begin(self._stage_count + 1, kind, size, over, listed)
        await self._brought_up(over, removing=kind == "destroy")
        self._begin_hold(hold)
        if listed is not None:
            self._start_faults(stage=listed)
        held_since = self._hold_began
        for fault in sorted(self._storms(listed), key=lambda fault: fault.at):
            await self._wait(held_since + fault.at - time.monotonic())
            self._event("fault", do=fault.do)
            await self._begin(self._stage_count + 1, "storm", size, 0.0, listed)
            await self._brought_up(0.0, removing=False)
            self._begin_hold(hold)
        await self._wait(hold - (time.monotonic() - self._hold_began))
        return number

    async def _begin(self, number: int, kind: StageKind, size: int, over: float, listed: int | None) -> int:
        self._stage_count = number
        self._hold_ends = None
        if isinstance(self._own, SpawnPlan) and listed is not None:
            self._there = self._own.stages[listed - 1].size
        orders = {
            worker: StageOrder(
                number=number,
                size=size,
                kind=kind,
                over=over,
                share=(index, len(self._workers)),
                listed=listed,
            )
            for index, worker in enumerate(self._workers)
        }
        self._stage = next(iter(orders.values()))
        await self._ask(Begun, orders)
        return number

    async def _ask(
        self, kind: type[A], commands: Mapping[WorkerProcess, Command], within: float = _ANSWER_WITHIN
    ) -> list[A]:
        """Send every worker its command and wait for its answer; one that stays silent is taken for cut.

        Silent is who says nothing but ticks for `within` seconds. Returns the answers there are.
        """
        replies: dict[WorkerProcess, asyncio.Task[A | None]] = {}
        for worker in commands:
            if worker.alive:
                worker.said = time.monotonic()
                replies[worker] = asyncio.create_task(worker.reply(kind))
        await asyncio.sleep(0)  # the replies are waited for before they are asked for
        for worker in replies:
            worker.tell(commands[worker])
        interrupted = asyncio.create_task(self._interrupt.wait())
        pending: set[asyncio.Task[A | None]] = set(replies.values())
        left = within
        while pending and not self._interrupt.is_set():
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
        self._check_alive()
        return [
            found
            for reply in replies.values()
            if reply.done() and not reply.cancelled() and (found := reply.result()) is not None
        ]

    def _begin_hold(self, hold: float) -> None:
        self._hold_began = time.monotonic()
        self._hold_ends = self._hold_began + hold
        for worker in self._workers:
            worker.tell(Hold())

    async def _brought_up(self, over: float, *, removing: bool) -> None:
        """Wait until the stage's load is there, or nothing has come of it for as long as an operation may take.

        What is made is tried again where that takes too long, so it is given the time of a second try: of a service
        that was killed all that it had been told may hang.
        """
        patience = self._plan.workload.timeout * (1 if isinstance(self._plan, ClaimPlan) else 2)
        begun = time.monotonic() - self._started
        deadline = time.monotonic() + over + patience
        headway = Headway(removing=removing, making=not isinstance(self._plan, ClaimPlan))
        while time.monotonic() < deadline:
            current = [worker for worker in self._workers if worker.alive]
            # What was there before the stage says nothing of it: a storm begins with less, a removal with more.
            heard = {
                worker.name: worker.tick
                for worker in current
                if worker.tick is not None and worker.tick.t > begun
            }
            if len(heard) == len(current) and all(tick.up for tick in heard.values()):
                return
            if headway.made(heard):
                deadline = max(deadline, time.monotonic() + patience)
            self._changed.clear()
            await self._wait_for(self._changed, deadline - time.monotonic())

    async def _probe(self, size: int, kind: Literal["find", "confirm"]) -> bool:
        assert isinstance(self._plan, ClaimPlan)
        assert self._plan.find is not None
        await self._prepare(size, fresh=True)
        number = await self._run_stage(kind, size, self._plan.find.over, self._plan.find.hold, listed=None)
        await self._ask(Paused, dict.fromkeys(self._workers, Pause()))
        if any(worker.tick is not None and worker.tick.unwritten for worker in self._workers):
            raise _EndedEarly("cut", "no room left for the journal, which the search goes by")
        so_far = await asyncio.to_thread(load_run, self.directory)
        measured = so_far.stage(number)
        checks = stage_checks(measured, self._plan.thresholds)
        broken = [f"{check.operation} {check.limit}" for check in checks if not check.met]
        not_held = why_not_held(so_far, measured)
        broken += [not_held] if not_held else []
        saturated = stage_saturated(measured)
        self._event(
            "probe",
            stage=number,
            size=size,
            held=not broken,
            broken=broken,
            saturated=saturated,
        )
        return not broken

    def _say_found(self, found: Found) -> None:
        self._event(
            "found",
            held=found.held,
            broken=found.broken,
            confirmed=found.confirmed,
            agreeing=found.agreeing,
            repeats=found.repeats,
        )

    # -- turns -----------------------------------------------------------------------------------

    async def _take_turns(self, conductor: Conductor) -> None:
        """Bring our share of each turn up and hold it, when the conductor says, until there is no further turn."""
        await self._heed(conductor.ready())
        turn = await self._heed(conductor.next_turn())
        while turn is not None:
            refused = await self._get_ready(turn, conductor.index)
            begin = turn.begin
            if turn.kind != "storm":
                begin += begins_after(self._plan, turn.stage, *self._share)
            try:
                # It may be replaced by another one until it begins.
                turn = await self._heed(conductor.next_turn(), until=begin)
                continue
            except TimeoutError:
                pass
            if refused:
                raise _EndedEarly("cut", refused)
            turn = await self._take_turn(conductor, turn, time.time() - begin)
        if conductor.stopped:
            raise _EndedEarly("interrupted", conductor.stopped)
        if self._hold_ends is not None:
            await self._wait(self._hold_ends - time.monotonic())

    async def _take_turn(self, conductor: Conductor, turn: Turn, late: float) -> Turn | None:
        """Play one turn, which begins now; returns what follows it, as soon as that is known."""
        if late > _LATE:
            self._event("began-late", stage=turn.number, seconds=round(late, 3))
        size = size_of(self._plan, self._own, turn.stage)
        over = 0.0 if turn.kind == "storm" else self._own.stages[turn.stage - 1].over
        await self._begin(turn.number, turn.kind, size, over, turn.stage)
        await self._brought_up(over, removing=turn.kind == "destroy")
        hold = await self._heed(conductor.up(turn))
        if hold is None:
            return None
        await self._wait(hold - time.time())
        self._begin_hold(max(0.0, hold + turn.lasts - time.time()))
        return await self._heed(conductor.next_turn())

    async def _get_ready(self, turn: Turn, index: int) -> str:
        """Have the share of a turn that is to come, and room for it; returns why it cannot be begun, or nothing."""
        share = index, turn.of
        if share != self._share:
            try:
                self._own = part_of(self._plan, *share)
            except UserError as refused:
                return str(refused)
            self._share = self._manifest.share = share
            self._event("share", index=index, of=turn.of)
            for worker in self._workers:
                worker.tell(ShareOrder(index=index, of=turn.of))
            await self._prepare(self._largest, fresh=False)
        if self._stage is None:
            self._manifest.first_stage = turn.stage
        self._save_manifest()
        return await self._look_for_room(turn.stage)

    async def _heed(self, saying: Awaitable[T], until: float = float("inf")) -> T:
        """What the conductor says, while the run goes on; TimeoutError when it has said nothing until then (seconds
        since the epoch)."""
        deadline = time.monotonic() + until - time.time()
        said = asyncio.ensure_future(saying)
        said.add_done_callback(lambda _: self._changed.set())
        try:
            await asyncio.sleep(0)  # so that what is known is said, however late it is
            while not said.done():
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self._changed.clear()
                await self._wait_for(self._changed, min(left, 1.0))
            return said.result()
        finally:
            said.cancel()

    # -- faults ----------------------------------------------------------------------------------

    def _start_faults(self, stage: int | None) -> None:
        for fault in self._plan.faults:
            if fault.stage == stage and fault.member is not None:
                task = asyncio.create_task(self._inject(fault))
                self._fault_tasks.add(task)
                task.add_done_callback(self._fault_tasks.discard)

    def _storms(self, listed: int | None) -> list[Fault]:
        return [fault for fault in self._plan.faults if fault.do == "drop-claims" and fault.stage == listed]

    async def _inject(self, fault: Fault) -> None:
        assert fault.do != "drop-claims"  # that is a stage of its own, see _run_stage
        await asyncio.sleep(fault.at)
        if fault.do in UNDONE_BY:
            self._undone.append(fault)
        else:
            self._undone = [undone for undone in self._undone if undone.member != fault.member]
        await self._act(fault.do, fault.member)
        if fault.undo_after is not None:
            await asyncio.sleep(fault.undo_after)
            await self._undo(fault)

    async def _undo(self, fault: Fault) -> None:
        await self._act(UNDONE_BY[fault.do], fault.member)
        if fault in self._undone:
            self._undone.remove(fault)  # only now: cut off in between, it is still to be done

    async def _act(self, do: Action, member: str | None) -> None:
        assert self._lab is not None
        assert member is not None
        try:
            await self._lab.act(do, member)
        except UserError as problem:
            self._event("fault-failed", do=do, member=member, problem=str(problem))
            return
        self._event("fault", do=do, member=member)

    # -- listening -------------------------------------------------------------------------------

    def _heard(self, worker: WorkerProcess, message: Message | Gone) -> None:
        self._changed.set()
        match message:
            case Tick():
                self._heard_tick(worker, message)
            case Preparing():
                worker.said = time.monotonic()
                parts = self._preparing.setdefault(message.what, {})
                parts[worker.name] = (message.done, message.goal)
                done, goal = (sum(column) for column in zip(*parts.values(), strict=True))
                self._watcher.preparing(message.what, done, goal)
            case Gone() if worker.done is None and not self._ending:
                entry = next(entry for entry in self._manifest.workers if entry.name == worker.name)
                entry.status = "cut"
                self._save_manifest()
                self._event("worker-cut", worker=worker.name, exit_code=worker.process.returncode)
            case _:
                return

    def _heard_tick(self, worker: WorkerProcess, tick: Tick) -> None:
        if self._stage is None:
            return
        left = None if self._hold_ends is None else max(0.0, self._hold_ends - time.monotonic())
        self._watcher.progress(
            StageProgress(
                elapsed=time.monotonic() - self._started,
                stage=self._stage.number,
                stages=len(self._plan.stages) or None,
                size=self._stage.size,
                kind=self._stage.kind,
                remaining=left,
                listed=self._stage.listed,
            ),
            worker.name,
            tick,
        )

    def _event(self, event: str, **fields: object) -> None:
        t = time.monotonic() - self._started
        self._events.write(t, event, **fields)
        self._watcher.event(t, event, fields)

    def _note(self, text: str) -> None:
        """Have the report say something of the data itself."""
        self._event("note", text=text)

    def _check_alive(self) -> None:
        if self._interrupt.is_set():
            raise _EndedEarly("interrupted", self._reason)
        if not self.directory.is_dir():
            raise _EndedEarly("failed", "its directory is gone")
        if not any(worker.alive for worker in self._workers):
            raise _EndedEarly("cut", "every worker ended before it was told to")

    async def _wait(self, seconds: float) -> None:
        """Wait, unless the run is interrupted or its last worker is gone."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            self._check_alive()
            await self._wait_for(self._interrupt, min(left, 1.0))
        self._check_alive()

    async def _wait_for(self, event: asyncio.Event, seconds: float) -> None:
        interrupted = asyncio.ensure_future(self._interrupt.wait())
        happened = asyncio.ensure_future(event.wait())
        await asyncio.wait(
            [interrupted, happened], timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED
        )
        for future in (interrupted, happened):
            future.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await future
        self._check_alive()
