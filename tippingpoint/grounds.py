"""The part of a target that a run may do what it likes in: taken before its workers begin, cleaned up after them.

This is the one place that knows which kinds of target there are. A target's modules are imported where they are
used: they bring libraries of their own, and a worker has the time and the memory of one target only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, Field

from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.ledger import FILE, Entry, EtcdEntry, JujuEntry, LxdEntry, OpenstackEntry, entries
from tippingpoint.load import Load, Progress, untold
from tippingpoint.lxd.grounds import LxdGrounds
from tippingpoint.manifest import Manifest
from tippingpoint.openstack.grounds import OpenstackGrounds
from tippingpoint.pacing import Schedule
from tippingpoint.plan import JujuTarget, ModelPlan, Plan, SpawnPlan
from tippingpoint.recorder import Recorder

if TYPE_CHECKING:
    from tippingpoint.juju.access import Access

RUN_LEASE_IDS = 2**40
"""Each run has a block of so many etcd v3 lease ids, one of 2**22 by its id, which begins at a multiple of it."""


class EtcdGrounds(BaseModel):
    """Keys below a prefix, and v3 lease ids from a number on."""

    kind: Literal["etcd"] = "etcd"
    prefix: str
    first_lease_id: int


class JujuGrounds(BaseModel):
    """Names that begin with a prefix, in the model with this UUID (empty with identity agent)."""

    kind: Literal["juju"] = "juju"
    prefix: str
    model: str
    target: JujuTarget
    """As the ledger has it: with the controller's name, whatever becomes the store's current one meanwhile."""
    store: Path | None
    """The juju client's directory that names the controller; None where a credentials file does."""


AnyGrounds = EtcdGrounds | JujuGrounds | LxdGrounds | OpenstackGrounds
Grounds = Annotated[AnyGrounds, Field(discriminator="kind")]


def ledger_entry(plan: Plan, run_id: str, directory: Path) -> Entry:
    """What a run of this plan will make, for its ledger; UserError when we cannot tell who we are there.

    All its names follow from the run's, so that anyone who knows that one can remove what a lost machine made. A key
    pair that has to be made for it is kept in `directory`.
    """
    if isinstance(plan, SpawnPlan):
        if plan.target.kind == "openstack":
            from tippingpoint.openstack import estate

            return estate.new_entry(plan.target, run_id, name_prefix(run_id), directory)
        from tippingpoint.lxd.estate import new_entry

        return new_entry(plan.target, run_id, name_prefix(run_id), directory)
    target = plan.target
    if target.kind == "etcd":
        return EtcdEntry(
            prefix=key_prefix(run_id),
            first_lease_id=_first_lease_id(run_id),
            lease_ids=RUN_LEASE_IDS,
            target=target,
        )
    from tippingpoint.juju.access import store_directory

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
        from tippingpoint.lxd import estate

        return await estate.reach(entry)
    if isinstance(entry, OpenstackEntry):
        from tippingpoint.openstack import estate

        return await estate.reach(entry)
    if isinstance(entry, EtcdEntry) or not entry.model:
        return None  # their workers make nothing before they are let in
    from tippingpoint.juju.client import ApiClient
    from tippingpoint.juju.model import log_in

    access = _access(entry.target, entry.store)
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
            from tippingpoint.lxd import room

            memory = workload.memory if workload.until != "created" else 0
            await room.check_room(entry, asked.size - before, memory, asked.members)
        elif isinstance(entry, OpenstackEntry):
            from tippingpoint.openstack import room

            adds = asked.size - before
            if workload.cycle:  # as many as there are at once
                adds, before = min(asked.size, workload.concurrency or workload.batch or 1), 0
            await room.check_room(entry, adds, asked.members, before)
    except UserError as refused:
        if refused.field.startswith("target."):
            raise
        raise UserError(f"stages.{stage - 1}.{refused.field}", refused.value, refused.accepted) from None


async def take(entry: Entry, plan: Plan, tell: Callable[[str], None] = lambda _: None) -> AnyGrounds:
    """Make what the workers find ready; TargetError when the target refuses it or cannot be reached.

    What the target keeps from us, and the report is to say, is told in sentences.
    """
    if isinstance(entry, LxdEntry):
        from tippingpoint.lxd import estate

        assert isinstance(plan, SpawnPlan)
        return await estate.take(
            entry,
            groups=max(1, *(stage.groups for stage in plan.stages)),
            reachable=plan.workload.until in ("reachable", "probed"),
            evicts=plan.workload.evict,
            tell=tell,
        )
    if isinstance(entry, OpenstackEntry):
        from tippingpoint.openstack import estate

        return await estate.take(entry, tell)
    if isinstance(entry, EtcdEntry):
        return EtcdGrounds(prefix=entry.prefix, first_lease_id=entry.first_lease_id)
    if not entry.model:
        return JujuGrounds(prefix=entry.prefix, model="", target=entry.target, store=None)
    from tippingpoint.juju import hollow

    access = _access(entry.target, entry.store)
    try:
        make = hollow.make_model if entry.made_model else hollow.find_model
        model = await make(access, entry.model)
    except OperationFailed as problem:
        raise _shut_out(access, problem) from None
    return JujuGrounds(prefix=entry.prefix, model=model, target=entry.target, store=entry.store)


