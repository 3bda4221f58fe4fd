"""The part of a target that a run may do what it likes in: taken before its workers begin, cleaned up after them.

This is the one place that knows which kinds of target there are. A target's modules are imported where they are
used: they bring libraries of their own, and a worker has the time and the memory of one target only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, Field

from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.plan.plan import ClaimWorkload, JujuTarget, ModelPlan, Plan, SpawnPlan
from tippingpoint.plan.targets import EtcdTarget, LxdTarget, OpenstackTarget
from tippingpoint.rundir.ledger import FILE, Entry, EtcdEntry, JujuEntry, LxdEntry, OpenstackEntry
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.ownership import (
    RUN_LEASE_IDS,
    first_lease_id,
    follows_from_its_run,
    key_prefix,
    model_name,
    name_prefix,
    own_entries,
)
from tippingpoint.rundir.recorder import Recorder
from tippingpoint.targets.lxd.workspace import LxdWorkspace
from tippingpoint.targets.openstack.workspace import OpenstackWorkspace
from tippingpoint.workloads.load import Load, OnProgress, untold
from tippingpoint.workloads.schedule import Schedule

if TYPE_CHECKING:
    from tippingpoint.targets.juju.api.access import ControllerAccess


class EtcdWorkspace(BaseModel):
    """Keys below a prefix, and v3 lease ids from a number on."""

    kind: Literal["etcd"] = "etcd"
    prefix: str
    first_lease_id: int


class JujuWorkspace(BaseModel):
    """Names that begin with a prefix, in the model with this UUID (empty with identity agent)."""

    kind: Literal["juju"] = "juju"
    prefix: str
    model: str
    target: JujuTarget
    """As the ledger has it: with the controller's name, whatever becomes the store's current one meanwhile."""
    store: Path | None
    """The juju client's directory that names the controller; None where a credentials file does."""


AnyWorkspace = EtcdWorkspace | JujuWorkspace | LxdWorkspace | OpenstackWorkspace
Workspace = Annotated[AnyWorkspace, Field(discriminator="kind")]


def ledger_entry(plan: Plan, run_id: str, directory: Path) -> Entry:
    """What a run of this plan will make, for its ledger; UserError when we cannot tell who we are there.

    All its names follow from the run's, so that anyone who knows that one can remove what a lost machine made. A key
    pair that has to be made for it is kept in `directory`.
    """
    if isinstance(plan, SpawnPlan):
        if plan.target.kind == "openstack":
            from tippingpoint.targets.openstack import provision

            return provision.new_entry(plan.target, run_id, name_prefix(run_id), directory)
        from tippingpoint.targets.lxd.provision import new_entry

        return new_entry(plan.target, run_id, name_prefix(run_id), directory)
    target = plan.target
    if target.kind == "etcd":
        return EtcdEntry(
            prefix=key_prefix(run_id),
            first_lease_id=first_lease_id(run_id),
            lease_ids=RUN_LEASE_IDS,
            target=target,
        )
    from tippingpoint.targets.juju.api.access import store_directory

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
        target=named,
        store=store,
    )


async def reach(entry: Entry) -> None:
    """See that the target lets us in, so that who is refused has nothing to clean up; TargetError when it does not."""
    if isinstance(entry, LxdEntry):
        from tippingpoint.targets.lxd import provision

        return await provision.reach(entry)
    if isinstance(entry, OpenstackEntry):
        from tippingpoint.targets.openstack import provision

        return await provision.reach(entry)
    if isinstance(entry, EtcdEntry) or not entry.model:
        return None  # their workers make nothing before they are let in
    return await _log_in(_access(entry.target, entry.store))


