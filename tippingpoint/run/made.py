"""What a run makes on its target: in the ledger before it is made, and removed at the end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tippingpoint.errors import TargetError, UserError
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.run.cleaning import clean_entries
from tippingpoint.run.interruption import Interruption
from tippingpoint.run.own_part import OwnPart
from tippingpoint.run.record import Record
from tippingpoint.run.resume import TakenUp
from tippingpoint.run.watcher import RunnerEvents
from tippingpoint.rundir.ledger import Entry, remember
from tippingpoint.targets.target import Target


class Made:
    """What is ours on the target, or may be."""

    def __init__(
        self,
        target: Target[Any, Any, Any],
        own: OwnPart,
        record: Record,
        interruption: Interruption,
        watcher: RunnerEvents,
        takes_up: TakenUp | None,
    ) -> None:
        self.entries: list[Entry] = []
        """What is to be removed at the end."""
        self.begun = False
        """Whether the target let us in, so that something may have been made since."""
        self.gone = ""
        """What somebody else has removed meanwhile, in a sentence."""
        self._target = target
        self._own = own
        self._record = record
        self._interruption = interruption
        self._watcher = watcher
        self._takes_up = takes_up
        self._taken = False

    async def reach(self) -> Entry:
        """Write down what will be made, and see that the target lets us in; TargetError where it does not."""
        if self._takes_up is not None:
            entry: Entry = self._takes_up.entry
            self.entries.append(entry)  # it is there, and ours to remove, however early this ends
        else:
            directory = self._record.directory.resolve()
            entry = self._target.new_entry(self._own.whole, self._record.run_id, directory)
        remember(self._record.directory, entry)
        await self._interruption.unless_asked(self._target.reach(entry))
        if self._takes_up is None and not entry.made_by_workers:
            self.entries.append(entry)
        return entry

    async def take(self, entry: Entry) -> BaseModel:
        """Make what all workers find there."""
        self.begun = not entry.made_by_workers  # else these are the first to ask the target anything
        workspace = await self._interruption.unless_asked(
            self._target.take(entry, self._own.whole, self._record.note)
        )
        self._taken = True
        return workspace

    def opened(self, entry: Entry) -> None:
        """The workers were let in, and make things from now on."""
        self.begun = True
        if entry.made_by_workers:
            self.entries.append(entry)

    @property
    def passwords(self) -> list[Path]:
        """Files with the passwords of users that were made: of no use any more, and nobody else's to read."""
        return [path for entry in self.entries for path in entry.passwords]

    async def clean(self, *, silently: bool = False) -> bool:
        """Remove what no worker could give back; whether nothing of ours is left, as far as we know.

        Silently, only what is left is told: what was refused says why in one line.
        """
        hurry = self._interruption.hurried
        within = self._clean_within()
        cleaning = asyncio.ensure_future(
            clean_entries(self.entries, self._record.run_id, self._watcher.removing)
        )
        hurried = asyncio.ensure_future(hurry.wait())
        await asyncio.wait([hurried, cleaning], timeout=within, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        cleaning.cancel()  # unless it has ended
        await asyncio.wait([cleaning])
        try:
            removed = cleaning.result()
        except (TargetError, UserError, asyncio.CancelledError) as problem:
            given_up = "left as it is, as asked" if hurry.is_set() else f"not done within {within:g} s"
            remedy = f"tippingpoint clean {self._record.directory}"
            self._record.event("left-behind", problem=str(problem) or given_up, remedy=remedy)
            return False
        if removed:
            if not silently:
                self._record.event("cleaned", removed=removed)
        elif self._taken and (gone := next(filter(None, (entry.always_there for entry in self.entries)), "")):
            self.gone = f"{gone} was gone before the run ended"
            self._record.event("model-gone", problem=self.gone)
        return True

    def _clean_within(self) -> float:
        """Seconds that the removal may take."""
        plan = self._own.plan
        things = max((size for _, size in plan.loads), default=0)
        if isinstance(plan, SpawnPlan):
            things += max(stage.groups for stage in plan.stages)
        return self._target.clean_within(things)
