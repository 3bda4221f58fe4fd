"""The Pacemaker target: its contract with runs, `tippingpoint clean` and agents."""

from __future__ import annotations

import shutil
from pathlib import Path

from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.read import Plan
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.pacemaker.ledger import PacemakerEntry
from tippingpoint.targets.pacemaker.plan import INTERCEPTED, PacemakerTarget
from tippingpoint.targets.pacemaker.workspace import PacemakerWorkspace
from tippingpoint.targets.target import Target, Tell
from tippingpoint.workloads.load import Load, OnProgress
from tippingpoint.workloads.schedule import Schedule

UNSIMULATED = "`simulate` was not timed: this machine has no crm_simulate (package pacemaker-cli-utils)."


class Pacemaker(Target[PacemakerTarget, PacemakerEntry, PacemakerWorkspace]):
    """Tickets, sets of properties, or resources in the CIB of a real cluster."""

    workspace = PacemakerWorkspace
    can_probe = True
    settles_within = 120.0
    """A worker with stopped nodes at the end of a test starts them, so that `clean` finds a cluster."""

    def danger(self, section: PacemakerTarget) -> str:
        return INTERCEPTED if section.tls == "anonymous" else ""

    def new_entry(self, plan: Plan, run_id: str, directory: Path) -> PacemakerEntry:
        assert isinstance(plan.target, PacemakerTarget)
        return PacemakerEntry(
            run=run_id, prefix=name_prefix(run_id), target=plan.target, spawns=isinstance(plan, SpawnPlan)
        )

    async def reach(self, entry: PacemakerEntry) -> None:
        if entry.spawns:
            from tippingpoint.targets.pacemaker.remotes import check_remotes

            check_remotes(entry.target)
            await self.log_in(entry.target)

    async def take(self, entry: PacemakerEntry, plan: Plan, tell: Tell) -> PacemakerWorkspace:
        if isinstance(plan, SpawnPlan):
            from tippingpoint.targets.pacemaker.remotes import add_remotes
            from tippingpoint.targets.pacemaker.spawn import SIMULATOR

            if plan.workload.observe_every and shutil.which(SIMULATOR) is None:
                tell(UNSIMULATED)
            if entry.target.nodes.remote:
                await add_remotes(entry.target, entry.prefix, tell)
        return PacemakerWorkspace(prefix=entry.prefix)

    def make_load(
        self, plan: Plan, workspace: PacemakerWorkspace, worker: str, recorder: Recorder, schedule: Schedule
    ) -> Load:
        assert isinstance(plan.target, PacemakerTarget)
        if isinstance(plan, CtsPlan):
            from tippingpoint.targets.pacemaker.access import access
            from tippingpoint.targets.pacemaker.cts import CtsLoad

            return CtsLoad(plan, access(plan.target), workspace.prefix, recorder, schedule)
        if isinstance(plan, SpawnPlan):
            from tippingpoint.targets.pacemaker.spawn import PacemakerResources
            from tippingpoint.workloads.spawn.workload import SpawnLoad

            resources = PacemakerResources(plan, plan.target, workspace.prefix, int(worker))
            return SpawnLoad(plan, resources, recorder, schedule)
        from tippingpoint.targets.pacemaker.claim import CibLeases
        from tippingpoint.workloads.claim.workload import ClaimLoad

        assert isinstance(plan, ClaimPlan)
        leases = CibLeases(plan.target, f"{workspace.prefix}-{worker}-")
        return ClaimLoad(plan.workload, leases, recorder, schedule)

    def clean_within(self, things: int) -> float:
        return 600.0 + 2.0 * things  # a cluster stops 2 to 10 resources a second

    async def clean(self, entry: PacemakerEntry, run_id: str, progress: OnProgress) -> int:
        from tippingpoint.targets.pacemaker.access import access
        from tippingpoint.targets.pacemaker.removal import remove

        return await remove(access(entry.target), entry.prefix, progress)

    async def log_in(self, section: PacemakerTarget) -> None:
        from tippingpoint.targets.pacemaker.access import access
        from tippingpoint.targets.pacemaker.nodes import Nodes

        nodes = Nodes(access(section), 1)
        try:
            await nodes.open()
        finally:
            nodes.close("closed")

    async def probe(self, section: PacemakerTarget, made: PacemakerEntry | None) -> list[str]:
        from tippingpoint.targets.pacemaker.probe import probe

        return await probe(section, "" if made is None else made.prefix)


TARGET = Pacemaker()