async def knock(target: EtcdTarget | JujuTarget | LxdTarget | OpenstackTarget) -> None:
    """See that a target lets us in, by one log-in that makes nothing and redeems no token; TargetError where it does
    not, UserError where a file that the target names is unusable."""
    if target.kind == "lxd":
        from tippingpoint.targets.lxd.client import LxdClient
        from tippingpoint.targets.lxd.provision import access_of, greet

        if target.token is not None:
            return
        access = access_of(target, None, None)
        client = LxdClient(access)
        try:
            await greet(client, access)
        finally:
            await client.close()
    elif target.kind == "openstack":
        from tippingpoint.targets.openstack.access import from_clouds
        from tippingpoint.targets.openstack.client import OpenstackClient

        cloud = OpenstackClient(from_clouds(target))
        try:
            await cloud.log_in()
        finally:
            await cloud.close()
    elif target.kind == "juju":
        from tippingpoint.targets.juju.api.access import store_directory

        await _log_in(_access(target, None if target.credentials is not None else store_directory()))
    else:
        from tippingpoint.targets.etcd import claim

        scope = claim.Scope(key_prefix("login"), 0)
        leases = claim.connect(target.model_copy(update={"connections": 1}), ClaimWorkload(), scope)
        try:
            await leases.open()
        finally:
            await leases.close()


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


async def check_room(entry: Entry, plan: Plan, stage: int, before: int) -> None:
    """See that a listed stage (from 1) of this plan fits the target, which has `before` of our things already.

    UserError names the number that fits. Only for a target that says what it has room for.
    """
    if not isinstance(plan, SpawnPlan):
        return
    asked, workload = plan.stages[stage - 1], plan.workload
    try:
        if isinstance(entry, LxdEntry):
            from tippingpoint.targets.lxd import capacity

            memory = workload.memory if workload.until != "created" else 0
            await capacity.check_room(entry, asked.size - before, memory, asked.members)
        elif isinstance(entry, OpenstackEntry):
            from tippingpoint.targets.openstack import capacity

            adds = asked.size - before
            if workload.cycle:  # as many as there are at once
                adds, before = min(asked.size, workload.concurrency or workload.batch or 1), 0
            await capacity.check_room(entry, adds, asked.members, before)
    except UserError as refused:
        if refused.field.startswith("target."):
            raise
        raise UserError(f"stages.{stage - 1}.{refused.field}", refused.value, refused.accepted) from None


async def take(entry: Entry, plan: Plan, tell: Callable[[str], None] = lambda _: None) -> AnyWorkspace:
    """Make what the workers find ready; TargetError when the target refuses it or cannot be reached.

    What the target keeps from us, and the report is to say, is told in sentences.
    """
    if isinstance(entry, LxdEntry):
        from tippingpoint.targets.lxd import provision

        assert isinstance(plan, SpawnPlan)
        return await provision.take(
            entry,
            groups=max(1, *(stage.groups for stage in plan.stages)),
            reachable=plan.workload.until in ("reachable", "probed"),
            evicts=plan.workload.evict,
            tell=tell,
        )
    if isinstance(entry, OpenstackEntry):
        from tippingpoint.targets.openstack import provision

        return await provision.take(entry, tell)
    if isinstance(entry, EtcdEntry):
        return EtcdWorkspace(prefix=entry.prefix, first_lease_id=entry.first_lease_id)
    if not entry.model:
        return JujuWorkspace(prefix=entry.prefix, model="", target=entry.target, store=None)
    from tippingpoint.targets.juju import hollow

    access = _access(entry.target, entry.store)
    try:
        make = hollow.make_model if entry.made_model else hollow.find_model
        model = await make(access, entry.model)
    except OperationFailed as problem:
        raise _shut_out(access, problem) from None
    return JujuWorkspace(prefix=entry.prefix, model=model, target=entry.target, store=entry.store)


