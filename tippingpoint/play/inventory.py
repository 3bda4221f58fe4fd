"""What a run makes in its target: written to the ledger before it is made, and removed at the end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from tippingpoint.errors import TargetError, UserError
from tippingpoint.play.cleaning import clean_entries
from tippingpoint.play.interruption import Interruption
from tippingpoint.play.plan_share import PlanShare
from tippingpoint.play.record import Record
from tippingpoint.play.resume import ResumedRun
from tippingpoint.play.watcher import RunnerEvents
from tippingpoint.rundir.ledger import Entry, remember
from tippingpoint.targets.target import Target


class Inventory:
    """The things in the target that are, or may be, this run's."""

    def __init__(
        self,
        target: Target[Any, Any, Any],
        plan_share: PlanShare,
        record: Record,
        interruption: Interruption,
        watcher: RunnerEvents,
        takes_up: ResumedRun | None,
    ) -> None:
        self.entries: list[Entry] = []
        """What has to be removed at the end."""
        self.begun = False
        """Whether the target accepted us, so that something may have been made since."""
        self.gone = ""
        """What somebody else removed during the run, in a sentence; empty if nothing was removed."""
        self._target = target
        self._plan_share = plan_share
        self._record = record
        self._interruption = interruption
        self._watcher = watcher
        self._takes_up = takes_up
        self._taken = False
        self._left: ResumedRun | None = None
        """The cut run that this one resumes, if it removed what that left."""

    async def reach(self) -> Entry:
        """Write down what will be made, and check that the target accepts us; raises TargetError if it does not."""
        taken_up = self._takes_up
        if taken_up is not None and taken_up.left:
            # It may have been cut before it removed what it made.
            await self._interruption.unless_asked(self._clean_left(taken_up))
            self._left = taken_up
        lasting = taken_up.entry if taken_up is not None else None
        if lasting is not None:
            entry: Entry = lasting
            self.entries.append(entry)  # it exists, and is ours to remove, however early this run ends
        else:
            entry = self._target.new_entry(self._plan_share.whole, self._record.run_id, self._record.inside)
        remember(self._record.inside, entry)
        if danger := self._target.danger(self._plan_share.whole.target):
            self._record.note(danger)
        await self._interruption.unless_asked(self._target.reach(entry))
        if lasting is None and not entry.made_by_workers:
            self.entries.append(entry)
        return entry

    async def take(self, entry: Entry) -> BaseModel:
        """Make the workspace that all workers share, and return it."""
        self.begun = not entry.made_by_workers  # else the workers send the first request
        workspace = await self._interruption.unless_asked(
            self._target.take(entry, self._plan_share.whole, self._record.note)
        )
        self._taken = True
        return workspace

    def opened(self, entry: Entry) -> None:
        """Note that the target accepted the workers, which make things from now on."""
        self.begun = True
        if entry.made_by_workers:
            self.entries.append(entry)

    @property
    def passwords(self) -> list[Path]:
        """Files with the passwords of users that the run made; they must not be kept or copied."""
        return [path for entry in self.entries for path in entry.passwords]

    async def clean(self, *, silently: bool = False) -> bool:
        """Remove what the workers could not release; returns whether everything of ours seems gone.

        `silently` reports only leftovers: a refused run has its own line.
        """
        if self.entries:
            self._record.doing("removing what the run created")
        hurry = self._interruption.hurried
        within = self._target.clean_within(self._plan_share.plan.to_remove)
        cleaning = asyncio.ensure_future(self._clean_all())
        hurried = asyncio.ensure_future(hurry.wait())
        await asyncio.wait([hurried, cleaning], timeout=within, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        cleaning.cancel()  # unless it has ended
        await asyncio.wait([cleaning])
        try:
            removed = cleaning.result()
        except (TargetError, UserError, asyncio.CancelledError) as problem:
            given_up = (
                "removal stopped on request"
                if hurry.is_set()
                else f"removal not finished within {within:g} s"
            )
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

    async def _clean_all(self) -> int:
        removed = await clean_entries(self.entries, self._record.run_id, self._watcher.removing)
        # A busy target may have carried out requests of the cut run since we removed what that left.
        return removed + (await self._clean_left(self._left) if self._left is not None else 0)

    async def _clean_left(self, cut: ResumedRun) -> int:
        return await clean_entries(cut.left, cut.run, self._watcher.removing)
