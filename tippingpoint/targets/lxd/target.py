"""The LXD target: its contract with runs, `tippingpoint clean`, agents and the action `probe`."""

from __future__ import annotations

from pathlib import Path

from tippingpoint.plan.read import Plan
from tippingpoint.plan.spawn import SpawnPlan, SpawnStage
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.lxd.ledger import LxdEntry
from tippingpoint.targets.lxd.plan import LxdTarget
from tippingpoint.targets.lxd.workspace import LxdWorkspace
from tippingpoint.targets.target import Target, Tell
from tippingpoint.workloads.load import Load, OnProgress
from tippingpoint.workloads.schedule import Schedule


class Lxd(Target[LxdTarget, LxdEntry, LxdWorkspace]):
    """Containers in projects, which the run creates unless its plan names projects."""

    workspace = LxdWorkspace
    can_probe = True

    def new_entry(self, plan: Plan, run_id: str, directory: Path) -> LxdEntry:
        from tippingpoint.targets.lxd.provision import new_entry

        assert isinstance(plan.target, LxdTarget)
        return new_entry(plan.target, run_id, name_prefix(run_id), directory)

    async def reach(self, entry: LxdEntry) -> None:
        from tippingpoint.targets.lxd import provision

        await provision.reach(entry)

    async def check_room(self, entry: LxdEntry, plan: Plan, spec: SpawnStage, before: int) -> None:
        from tippingpoint.targets.lxd import capacity

        assert isinstance(plan, SpawnPlan)
        memory = plan.workload.memory if plan.workload.until != "created" else 0
        await capacity.check_room(entry, spec.size - before, memory, spec.members)

    async def take(self, entry: LxdEntry, plan: Plan, tell: Tell) -> LxdWorkspace:
        from tippingpoint.targets.lxd import provision

        assert isinstance(plan, SpawnPlan)
        return await provision.take(
            entry,
            groups=max(1, *(stage.groups for stage in plan.planned)),
            reachable=plan.workload.until in ("reachable", "probed"),
            evicts=plan.workload.evict,
            tell=tell,
        )

    def make_load(
        self, plan: Plan, workspace: LxdWorkspace, worker: str, recorder: Recorder, schedule: Schedule
    ) -> Load:
        from tippingpoint.targets.lxd.spawn import LxdInstances
        from tippingpoint.workloads.spawn.workload import SpawnLoad

        assert isinstance(plan, SpawnPlan)
        return SpawnLoad(plan, LxdInstances(workspace, int(worker)), recorder, schedule)

    def clean_within(self, things: int) -> float:
        return 600.0 + 2.0 * things  # containers are removed one by one, 2 to 10 a second

    async def clean(self, entry: LxdEntry, run_id: str, progress: OnProgress) -> int:
        from tippingpoint.targets.lxd.removal import remove

        return await remove(entry, progress)

    async def log_in(self, section: LxdTarget) -> None:
        from tippingpoint.targets.lxd.client import LxdClient
        from tippingpoint.targets.lxd.provision import access_of, greet

        if section.token is not None:
            return
        access = access_of(section, None, None)
        client = LxdClient(access)
        try:
            await greet(client, access)
        finally:
            await client.close()

    async def probe(self, section: LxdTarget, made: LxdEntry | None) -> list[str]:
        from tippingpoint.targets.lxd.probe import probe

        return [
            f"{probed.name} {probed.ms:.0f} ms" if probed.ms is not None else f"{probed.name}: {probed.why}"
            for probed in await probe(section, "" if made is None else made.prefix)
        ]


TARGET = Lxd()