def make_load(
    plan: Plan,
    grounds: AnyGrounds,
    worker: str,
    recorder: Recorder,
    schedule: Schedule,
) -> Load:
    """The load of one worker, not yet opened. UserError when a file that the plan names is unusable."""
    if isinstance(plan, SpawnPlan):
        from tippingpoint.spawn.workload import SpawnLoad

        if isinstance(grounds, OpenstackGrounds):
            from tippingpoint.spawn.openstack import OpenstackServers

            servers = OpenstackServers(grounds, plan.workload.poll_every)
            return SpawnLoad(plan, servers, recorder, schedule)
        from tippingpoint.spawn.lxd import LxdInstances

        assert isinstance(grounds, LxdGrounds)
        return SpawnLoad(plan, LxdInstances(grounds, int(worker)), recorder, schedule)
    if isinstance(plan, ModelPlan):
        from tippingpoint.spawn.juju import JujuSpawn

        assert isinstance(grounds, JujuGrounds)
        access = _access(grounds.target, grounds.store)
        return JujuSpawn(plan, access, grounds.model, grounds.prefix, worker, recorder, schedule)
    from tippingpoint.claim.workload import ClaimLoad

    workload = plan.workload
    assert not isinstance(grounds, LxdGrounds | OpenstackGrounds)
    if isinstance(grounds, EtcdGrounds):
        from tippingpoint.claim import etcd

        assert plan.target.kind == "etcd"
        scope = etcd.Scope(grounds.prefix, grounds.first_lease_id + int(worker) * etcd.LEASE_IDS)
        return ClaimLoad(workload, etcd.connect(plan.target, workload, scope), recorder, schedule)
    from tippingpoint.claim.juju import AgentLeases, HollowLeases
    from tippingpoint.juju.access import from_agent_conf

    if grounds.target.agent is not None:
        leases = AgentLeases(from_agent_conf(grounds.target.agent), grounds.prefix, workload.claim_time)
    else:
        access = _access(grounds.target, grounds.store)
        leases = HollowLeases(access, grounds.model, grounds.prefix, worker, workload.claim_time)
    return ClaimLoad(workload, leases, recorder, schedule)


async def clean_run(directory: Path, progress: Progress = untold) -> int:
    """Remove from the target what the run's ledger names and is still there; returns how many things that was.

    Raises TargetError when the target cannot be reached.
    """
    manifest = Manifest.load(directory)
    made = entries(directory)
    if not made and manifest.source == "run":
        raise UserError("ledger", str(directory / FILE), "the run's ledger, or nobody knows what it made")
    return await clean_entries(made, manifest.id, progress)


async def clean_entries(made: Iterable[Entry], run_id: str, progress: Progress = untold) -> int:
    """Remove what these entries of that run name; UserError for an entry that names more than a run can make."""
    removed = 0
    for entry in made:
        if isinstance(entry, EtcdEntry):
            removed += await _clean_etcd(entry, run_id)
        elif isinstance(entry, LxdEntry):
            removed += await _clean_lxd(entry, progress)
        elif isinstance(entry, OpenstackEntry):
            removed += await _clean_openstack(entry, progress)
        elif entry.model:
            removed += await _clean_juju(entry, run_id)
    return removed


async def _clean_etcd(entry: EtcdEntry, run_id: str) -> int:
    from tippingpoint.claim import etcd

    own = entry.prefix == key_prefix(run_id)
    ids = range(entry.first_lease_id, entry.first_lease_id + entry.lease_ids)
    if not own or ids.start % RUN_LEASE_IDS or not 0 < len(ids) <= RUN_LEASE_IDS or ids.start <= 0:
        raise UserError("ledger", entry.prefix, f"what this run made, below {key_prefix(run_id)}")
    return await etcd.clean(entry.target, entry.prefix, ids)


async def _clean_lxd(entry: LxdEntry, progress: Progress) -> int:
    from tippingpoint.lxd.removal import remove

    _check_names(entry)
    return await remove(entry, progress)


async def _clean_openstack(entry: OpenstackEntry, progress: Progress) -> int:
    from tippingpoint.openstack.removal import remove

    _check_names(entry)
    return await remove(entry, progress)


def _check_names(entry: LxdEntry | OpenstackEntry) -> None:
    """Refuse an entry whose names are not those of its run."""
    if entry.prefix != name_prefix(entry.run):
        raise UserError(
            "ledger", entry.prefix, f"what run {entry.run} made, named {name_prefix(entry.run)}..."
        )


async def _clean_juju(entry: JujuEntry, run_id: str) -> int:
    from tippingpoint.juju.removal import remove_fleet

    prefix = name_prefix(run_id)
    if entry.prefix != prefix or (entry.made_model and entry.model != model_name(prefix)):
        raise UserError(
            "ledger", f"{entry.prefix} in {entry.model}", f"what this run made, named {prefix}..."
        )
    access = _access(entry.target, entry.store)
    try:
        return await remove_fleet(access, entry.model, prefix, entry.made_model)
    except OperationFailed as problem:
        raise TargetError(
            access.controller_name, str(problem), "a controller that lets us clean up"
        ) from None


def _shut_out(access: Access, problem: OperationFailed) -> TargetError:
    return TargetError(access.controller_name, str(problem), "a controller that lets us in")


def _access(target: JujuTarget, store: Path | None) -> Access:
    from tippingpoint.juju.access import from_file, from_store, store_directory

    if target.credentials is not None:
        return from_file(target.credentials)
    return from_store(target.controller, store or store_directory())


def key_prefix(run_id: str) -> str:
    """Where all keys of a run are in an etcd."""
    return f"/tippingpoint/{run_id}/"


def _first_lease_id(run_id: str) -> int:
    block = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:8], "big") % 2**22
    return (1 + block) * RUN_LEASE_IDS


def name_prefix(run_id: str) -> str:
    """What the names of all that a run makes in a Juju controller, an LXD or an OpenStack begin with."""
    return "tp" + hashlib.sha256(run_id.encode()).hexdigest()[:8]


def model_name(prefix: str) -> str:
    """The name of the model that a run makes for itself."""
    return f"tippingpoint-{prefix}"
