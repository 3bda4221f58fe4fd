"""What a run and `clean` ask of a directory of leases."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from lease_directory.ledger import DirectoryEntry
from lease_directory.plan import DirectoryTarget
from tippingpoint.errors import TargetError
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.read import Plan
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.target import Target, Tell
from tippingpoint.workloads.load import Load, OnProgress
from tippingpoint.workloads.schedule import Schedule


class Workspace(BaseModel):
    """What the workers share: the directory, and what the names of their files begin with."""

    path: Path
    prefix: str


class Directory(Target[DirectoryTarget, DirectoryEntry, Workspace]):
    """A directory in which a lease is a file."""

    workspace = Workspace

    def new_entry(self, plan: Plan, run_id: str, directory: Path) -> DirectoryEntry:
        assert isinstance(plan.target, DirectoryTarget)
        return DirectoryEntry(prefix=name_prefix(run_id), target=plan.target)

    async def reach(self, entry: DirectoryEntry) -> None:
        await self.log_in(entry.target)

    async def take(self, entry: DirectoryEntry, plan: Plan, tell: Tell) -> Workspace:
        return Workspace(path=entry.target.path.absolute(), prefix=entry.prefix)

    def make_load(
        self, plan: Plan, workspace: Workspace, worker: str, recorder: Recorder, schedule: Schedule
    ) -> Load:
        from lease_directory.leases import Leases
        from tippingpoint.workloads.claim.workload import ClaimLoad

        assert isinstance(plan, ClaimPlan)
        leases = Leases(workspace.path, workspace.prefix, plan.workload.claim_time)
        return ClaimLoad(plan.workload, leases, recorder, schedule)

    async def clean(self, entry: DirectoryEntry, run_id: str, progress: OnProgress) -> int:
        left = list(entry.target.path.glob(f"{entry.prefix}-*"))
        for path in left:
            path.unlink(missing_ok=True)
        return len(left)

    async def log_in(self, section: DirectoryTarget) -> None:
        if not section.path.is_dir():
            raise TargetError("target.path", f"{section.path}: not there", "a directory")


TARGET = Directory()
