"""The ways a run ends. Each ends the workers, removes what the run made, and closes its files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tippingpoint.errors import Refused, TargetError, UserError
from tippingpoint.plan.read import Plan
from tippingpoint.play.fault_timeline import FaultTimeline
from tippingpoint.play.interruption import EndedEarly
from tippingpoint.play.inventory import Inventory
from tippingpoint.play.record import Record
from tippingpoint.play.worker_pool import WorkerPool
from tippingpoint.play.worker_process import tidy_stderr
from tippingpoint.rundir.manifest import RunStatus
from tippingpoint.targets.target import Target
from tippingpoint.util.exit_codes import BAD_INPUT, INTERRUPTED, TARGET_FAILED
from tippingpoint.util.text import choose, show_names

if TYPE_CHECKING:  # a run without Prometheus figures needs no Prometheus client
    from tippingpoint.play.run_figures import RunFigures


class Closing:
    """Ends a run, in one of the ways below."""

    def __init__(
        self,
        plan: Plan,
        target: Target[Any, Any, Any],
        record: Record,
        pool: WorkerPool,
        faults: FaultTimeline,
        inventory: Inventory,
        *,
        figures: RunFigures | None,
        of_unit: bool,
        takes_up: bool,
    ) -> None:
        """After a refusal, the directory is kept for a unit's part (`of_unit`) and for a resumed run (`takes_up`)."""
        self.measured = asyncio.Event()
        """Set when the workers have ended: the journals are whole, and the removal comes next."""
        self._plan = plan
        self._target = target
        self._record = record
        self._pool = pool
        self._faults = faults
        self._inventory = inventory
        self._figures = figures
        self._of_unit = of_unit
        self._takes_up = takes_up

    async def complete(self) -> Path:
        """End a run whose plan was played to its end; returns the run's directory."""
        return await self._end("complete", "")

    async def early(self, early: EndedEarly) -> Path:
        """End a run early, keeping its results; raises Refused if it was interrupted before it created anything."""
        if early.status == "interrupted":
            if not (self._inventory.begun or self._of_unit or self._takes_up):
                self._pool.kill()
                await self.end_workers()
                if await self._inventory.clean(silently=True):
                    self._record.discard()
                    raise Refused(f"{early}, before anything was created", INTERRUPTED) from None
            self._record.event("interrupted")
        elif early.status == "aborted":
            self._record.event("aborted", reason=str(early))
        return await self._end(early.status, str(early))

    async def refused(self, refused: UserError | TargetError | Refused) -> None:
        """End a run whose plan cannot run here, or whose target refused it; an empty directory is removed."""
        await self.end_workers()
        bad_input = isinstance(refused, UserError) or (
            isinstance(refused, Refused) and refused.exit_code == BAD_INPUT
        )
        # A target that refused our first request has nothing of ours; a model may have been made before that.
        clean = not self._inventory.entries or await self._inventory.clean(silently=bad_input)
        # The directory would only repeat the line that is raised, unless a broken worker left its error output there.
        unmet = not isinstance(refused, Refused) or refused.exit_code == TARGET_FAILED
        if clean and (bad_input or (unmet and not self._inventory.begun and not self._of_unit)):
            self._record.discard()
        else:
            self._finish("failed", str(refused))

    async def broken(self, unexpected: Exception) -> None:
        """End a run after an internal error; its objects are still removed."""
        await self.end_workers()
        await self._inventory.clean()
        self._finish("failed", f"{type(unexpected).__name__}: {unexpected}")

    async def end_workers(self) -> None:
        """End the workers, and meanwhile undo the faults that are still in effect."""
        if self._pool.alive:
            self._record.doing("waiting for the last answers")
        self._pool.tell_end()
        self._faults.stop()
        await asyncio.gather(self._pool.ended(self._target.settles_within), self._faults.undo())
        self.measured.set()

    async def _end(self, status: RunStatus, reason: str) -> Path:
        await self.end_workers()
        if self._figures is not None and self._record.is_there:
            self._record.doing("asking Prometheus for the figures of all stages")
            await self._figures.complete(self._record)
        await self._inventory.clean()
        cut = self._pool.cut
        if cut and status == "complete":
            status = "cut"
            they = choose(len(cut), "it was", "they were")
            reason = f"{show_names(cut, 'worker')} of {len(self._pool.workers)} ended before {they} told to"
        if self._inventory.gone and status == "complete":
            status, reason = self._without_what_it_made()
        return self._finish(status, reason)

    def _without_what_it_made(self) -> tuple[RunStatus, str]:
        """Return the status and reason of a run whose model was removed meanwhile.

        Juju 4.0.15 keeps the connections of its units then, and still grants them leases.
        """
        if not self._plan.is_held:
            return "cut", self._inventory.gone
        reason = f"{self._inventory.gone}; leases after that were of units that no longer existed"
        # It is unknown which probes came before that, so a search has found nothing.
        return ("cut" if self._plan.find is None else "failed"), reason

    def _finish(self, status: RunStatus, reason: str) -> Path:
        """Close the run's own files; returns the run's directory."""
        for worker, entry in zip(self._pool.workers, self._record.manifest.workers, strict=False):
            entry.status = "complete" if worker.done is not None else "cut"
        self._record.end(status, reason)
        tidy_stderr(self._record.inside)
        lost = [worker.done.problem for worker in self._pool.workers if worker.done and worker.done.problem]
        if lost:
            self._record.event("journal-lost", problem="; ".join(lost))
        return self._record.close(self._inventory.passwords)
