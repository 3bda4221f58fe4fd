"""The Juju target: its contract with runs, `tippingpoint clean`, agents and the action `probe`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.grow import GrowPlan
from tippingpoint.plan.operate import OperatePlan
from tippingpoint.plan.read import Plan
from tippingpoint.rundir.ownership import name_prefix
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.juju.ledger import JujuEntry, model_name
from tippingpoint.targets.juju.plan import JujuTarget
from tippingpoint.targets.juju.workspace import JujuWorkspace
from tippingpoint.targets.target import Target, Tell
from tippingpoint.util import timing
from tippingpoint.workloads.load import Load, OnProgress
from tippingpoint.workloads.schedule import Schedule

if TYPE_CHECKING:
    from tippingpoint.targets.juju.api.access import ControllerAccess


class Juju(Target[JujuTarget, JujuEntry, JujuWorkspace]):
    """Hollow units in a model, which the run creates unless its plan names one; or leases of one real agent."""

    workspace = JujuWorkspace
    can_probe = True

    def connections(self, plan: Plan) -> Mapping[str, tuple[int, int]]:
        if isinstance(plan, GrowPlan):
            if not plan.workload.agents:
                return {}
            return {self._sized(plan, n, "units"): (stage.size, 1) for n, stage in enumerate(plan.planned)}
        if isinstance(plan, OperatePlan):
            return {
                self._sized(plan, n, plan.load): (plan.goal(stage)[0], 1)
                for n, stage in enumerate(plan.planned)
            }
        assert isinstance(plan, ClaimPlan)
        units, renew_time = plan.workload.units, plan.workload.renew_time
        return {
            self._sized(plan, n, "leases"): (stage.held(renew_time), units)
            for n, stage in enumerate(plan.planned)
        }

    @staticmethod
    def _sized(plan: Plan, stage: int, field: str) -> str:
        """Return the field of a plan that says how large one of its planned stages is."""
        return f"stages.{stage}.{field}" if plan.find is None else ("find.start", "find.limit")[stage]

    def new_entry(self, plan: Plan, run_id: str, directory: Path) -> JujuEntry:
        from tippingpoint.targets.juju.api.access import store_directory

        target = plan.target
        assert isinstance(target, JujuTarget)
        prefix = name_prefix(run_id)
        if target.identity == "agent":
            return JujuEntry(prefix=prefix, model="", made_model=False, target=target, store=None)
        store = None if target.credentials is not None else store_directory()
        access = _access(target, store)
        named = (
            target
            if target.credentials is not None
            else target.model_copy(update={"controller": access.controller_name})
        )
        return JujuEntry(
            prefix=prefix,
            model=target.model or model_name(prefix),
            made_model=target.model is None,
            many=isinstance(plan, OperatePlan),
            target=named,
            store=store,
        )

    async def reach(self, entry: JujuEntry) -> None:
        if entry.model:
            await _log_in(_access(entry.target, entry.store))

    async def take(self, entry: JujuEntry, plan: Plan, tell: Tell) -> JujuWorkspace:
        if not entry.model:
            return JujuWorkspace(prefix=entry.prefix, model="", target=entry.target, store=None)
        from tippingpoint.targets.juju import hollow

        if entry.many:
            return JujuWorkspace(prefix=entry.prefix, model="", target=entry.target, store=entry.store)
        access = _access(entry.target, entry.store)
        try:
            make = hollow.make_model if entry.made_model else hollow.find_model
            model = await make(access, entry.model)
        except OperationFailed as problem:
            raise _shut_out(access, problem) from None
        return JujuWorkspace(prefix=entry.prefix, model=model, target=entry.target, store=entry.store)

    def make_load(
        self, plan: Plan, workspace: JujuWorkspace, worker: str, recorder: Recorder, schedule: Schedule
    ) -> Load:
        if isinstance(plan, GrowPlan):
            from tippingpoint.targets.juju.grow import JujuSpawn

            access = _access(workspace.target, workspace.store)
            return JujuSpawn(plan, access, workspace.model, workspace.prefix, worker, recorder, schedule)
        if isinstance(plan, OperatePlan):
            from tippingpoint.targets.juju.operate import JujuOperate

            access = _access(workspace.target, workspace.store)
            return JujuOperate(plan, access, workspace.prefix, worker, recorder, schedule)
        from tippingpoint.targets.juju.api.access import from_agent_conf
        from tippingpoint.targets.juju.claim import AgentLeases, HollowLeases
        from tippingpoint.workloads.claim.workload import ClaimLoad

        assert isinstance(plan, ClaimPlan)
        claim_time = plan.workload.claim_time
        if workspace.target.agent is not None:
            leases = AgentLeases(from_agent_conf(workspace.target.agent), workspace.prefix, claim_time)
        else:
            access = _access(workspace.target, workspace.store)
            leases = HollowLeases(access, workspace.model, workspace.prefix, worker, claim_time)
        return ClaimLoad(plan.workload, leases, recorder, schedule)

    def clean_within(self, things: int) -> float:
        # Juju 4.0.15 removed 19,000 hollow units with their model in 47 s. A busy controller takes longer.
        return 900.0

    async def clean(self, entry: JujuEntry, run_id: str, progress: OnProgress) -> int:
        if not entry.model:
            return 0
        from tippingpoint.targets.juju.removal import remove_fleet, remove_models

        access = _access(entry.target, entry.store)
        try:
            if entry.many:
                return await remove_models(access, f"{entry.model}-", progress)
            return await remove_fleet(access, entry.model, entry.prefix, entry.made_model)
        except OperationFailed as problem:
            raise TargetError(
                access.controller_name, str(problem), "a controller that permits the removal"
            ) from None

    async def log_in(self, section: JujuTarget) -> None:
        from tippingpoint.targets.juju.api.access import store_directory

        await _log_in(_access(section, None if section.credentials is not None else store_directory()))

    async def probe(self, section: JujuTarget, made: JujuEntry | None) -> list[str]:
        from tippingpoint.targets.juju.api.client import ApiClient
        from tippingpoint.targets.juju.api.model import ModelAdmin
        from tippingpoint.targets.juju.hollow import find_model

        access = _access(section, None)
        model = section.model if made is None else made.model
        if not model:
            raise UserError("target.model", "missing", "a run in progress, or the name of a model to query")
        client = ApiClient(access.addresses, access.ca)
        try:
            uuid = await find_model(access, model)
            begun = timing.monotonic()
            admin = await ModelAdmin.open(client, access, uuid)
            connected = timing.monotonic()
            await admin.full_status()
            listed = timing.monotonic()
        except OperationFailed as problem:
            raise TargetError(access.controller_name, str(problem), "a controller that answers") from None
        finally:
            await client.close()
        return [
            f"connect {(connected - begun) * 1e3:.0f} ms",
            f"full-status {(listed - connected) * 1e3:.0f} ms",
        ]


def _access(target: JujuTarget, store: Path | None) -> ControllerAccess:
    from tippingpoint.targets.juju.api.access import from_file, from_store, store_directory

    if target.credentials is not None:
        return from_file(target.credentials)
    return from_store(target.controller, store or store_directory())


async def _log_in(access: ControllerAccess) -> None:
    from tippingpoint.targets.juju.api.client import ApiClient
    from tippingpoint.targets.juju.api.model import log_in

    client = ApiClient(access.addresses, access.ca)
    try:
        await log_in(client, access.user, None)
    except OperationFailed as problem:
        raise _shut_out(access, problem) from None
    finally:
        await client.close()


def _shut_out(access: ControllerAccess, problem: OperationFailed) -> TargetError:
    from tippingpoint.targets.juju.api.errors import UNAUTHORIZED, ApiError, ConnectionLost, RateLimited

    said = str(problem)
    if isinstance(problem, ApiError):
        refused = not isinstance(problem, RateLimited)
        if problem.code == UNAUTHORIZED and problem.request == "Login" and "password" in problem.message:
            said = f"the password of user {access.user_name} is refused: {said}"
    else:
        refused = isinstance(problem, ConnectionLost) and "certificate" in problem.reason
    return TargetError(access.controller_name, said, "a controller that accepts the login", refused=refused)


TARGET = Juju()
