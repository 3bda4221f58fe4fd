"""What a run and `clean` ask of a simulated service."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from tests.simulation.simulated.ledger import SimulatedEntry
from tests.simulation.simulated.plan import SimulatedTarget
from tests.simulation.simulated.service import SERVICES, Client
from tests.simulation.simulated.store import Keys, after
from tests.simulation.simulated.things import Things
from tippingpoint.errors import TargetError
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.read import Plan
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.plan.store import StorePlan
from tippingpoint.rundir.ledger import FILE
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.target import Target, Tell
from tippingpoint.workloads.claim.workload import ClaimLoad
from tippingpoint.workloads.load import Load, OnProgress
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.spawn.workload import SpawnLoad
from tippingpoint.workloads.store.workload import StoreLoad


class Workspace(BaseModel):
    """What the workers share: the service, and what the names of all that they make begin with."""

    name: str
    prefix: str


class Simulated(Target[SimulatedTarget, SimulatedEntry, Workspace]):
    """A simulated service of leases and things."""

    workspace = Workspace

    def new_entry(self, plan: Plan, run_id: str, directory: Path) -> SimulatedEntry:
        assert isinstance(plan.target, SimulatedTarget)
        SERVICES[plan.target.name].ledgers[name_prefix(run_id)] = directory.resolve() / FILE
        return SimulatedEntry(run=run_id, prefix=name_prefix(run_id), target=plan.target)

    async def reach(self, entry: SimulatedEntry) -> None:
        await self.log_in(entry.target)

    async def take(self, entry: SimulatedEntry, plan: Plan, tell: Tell) -> Workspace:
        return Workspace(name=entry.target.name, prefix=entry.prefix)

    def make_load(
        self, plan: Plan, workspace: Workspace, worker: str, recorder: Recorder, schedule: Schedule
    ) -> Load:
        if isinstance(plan, SpawnPlan):
            return SpawnLoad(plan, Things(SERVICES[workspace.name], workspace.prefix), recorder, schedule)
        if isinstance(plan, StorePlan):
            keys = Keys(SERVICES[workspace.name], workspace.prefix)
            own = f"{workspace.prefix}-{worker}/".encode()
            return StoreLoad(plan, keys, own, after, recorder, schedule)
        assert isinstance(plan, ClaimPlan)
        client = Client(SERVICES[workspace.name], workspace.prefix, plan.workload.claim_time)
        return ClaimLoad(plan.workload, client, recorder, schedule)

    async def clean(self, entry: SimulatedEntry, run_id: str, progress: OnProgress) -> int:
        service = SERVICES[entry.target.name]
        left = [name for name in service.leases if name.startswith(f"{entry.prefix}-")]
        for name in left:
            service.let_go(name)
        return len(left)

    async def log_in(self, section: SimulatedTarget) -> None:
        if section.name not in SERVICES:
            raise TargetError("target.name", f"{section.name}: not there", "a simulated service")


TARGET = Simulated()
