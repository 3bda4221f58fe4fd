"""Runs a plan, up to closed journals: plays its stages and faults in order, and removes everything it created.

With a conductor, it plays one unit's part of a run of many: that unit's share of the plan. The conductor says when
stages and their holds begin, for all units at the same time.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tippingpoint.errors import Refused, TargetError, UserError
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.figures import figures_of
from tippingpoint.plan.read import AnyStage, Plan
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.play.alone import Alone
from tippingpoint.play.beside import beside_target
from tippingpoint.play.capacity_gate import CapacityGate
from tippingpoint.play.closing import Closing
from tippingpoint.play.conductor import Conductor
from tippingpoint.play.fault_timeline import FaultTimeline
from tippingpoint.play.files import allow_files
from tippingpoint.play.interruption import EndedEarly, Interruption
from tippingpoint.play.inventory import Inventory
from tippingpoint.play.machine_watch import MachineWatch
from tippingpoint.play.messages import End, Evict, Evicted, Repair, Tick
from tippingpoint.play.plan_share import PlanShare
from tippingpoint.play.record import Record
from tippingpoint.play.resume import ResumedRun
from tippingpoint.play.stages import Stages
from tippingpoint.play.turns import Turns
from tippingpoint.play.watcher import RunnerEvents
from tippingpoint.play.worker import Job
from tippingpoint.play.worker_count import worker_count
from tippingpoint.play.worker_pool import WorkerPool
from tippingpoint.play.worker_process import StartWorker, start_worker
from tippingpoint.rundir.clock import boot_id
from tippingpoint.rundir.manifest import Host, Manifest, Places, TargetEntry, process_started
from tippingpoint.targets.registry import target_of

if TYPE_CHECKING:  # only some runs need what these import
    from tippingpoint.play.lower_turns import LowerTurns
    from tippingpoint.play.profiler import Profiler
    from tippingpoint.play.run_figures import RunFigures

_LOGIN_WITHIN = 60.0
"""Seconds that a login may take after a load that got no answers."""


class Runner:
    """One run of a plan on this machine's cores. `interrupt` ends it early, in an orderly way, at any time.

    With `force`, the target is not asked whether it has room. With a `conductor`, this is the part of `unit` in a run
    of many units, under an id of its own. It prepares for the `share` (its index, of how many), and then plays the
    shares that the turns name. `figures` are the Prometheus figures that thresholds refer to. `start_worker` starts the
    workers; by default each is a process.
    """

    def __init__(
        self,
        plan: Plan,
        out: Path,
        watcher: RunnerEvents | None = None,
        *,
        force: bool = False,
        takes_up: ResumedRun | None = None,
        run_id: str | None = None,
        conductor: Conductor | None = None,
        share: tuple[int, int] = (0, 1),
        unit: str = "",
        figures: RunFigures | None = None,
        start_worker: StartWorker = start_worker,
    ) -> None:
        self._plan = plan
        self._figures = figures
        self._target = target = target_of(plan.target.kind)
        self._conductor = conductor
        self._unit = unit
        self._takes_up = takes_up
        self._first = takes_up.stage if takes_up is not None else 1
        """The stage that the run begins with."""
        self._watcher = watcher or RunnerEvents()
        self._evicting = asyncio.Lock()

        self._plan_share = PlanShare(plan, share)
        self._interruption = Interruption()
        self._record = record = Record(plan.name, out, run_id, self._watcher)
        self._pool = WorkerPool(record, self._interruption, self._watcher, self._ticked, start_worker)
        self._faults = FaultTimeline(plan, record)
        self._machine = MachineWatch(record, plan.lab)
        self._heard: Callable[[Tick], None] | None = None
        self._warned: Callable[[Tick, bool], str] | None = None
        self._inventory = Inventory(
            target, self._plan_share, record, self._interruption, self._watcher, takes_up
        )
        self._gate = CapacityGate(
            target, self._plan_share, self._inventory, self._faults, record, self._interruption, force=force
        )
        self._stages = Stages(self._plan_share, self._pool, self._faults, self._gate, record)
        self._closing = Closing(
            plan,
            target,
            record,
            self._pool,
            self._faults,
            self._inventory,
            figures=figures,
            of_unit=conductor is not None,
            takes_up=takes_up is not None and takes_up.entry is not None,
        )

    @property
    def directory(self) -> Path:
        """The run's directory. At the end it may move to where there is disk space."""
        return self._record.directory

    @property
    def measured(self) -> asyncio.Event:
        """Set when the workers have ended: the journals are whole, and the removal comes next."""
        return self._closing.measured

    def interrupt(self, reason: str = "ended early on request") -> None:
        """End the run in an orderly way; after a second call, leases are left to expire instead of released."""
        self._interruption.ask(reason)
        if self._interruption.hurried.is_set():
            self._pool.tell(End(release=False))

    def repair(self) -> None:
        """Check the maintained containers now, and retry those that were given up; no effect on other loads."""
        if self._stages.begun:
            self._pool.tell(Repair())

    async def evict(self, member: str) -> str:
        """Remove a dead member from the target by force, and record that as an event; returns why that failed, or an
        empty text.

        Raises UserError for a run without members.
        """
        if not isinstance(self._plan, SpawnPlan):
            raise UserError("member", member, "a run of the workload spawn")
        async with self._evicting:
            worker = next(iter(self._pool.alive), None)
            if worker is None or not self._stages.begun or self._pool.ending:
                return "no stage is running"
            answer = worker.reply(Evicted)
            worker.tell(Evict(member=member))
            said = await answer
        problem = "the worker that was to remove the member has ended" if said is None else said.problem
        if not self._pool.ending:
            self._record.event("evict-member", member=member, problem=problem)
        return problem

    async def run(self) -> Path:
        """Run the plan; returns the run's directory, wherever it ended up.

        Raises UserError when the plan cannot run here, TargetError when the target refuses us or cannot be reached,
        and Refused when the run was interrupted before it made anything. No directory is left in these cases, unless
        something may have been made on the target, or the part is a unit's.
        """
        self._check_conducted()
        self._check_figures()
        await self._faults.check()
        if self._figures is not None:
            await self._interruption.unless_asked(self._figures.open())
        async with beside_target(self._plan.lab) as places:
            return await self._run(places)

    async def _run(self, places: Places | None) -> Path:
        self._take_part()
        self._open_record(places)
        try:
            await self._open_target()
            await self._load_target()
        except EndedEarly as early:
            return await self._closing.early(early)
        except (UserError, TargetError, Refused) as refused:
            await self._closing.refused(refused)
            raise
        except Exception as unexpected:
            await self._closing.broken(unexpected)
            raise
        except BaseException:
            await self._closing.end_workers()
            raise
        return await self._closing.complete()

    def _check_conducted(self) -> None:
        """Raise UserError for a plan that only one machine can run."""
        if self._conductor is None:
            return
        if self._plan.lab is not None or any(fault.member is not None for fault in self._plan.faults):
            raise UserError("faults", self._plan.name, "a plan whose faults need no lab, for many units")

    def _check_figures(self) -> None:
        """Raise UserError for a threshold on a figure without a Prometheus; units leave that to the leader."""
        field, figure = next(
            ((field, threshold.figure) for field, threshold in figures_of(self._plan)), ("", "")
        )
        if figure and self._figures is None and self._conductor is None:
            accepted = "--prometheus with the URL of a Prometheus that scrapes the target"
            raise UserError(f"{field}.figure", figure, accepted)

    def _take_part(self) -> None:
        """Take our part of the plan, and count the things that a resumed run already has."""
        self._plan_share.take(self._plan_share.share)
        if self._takes_up is not None and self._takes_up.entry is not None:
            self._gate.fill(self._plan_share.spec(self._takes_up.stage))

    def _open_record(self, places: Places | None) -> None:
        """Make the run's directory, with the manifest."""
        self._record.make_directory()
        plan = self._plan
        manifest = Manifest(
            id=self._record.run_id,
            title=plan.name,
            workload=plan.workload.kind,
            load_unit=plan.load_unit,
            target=TargetEntry(kind=plan.target.kind),
            plan=plan.model_dump(mode="json", exclude_none=True),
            unit=self._unit,
            share=self._plan_share.share if self._conductor is not None else None,
            first_stage=self._first,
            things_of=self._takes_up.entry.run
            if self._takes_up is not None and self._takes_up.entry is not None
            else "",
            started=self._record.started_wall,
            boot=boot_id(),
            began_after_boot=round(self._record.after_boot, 3),
            pid=os.getpid(),
            pid_started=process_started(os.getpid()),
            host=Host.here(),
            places=places,
        )
        self._record.open(manifest)

    async def _open_target(self) -> None:
        """Log in to the target, make the workspace, and start the workers, which log in too."""
        connections = self._target.connections(self._plan)
        count = worker_count(self._plan_share, connections, len(os.sched_getaffinity(0)))
        plan = self._plan_share.plan
        allow_files(plan, self._target.connections(plan), count, self._target.connections_of_worker(plan))
        entry = await self._inventory.reach()
        await self._gate.make(*self._begins_with)
        workspace = await self._inventory.take(entry)
        facts = await self._pool.open(
            [
                Job(
                    plan=self._plan,
                    share=self._plan_share.share,
                    directory=self._record.inside,
                    rescue=self._record.rescue,
                    name=str(index),
                    workspace=workspace.model_dump(mode="json"),
                    started_wall=self._record.started_wall,
                    started=self._record.started,
                )
                for index in range(count)
            ]
        )
        self._inventory.opened(entry)
        self._record.manifest.target = TargetEntry.model_validate(facts, from_attributes=True)
        self._record.save_manifest()
        self._watcher.began(self._record.manifest, self.directory)

    @property
    def _begins_with(self) -> tuple[AnyStage, str]:
        """The first stage, and the plan's field that has it."""
        if self._plan.find is not None:
            return self._plan_share.probe(self._plan.find.start)[0], "find"
        return self._plan_share.spec(self._first), f"stages.{self._first - 1}"

    async def _load_target(self) -> None:
        """Play the turns of the run: a search's or the listed stages, and lower loads after them."""
        watch = self._watch_figures()
        machine = asyncio.create_task(self._machine.watch())
        profiler = self._stages.profiler = self._make_profiler()
        try:
            await self._load_as_planned()
        finally:
            machine.cancel()
            if watch is not None:
                watch.cancel()
            if profiler is not None:
                await profiler.close()

    async def _load_as_planned(self) -> None:
        plan, find = self._plan, self._plan.find
        if find is None:
            await self._pool.prepare(self._plan_share.plan.planned, fresh=False)
        elif self._conductor is not None:
            await self._pool.prepare([self._plan_share.probe(find.start)[0]], fresh=False)
        if find is None or self._conductor is not None:
            self._watch_aborts()
        self._faults.start(stage=None)
        probes = self._takes_up.probes if self._takes_up is not None else ()
        conductor = self._conductor or Alone(
            plan, self._record, self._first, probes, self._figures, self._machine
        )
        turns = self._turns(conductor)
        self._heard = turns.heard
        await turns.play()

    def _turns(self, conductor: Conductor) -> Turns:
        """Return what plays our share of what the conductor names."""
        plan, lower = self._plan, self._lower_turns(conductor)
        ours = self._plan_share, self._stages, self._pool, self._faults, self._gate, self._record
        if isinstance(plan, CtsPlan) or plan.find is None:
            return Turns(conductor, *ours, lower)
        # A search judges its stages while it runs, so it needs modules that otherwise only a report needs.
        from tippingpoint.play.search_turns import SearchTurns

        return SearchTurns(plan, plan.find, self._target_gone, conductor, *ours, lower, self._figures)

    def _make_profiler(self) -> Profiler | None:
        """Return the profiler of the target, if the plan takes profiles; units that share a plan take none."""
        section = self._plan.target
        if self._conductor is not None or not section.profiled:
            return None
        from tippingpoint.play.profiler import Profiler

        return Profiler(section.profiled, self._target.pprof_tls(section), self._record)

    def _watch_aborts(self) -> None:
        """End the run once a threshold with `abort` is missed; a search on one machine continues below that load."""
        if any(threshold.abort for threshold in self._plan.thresholds):
            # It judges stages while they last, as a search does.
            from tippingpoint.play.early_warning import EarlyWarning

            self._warned = EarlyWarning(self._plan.thresholds, share=lambda: self._plan_share.of_load).heard

    def _watch_figures(self) -> asyncio.Task[None] | None:
        """Begin to watch figures with `abort`; a search does that for each of its loads."""
        plan = self._plan
        if self._figures is None or plan.find is not None:
            return None
        began = self._record.now()

        def since() -> float | None:
            progress = self._stages.progress
            return began if progress is not None and progress.kind in ("ramp", "storm") else None

        return asyncio.create_task(self._figures.watch(self._record, since, self._interruption.abort))

    def _lower_turns(self, conductor: Conductor) -> LowerTurns | None:
        """Return what plays our share of the loads after the last one; None if there will be none."""
        if isinstance(self._plan, CtsPlan) or not conductor.recovers:
            return None
        # What is measured at these loads is reported while the run goes on, as in a search.
        from tippingpoint.play.lower_loads import LowerLoads
        from tippingpoint.play.lower_turns import LowerTurns

        loads = LowerLoads(self._plan_share, self._stages, self._pool, self._gate, self._record)
        return LowerTurns(
            self._plan, conductor, self._plan_share, loads, self._stages, self._pool, self._record
        )

    async def _target_gone(self) -> str:
        """Return why the target no longer accepts a login; empty if it does, however late."""
        try:
            async with asyncio.timeout(_LOGIN_WITHIN):
                await self._interruption.unless_asked(self._target.log_in(self._plan.target))
        except TargetError as problem:
            return str(problem)
        except TimeoutError:
            return ""
        return ""

    def _ticked(self, worker: str, tick: Tick) -> None:
        self._record.look_at_clock()
        if self._heard is not None:
            self._heard(tick)
        progress = self._stages.progress
        if self._warned is not None and progress is not None and progress.kind in ("ramp", "storm", "find"):
            missed = self._warned(tick, progress.remaining is not None)
            if missed:
                self._interruption.abort(missed)
        if progress is not None:
            self._watcher.progress(progress, worker, tick)
