"""The etcd target: its contract with runs, `tippingpoint clean` and agents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tippingpoint.plan.claim import ClaimPlan, ClaimWorkload
from tippingpoint.plan.read import Plan
from tippingpoint.plan.store import StorePlan
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.etcd.ledger import (
    RUN_LEASE_IDS,
    WORKER_LEASE_IDS,
    EtcdEntry,
    first_lease_id,
    key_prefix,
)
from tippingpoint.targets.etcd.plan import EtcdTarget
from tippingpoint.targets.etcd.workspace import EtcdWorkspace
from tippingpoint.targets.target import Connections, Target, Tell
from tippingpoint.workloads.load import Load, OnProgress
from tippingpoint.workloads.schedule import Schedule

if TYPE_CHECKING:
    import ssl


class Etcd(Target[EtcdTarget, EtcdEntry, EtcdWorkspace]):
    """Leases or keys in a real cluster. The workers create all of them, each within its part of the names in the ledger
    entry."""

    workspace = EtcdWorkspace

    def connections(self, plan: Plan) -> Connections:
        assert isinstance(plan.target, EtcdTarget)
        if not isinstance(plan, StorePlan) or plan.target.api == "v3":
            return {}
        watchers = max(stage.watchers for stage in plan.planned)
        return {f"{'stages' if plan.find is None else 'find'}.watchers": (watchers, 1)}

    def connections_of_worker(self, plan: Plan) -> Connections:
        target = plan.target
        assert isinstance(target, EtcdTarget)
        # Each connection of v2 has a socket for its events, and at least one for calls.
        each = len(target.endpoints) * (2 if target.api == "v2" else 1)
        return {"target.connections": (target.connections, each)}

    def new_entry(self, plan: Plan, run_id: str, directory: Path) -> EtcdEntry:
        assert isinstance(plan.target, EtcdTarget)
        return EtcdEntry(
            prefix=key_prefix(run_id),
            first_lease_id=first_lease_id(run_id),
            lease_ids=RUN_LEASE_IDS,
            target=plan.target,
        )

    async def take(self, entry: EtcdEntry, plan: Plan, tell: Tell) -> EtcdWorkspace:
        return EtcdWorkspace(prefix=entry.prefix, first_lease_id=entry.first_lease_id)

    def make_load(
        self, plan: Plan, workspace: EtcdWorkspace, worker: str, recorder: Recorder, schedule: Schedule
    ) -> Load:
        from tippingpoint.targets.etcd.access import Scope

        assert isinstance(plan.target, EtcdTarget)
        scope = Scope(workspace.prefix, workspace.first_lease_id + int(worker) * WORKER_LEASE_IDS)
        if isinstance(plan, StorePlan):
            from tippingpoint.targets.etcd.messages import after_prefix
            from tippingpoint.targets.etcd.store import connect
            from tippingpoint.workloads.store.workload import StoreLoad

            own = f"{scope.prefix}{worker}/".encode()
            return StoreLoad(plan, connect(plan.target, scope), own, after_prefix, recorder, schedule)
        from tippingpoint.targets.etcd import claim
        from tippingpoint.workloads.claim.workload import ClaimLoad

        assert isinstance(plan, ClaimPlan)
        return ClaimLoad(plan.workload, claim.connect(plan.target, plan.workload, scope), recorder, schedule)

    def pprof_tls(self, section: EtcdTarget) -> ssl.SSLContext | bool:
        from tippingpoint.targets.etcd.access import tls

        return tls(section)

    def clean_within(self, things: int) -> float:
        # etcd 3.4.23 revoked 2,000 leases a second on a busy machine of two cores. Others may be ten times slower.
        return 20.0 + things / 200

    async def clean(self, entry: EtcdEntry, run_id: str, progress: OnProgress) -> int:
        from tippingpoint.targets.etcd import claim

        ids = range(entry.first_lease_id, entry.first_lease_id + entry.lease_ids)
        return await claim.clean(entry.target, entry.prefix, ids)

    async def log_in(self, section: EtcdTarget) -> None:
        from tippingpoint.targets.etcd import claim
        from tippingpoint.targets.etcd.access import Scope

        scope = Scope(key_prefix("login"), 0)
        leases = claim.connect(section.model_copy(update={"connections": 1}), ClaimWorkload(), scope)
        try:
            await leases.open()
        finally:
            await leases.close()


TARGET = Etcd()