def make_load(
    plan: Plan,
    workspace: AnyWorkspace,
    worker: str,
    recorder: Recorder,
    schedule: Schedule,
) -> Load:
    """The load of one worker, not yet opened. UserError when a file that the plan names is unusable."""
    if isinstance(plan, SpawnPlan):
        from tippingpoint.workloads.spawn.workload import SpawnLoad

        if isinstance(workspace, OpenstackWorkspace):
            from tippingpoint.targets.openstack.spawn import OpenstackServers

            servers = OpenstackServers(workspace, plan.workload.poll_every)
            return SpawnLoad(plan, servers, recorder, schedule)
        from tippingpoint.targets.lxd.spawn import LxdInstances

        assert isinstance(workspace, LxdWorkspace)
        return SpawnLoad(plan, LxdInstances(workspace, int(worker)), recorder, schedule)
    if isinstance(plan, ModelPlan):
        from tippingpoint.targets.juju.grow import JujuSpawn

        assert isinstance(workspace, JujuWorkspace)
        access = _access(workspace.target, workspace.store)
        return JujuSpawn(plan, access, workspace.model, workspace.prefix, worker, recorder, schedule)
    from tippingpoint.workloads.claim.workload import ClaimLoad

    workload = plan.workload
    assert not isinstance(workspace, LxdWorkspace | OpenstackWorkspace)
    if isinstance(workspace, EtcdWorkspace):
        from tippingpoint.targets.etcd import claim

        assert plan.target.kind == "etcd"
        scope = claim.Scope(workspace.prefix, workspace.first_lease_id + int(worker) * claim.LEASE_IDS)
        return ClaimLoad(workload, claim.connect(plan.target, workload, scope), recorder, schedule)
    from tippingpoint.targets.juju.api.access import from_agent_conf
    from tippingpoint.targets.juju.claim import AgentLeases, HollowLeases

    if workspace.target.agent is not None:
        leases = AgentLeases(from_agent_conf(workspace.target.agent), workspace.prefix, workload.claim_time)
    else:
        access = _access(workspace.target, workspace.store)
        leases = HollowLeases(access, workspace.model, workspace.prefix, worker, workload.claim_time)
    return ClaimLoad(workload, leases, recorder, schedule)


async def clean_run(directory: Path, progress: OnProgress = untold) -> int:
    """Remove from the target what the run's ledger names and is still there; returns how many things that was.

    Raises TargetError when the target cannot be reached, UserError for a ledger that names what is not the run's.
    """
    manifest = Manifest.load(directory)
    made = own_entries(directory, manifest)
    if not made and manifest.source == "run":
        raise UserError("ledger", str(directory / FILE), "the run's ledger, or nobody knows what it made")
    return await clean_entries(made, manifest.id, progress)


async def clean_entries(made: Iterable[Entry], run_id: str, progress: OnProgress = untold) -> int:
    """Remove what these entries of that run name, which are its own (own_entries)."""
    removed = 0
    for entry in made:
        if isinstance(entry, EtcdEntry):
            from tippingpoint.targets.etcd import claim

            ids = range(entry.first_lease_id, entry.first_lease_id + entry.lease_ids)
            removed += await claim.clean(
                entry.target, entry.prefix, ids, only_of_keys=not follows_from_its_run(entry, run_id)
            )
        elif isinstance(entry, LxdEntry):
            from tippingpoint.targets.lxd.removal import remove

            removed += await remove(entry, progress)
        elif isinstance(entry, OpenstackEntry):
            from tippingpoint.targets.openstack import removal

            removed += await removal.remove(entry, progress)
        elif entry.model:
            removed += await _clean_juju(entry)
    return removed


async def _clean_juju(entry: JujuEntry) -> int:
    from tippingpoint.targets.juju.removal import remove_fleet

    access = _access(entry.target, entry.store)
    try:
        return await remove_fleet(access, entry.model, entry.prefix, entry.made_model)
    except OperationFailed as problem:
        raise TargetError(
            access.controller_name, str(problem), "a controller that lets us clean up"
        ) from None


def _shut_out(access: ControllerAccess, problem: OperationFailed) -> TargetError:
    from tippingpoint.targets.juju.api.errors import UNAUTHORIZED, ApiError, ConnectionLost, RateLimited

    said = str(problem)
    if isinstance(problem, ApiError):
        refused = not isinstance(problem, RateLimited)
        if problem.code == UNAUTHORIZED and problem.request == "Login" and "password" in problem.message:
            said = f"the password of user {access.user_name} is refused: {said}"
    else:
        refused = isinstance(problem, ConnectionLost) and "certificate" in problem.reason
    return TargetError(access.controller_name, said, "a controller that lets us in", refused=refused)


def _access(target: JujuTarget, store: Path | None) -> ControllerAccess:
    from tippingpoint.targets.juju.api.access import from_file, from_store, store_directory

    if target.credentials is not None:
        return from_file(target.credentials)
    return from_store(target.controller, store or store_directory())
