"""This unit's part of one run: a runner that follows the leader, from its preparation to the unit's last word."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tippingpoint.agent.closing import problem_of
from tippingpoint.agent.exporter import Measured
from tippingpoint.agent.state import Phase
from tippingpoint.conduct.run_state import SharedRun
from tippingpoint.conduct.run_state import UnitProgress as Told
from tippingpoint.conduct.search_messages import ClearHold, ProbeReport
from tippingpoint.errors import OperationFailed, Refused, TargetError, UserError, describe
from tippingpoint.plan.kinds import DEFAULT
from tippingpoint.plan.read import Plan, parse_plan
from tippingpoint.play.conductor import Conductor
from tippingpoint.play.headline import Headline
from tippingpoint.play.messages import Tick
from tippingpoint.play.resume import ResumedRun
from tippingpoint.play.runner import Runner
from tippingpoint.play.watcher import StageProgress
from tippingpoint.play.worker_process import StartWorker, start_worker
from tippingpoint.rundir.manifest import Manifest

if TYPE_CHECKING:  # a run without Prometheus figures needs no Prometheus client
    from tippingpoint.play.run_figures import RunFigures

CUT_WITHIN = 10.0
"""Seconds in which the workers of a part that is cut may release what they hold."""


@dataclass(frozen=True)
class Ended:
    """How a part ended."""

    phase: Phase
    problem: str
    """One line; empty if it ended as it was told to."""
    removed: bool
    """Whether everything that it made is removed from the target."""


def part_name(run: SharedRun, unit: str) -> str:
    """Return the id of a unit's part of a run, from which all its names on the target follow."""
    return f"{run.id}.{unit.rpartition('/')[2]}"


def plan_of(run: SharedRun, unit: str, target: Mapping[str, Any]) -> Plan:
    """Return the run's plan with this unit's access to the target; raises UserError that names the field that does not
    fit."""
    if run.searches_alone and unit not in run.units:
        raise UserError(
            "find", run.id, "a run that more than one unit began: this search is the business of one"
        )
    asked = run.plan.get("target", {})
    if not isinstance(asked, dict):
        raise UserError("run.plan.target", asked, "a mapping")
    reached: dict[str, Any] = {"kind": DEFAULT, **cast("dict[str, Any]", asked)}
    kind = target.get("kind", reached["kind"])
    if kind != reached["kind"]:
        raise UserError("target.kind", kind, f"{reached['kind']}, as the plan has")
    reached.update(target)
    plan = parse_plan(json.dumps({**run.plan, "target": reached}), source="run.plan")
    number = run.units.index(unit) if unit in run.units else len(run.units)
    return plan.model_copy(update={"target": plan.target.of_unit(number)})


