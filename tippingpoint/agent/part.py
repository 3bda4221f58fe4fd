"""This unit's part of one run: a runner that goes by what the leader says, from making ready to its last word."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from tippingpoint.agent.exporter import Measured
from tippingpoint.agent.state import Phase
from tippingpoint.errors import OperationFailed, Refused, TargetError, UserError, told
from tippingpoint.plan.kinds import DEFAULT
from tippingpoint.plan.read import Plan, parse_plan
from tippingpoint.run.headline import Headline
from tippingpoint.run.messages import Tick
from tippingpoint.run.resume import TakenUp
from tippingpoint.run.runner import Runner
from tippingpoint.run.watcher import StageProgress
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.units.conductor import Follower
from tippingpoint.units.shared_run import SharedRun
from tippingpoint.units.shared_run import UnitProgress as Told

CUT_WITHIN = 10.0
"""Seconds in which the workers of a part that is cut off may give back what they hold singly."""


@dataclass(frozen=True)
class Ended:
    """How a part ended."""

    phase: Phase
    problem: str
    """One line, empty where it ended as told."""
    removed: bool
    """Whether all that it made is gone from the target."""


def part_name(run: SharedRun, unit: str) -> str:
    """The id of a unit's part of a run, which all names of what it makes in the target follow from."""
    return f"{run.id}.{unit.rpartition('/')[2]}"


def plan_of(run: SharedRun, unit: str, target: Mapping[str, Any]) -> Plan:
    """The run's plan, with its target as this unit reaches it; UserError names the field that does not fit."""
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
    """One part: `run` plays it, `tell` and `stop` may come at any time, `cut` leaves it to the next agent."""

    def __init__(
        self,
        shared: SharedRun,
        plan: Plan,
        unit: str,
        out: Path,
        measured: Measured,
        changed: Callable[[Phase, int], None],
        moved_on: Callable[[], None],
        *,
        run_id: str,
        takes_up: TakenUp | None = None,
    ) -> None:
        """`out` is where the part's directory, named `run_id`, is made; `changed` is told its phases and turns."""
        self.run_id = shared.id
        self.directory = out / run_id
        self._plan = plan
        self._measured = measured
        self._changed = changed
        self._watcher = _Watcher(measured, moved_on, self._searching if shared.searches else None)
        self._follower = Follower(unit, shared, changed)
        self._runner = Runner(
            plan,
            out,
            self._watcher,
            takes_up=takes_up,
            run_id=run_id,
            conductor=None if shared.searches else self._follower,
            share=self._follower.share,
            unit=unit,
        )
        self._turn = 0
        self._stopping = False
        self._running: asyncio.Task[Path] | None = None

    @property
    def progress(self) -> Told | None:
        """Where it is."""
        return self._watcher.summary

    async def measured(self) -> None:
        """Wait until nothing is measured any more; what was made may still be there."""
        await self._runner.measured.wait()

    def tell(self, shared: SharedRun, ahead: float) -> None:
        """The run as the leader has it now; our clock is so many seconds ahead of the reference's."""
        self._follower.see(shared, ahead)
        if shared.stopped or shared.over:  # over, and we go on: the others took us for missing
            self.stop(shared.stopped or "the run is over")

    def stop(self, why: str) -> None:
        """End it in order."""
        if not self._stopping:
            self._stopping = True
            self._runner.interrupt(why)

    async def repair(self) -> str:
        """Make what is missing of the load that is held; what is told of that."""
        self._runner.repair()
        return "what is missing is looked for, and made again"

    async def evict(self, member: str) -> str:
        """Remove a member that is gone from the target's cluster; UserError, or why it was not removed."""
        if problem := await self._runner.evict(member):
            raise OperationFailed(problem)
        return f"{member} was removed from the cluster"

    async def run(self) -> Ended:
        """Play it to its end; CancelledError where it was cut."""
        self._measured.began(self.run_id, self._plan)
        self._running = asyncio.create_task(self._runner.run())
        try:
            directory = await self._running
        except (UserError, TargetError, Refused) as refused:
            return Ended("failed", told(refused), removed=not self._watcher.left_behind)
        except Exception as problem:
            return Ended("failed", told(problem), removed=False)
        finally:
            self._measured.ended()
        self.directory = directory
        manifest = Manifest.load(directory)
        problem = "" if manifest.status in ("complete", "interrupted") else manifest.reason
        phase: Phase = "failed" if manifest.status == "failed" else "over"
        return Ended(phase, problem, removed=not self._watcher.left_behind)

    async def cut(self) -> None:
        """Leave it as it is, to be taken up or closed later; workers have CUT_WITHIN seconds to give back theirs."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running], timeout=CUT_WITHIN)

    def _searching(self, stage: int) -> None:
        """A search has no turns but its own stages."""
        if stage != self._turn:
            self._turn = stage
            self._changed("up", stage)


class _Watcher(Headline):
    """What is told of the runner: where it is, the figures it measures, and whether it left anything behind."""

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
        """Count a worker's last second."""
        super().progress(progress, worker, tick)
        with contextlib.suppress(ValueError):  # a line cut short; the journal has it whole
            self._measured.tick(progress, worker, tick)
        if self._searching is not None:
            self._searching(progress.stage)
        if progress.phase != self._phase:
            self._phase = progress.phase
            self._moved_on()

    def event(self, t: float, event: str, fields: dict[str, Any]) -> None:
        """Keep in mind what is gone, and what is not."""
        super().event(t, event, fields)
        if event == "worker-cut":
            self._measured.worker_gone(str(fields["worker"]))
        elif event == "left-behind":
            self.left_behind = True
