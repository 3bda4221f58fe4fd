"""The MAAS target: its contract with runs, `tippingpoint clean` and agents."""

from __future__ import annotations

from pathlib import Path

from tippingpoint.plan.read import Plan
from tippingpoint.plan.spawn import SpawnPlan, SpawnStage
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.maas.ledger import MaasEntry
from tippingpoint.targets.maas.made import Composed, Registered, Virtme
from tippingpoint.targets.maas.plan import MaasTarget
from tippingpoint.targets.maas.workspace import MaasWorkspace
from tippingpoint.targets.target import Target, Tell
from tippingpoint.util.in_clear import caution, is_in_clear
from tippingpoint.workloads.load import Load, OnProgress
from tippingpoint.workloads.schedule import Schedule


class Maas(Target[MaasTarget, MaasEntry, MaasWorkspace]):
    """Machines in resource pools that the run makes."""

    workspace = MaasWorkspace
    can_probe = True
    settles_within = 60.0

    def danger(self, section: MaasTarget) -> str:
        from tippingpoint.targets.maas.access import access

        return caution("the API key", "MAAS") if is_in_clear(access(section).url) else ""

    def new_entry(self, plan: Plan, run_id: str, directory: Path) -> MaasEntry:
        assert isinstance(plan.target, MaasTarget)
        return MaasEntry(run=run_id, prefix=name_prefix(run_id), target=plan.target)

    async def reach(self, entry: MaasEntry) -> None:
        await self.log_in(entry.target)
        if isinstance(made := entry.target.made, Virtme):
            from tippingpoint.targets.maas.virtme import server

            await server.reach(made, entry.target)

    async def check_room(self, entry: MaasEntry, plan: Plan, spec: SpawnStage, before: int) -> None:
        assert isinstance(plan, SpawnPlan)
        made, workload = entry.target.made, plan.workload.at(spec)
        if isinstance(made, Registered):
            return
        machines = [entry.target.machine(n) for n in range(spec.instances) for _ in range(spec.groups)]
        if workload.cycle:  # only those that exist at the same time
            machines, before = machines[: workload.at_once], 0
        if isinstance(made, Composed):
            from tippingpoint.targets.maas import capacity

            await capacity.check_room(entry.target, made, machines[before:])
        elif workload.until != "created":  # else they never run
            from tippingpoint.targets.maas.virtme import server

            await server.check_room(made, entry.prefix, machines[before:], written=workload.until == "probed")

    async def take(self, entry: MaasEntry, plan: Plan, tell: Tell) -> MaasWorkspace:
        workspace = MaasWorkspace(run=entry.run, prefix=entry.prefix, target=entry.target)
        if isinstance(made := entry.target.made, Virtme):
            from tippingpoint.targets.maas.virtme import server

            workspace.domain = await server.take(made, entry.run, entry.prefix, tell)
        return workspace

    def make_load(
        self, plan: Plan, workspace: MaasWorkspace, worker: str, recorder: Recorder, schedule: Schedule
    ) -> Load:
        from tippingpoint.targets.maas.spawn import MaasMachines
        from tippingpoint.workloads.spawn.workload import SpawnLoad

        assert isinstance(plan, SpawnPlan)
        machines = MaasMachines(workspace, plan.workload.poll_every)
        return SpawnLoad(plan, machines, recorder, schedule)

    def clean_within(self, things: int) -> float:
        return 600.0 + 2.0 * things

    async def clean(self, entry: MaasEntry, run_id: str, progress: OnProgress) -> int:
        from tippingpoint.targets.maas import removal

        return await removal.remove(entry, progress)

    async def log_in(self, section: MaasTarget) -> None:
        from tippingpoint.targets.maas.access import access
        from tippingpoint.targets.maas.client import MaasClient

        client = MaasClient(access(section))
        try:
            await client.log_in()
        finally:
            await client.close()

    async def probe(self, section: MaasTarget, made: MaasEntry | None) -> list[str]:
        from tippingpoint.targets.maas.probe import probe

        return await probe(section)


TARGET = Maas()