class PartRunner:
    """Plays one part; `tell` and `stop` may be called at any time, and `cut` leaves it to the next agent."""

    def __init__(
        self,
        shared: SharedRun,
        plan: Plan,
        unit: str,
        out: Path,
        measured: Measured,
        changed: Callable[[Phase, int], None],
        reported: Callable[[ProbeReport], None],
        clear: Callable[[ClearHold], None],
        moved_on: Callable[[], None],
        *,
        run_id: str,
        takes_up: ResumedRun | None = None,
        again: int = 0,
        figures: RunFigures | None = None,
        start_worker: StartWorker = start_worker,
    ) -> None:
        """`out` gets the part's directory, which is named `run_id`; `again` is the state's. `figures` are the
        Prometheus figures, in a search that this unit does alone. `start_worker` is the same as for Runner.

        `changed` is called with each new phase and turn, `reported` with what was measured in a turn of a shared
        search, `clear` with what that shows before its hold is over, and `moved_on` when the phase of a stage changes.
        """
        self.run_id = shared.id
        self.directory = out / run_id
        self._plan = plan
        self._measured = measured
        self._changed = changed
        self._watcher = _Watcher(measured, moved_on, self._searching if shared.searches_alone else None)
        self._unit = unit
        self._conductor = Conductor(unit, shared, changed, reported, clear, after=again)
        self._runner = Runner(
            plan,
            out,
            self._watcher,
            takes_up=takes_up,
            run_id=run_id,
            conductor=None if shared.searches_alone else self._conductor,
            share=self._conductor.share,
            unit=unit,
            figures=figures,
            start_worker=start_worker,
        )
        self._turn = 0
        self._stopping = False
        self._running: asyncio.Task[Path] | None = None

    @property
    def progress(self) -> Told | None:
        """How far the part is."""
        return self._watcher.summary

    async def measured(self) -> None:
        """Wait until nothing is being measured any more; the things that were made may still exist."""
        await self._runner.measured.wait()

    def tell(self, shared: SharedRun, ahead: float) -> None:
        """Take the leader's latest state of the run; our clock is `ahead` seconds ahead of the reference's."""
        self._conductor.see(shared, ahead)
        if shared.stopped or shared.over:  # over while we play: we counted as missing
            self.stop(shared.stopped or "the run is over")
        elif shared.shared and not shared.may_return(self._unit):
            # The others share the whole load by now: ours would be too much.
            self.stop(f"counted as missing: {shared.missing[self._unit]}")

    def stop(self, why: str) -> None:
        """End the part in an orderly way."""
        if not self._stopping:
            self._stopping = True
            self._runner.interrupt(why)

    async def repair(self) -> str:
        """Make whatever is missing from the load that is held; returns a line about it."""
        self._runner.repair()
        return "missing instances are being recreated"

    async def evict(self, member: str) -> str:
        """Remove a dead member from the target's cluster; raises UserError, or OperationFailed with the reason."""
        if problem := await self._runner.evict(member):
            raise OperationFailed(problem)
        return f"{member} was removed from the cluster"

    async def run(self) -> Ended:
        """Play the part to its end; raises CancelledError if it is cut."""
        self._measured.began(self.run_id, self._plan)
        self._running = asyncio.create_task(self._runner.run())
        try:
            directory = await self._running
        except (UserError, TargetError, Refused) as refused:
            return Ended("failed", describe(refused), removed=not self._watcher.left_behind)
        except Exception as problem:
            return Ended("failed", describe(problem), removed=False)
        finally:
            self._measured.ended()
        self.directory = directory
        manifest = Manifest.load(directory)
        phase: Phase = "failed" if manifest.status == "failed" else "over"
        return Ended(phase, problem_of(manifest), removed=not self._watcher.left_behind)

    async def cut(self) -> None:
        """Leave the part to be resumed or closed later; its workers have CUT_WITHIN seconds to release leases."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running], timeout=CUT_WITHIN)

    def _searching(self, stage: int) -> None:
        """Report a stage of a search as a turn, because a search has no other turns."""
        if stage != self._turn:
            self._turn = stage
            self._changed("up", stage)


class _Watcher(Headline):
    """Collects from the runner its progress, its figures, and whether it left anything on the target."""

    def __init__(
        self, measured: Measured, moved_on: Callable[[], None], searching: Callable[[int], None] | None
    ) -> None:
        super().__init__()
        self._measured = measured
        self._moved_on = moved_on
        self._phase = ""
        self._searching = searching
        self.left_behind = False

    def progress(self, progress: StageProgress, worker: str, tick: Tick) -> None:
        """Add a worker's last second, and report a new phase."""
        super().progress(progress, worker, tick)
        self._measured.tick(progress, worker, tick)
        if self._searching is not None:
            self._searching(progress.stage)
        if progress.phase != self._phase:
            self._phase = progress.phase
            self._moved_on()

    def event(self, t: float, event: str, fields: dict[str, Any]) -> None:
        """Note workers that are gone, and things that were left on the target."""
        super().event(t, event, fields)
        if event == "worker-cut":
            self._measured.worker_gone(str(fields["worker"]))
        elif event == "left-behind":
            self.left_behind = True
