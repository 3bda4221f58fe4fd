"""The OpenStack target: its contract with runs, `tippingpoint clean`, agents and the action `probe`."""

from __future__ import annotations

from pathlib import Path

from tippingpoint.plan.read import Plan
from tippingpoint.plan.spawn import SpawnPlan, SpawnStage
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.openstack.ledger import OpenstackEntry
from tippingpoint.targets.openstack.plan import OpenstackTarget
from tippingpoint.targets.openstack.workspace import OpenstackWorkspace
from tippingpoint.targets.target import Target, Tell
from tippingpoint.util.in_clear import caution, is_in_clear
from tippingpoint.workloads.load import Load, OnProgress
from tippingpoint.workloads.schedule import Schedule


class Openstack(Target[OpenstackTarget, OpenstackEntry, OpenstackWorkspace]):
    """Servers in the cloud's own project, or in projects that the run creates."""

    workspace = OpenstackWorkspace
    can_probe = True
    errors_name_address = False  # they name a cloud of a clouds.yaml
    settles_within = 60.0

    def danger(self, section: OpenstackTarget) -> str:
        from tippingpoint.targets.openstack.access import from_clouds

        access = from_clouds(section)
        return caution("the login", "Keystone") if is_in_clear(access.auth_url) else ""

    def new_entry(self, plan: Plan, run_id: str, directory: Path) -> OpenstackEntry:
        from tippingpoint.targets.openstack import provision

        assert isinstance(plan.target, OpenstackTarget)
        return provision.new_entry(plan.target, run_id, name_prefix(run_id), directory)

    async def reach(self, entry: OpenstackEntry) -> None:
        from tippingpoint.targets.openstack import provision

        await provision.reach(entry)

    async def check_room(self, entry: OpenstackEntry, plan: Plan, spec: SpawnStage, before: int) -> None:
        from tippingpoint.targets.openstack import capacity

        assert isinstance(plan, SpawnPlan)
        workload = plan.workload.at(spec)
        adds = spec.size - before
        if workload.cycle:  # only those that exist at the same time
            adds, before = min(spec.size, workload.at_once or 1), 0
        await capacity.check_room(entry, adds, spec.members, before)

    async def take(self, entry: OpenstackEntry, plan: Plan, tell: Tell) -> OpenstackWorkspace:
        from tippingpoint.targets.openstack import provision

        return await provision.take(entry, tell)

    def make_load(
        self, plan: Plan, workspace: OpenstackWorkspace, worker: str, recorder: Recorder, schedule: Schedule
    ) -> Load:
        from tippingpoint.targets.openstack.spawn import OpenstackServers
        from tippingpoint.workloads.spawn.workload import SpawnLoad

        assert isinstance(plan, SpawnPlan)
        servers = OpenstackServers(workspace, plan.workload.poll_every)
        return SpawnLoad(plan, servers, recorder, schedule)

    def clean_within(self, things: int) -> float:
        return 600.0 + 2.0 * things  # 2 to 4 servers are removed a second

    async def clean(self, entry: OpenstackEntry, run_id: str, progress: OnProgress) -> int:
        from tippingpoint.targets.openstack import removal

        return await removal.remove(entry, progress)

    async def log_in(self, section: OpenstackTarget) -> None:
        from tippingpoint.targets.openstack.access import from_clouds
        from tippingpoint.targets.openstack.client import OpenstackClient

        cloud = OpenstackClient(from_clouds(section))
        try:
            await cloud.log_in()
        finally:
            await cloud.close()

    async def probe(self, section: OpenstackTarget, made: OpenstackEntry | None) -> list[str]:
        from tippingpoint.targets.openstack.probe import probe

        return await probe(section)


TARGET = Openstack()
