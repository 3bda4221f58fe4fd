"""The observations of an LXD's users, timed once outside of any run. Nothing is created on the server."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.targets.lxd.access import config_directory
from tippingpoint.targets.lxd.client import LxdClient
from tippingpoint.targets.lxd.errors import LxdError
from tippingpoint.targets.lxd.plan import OBSERVATIONS, LxdTarget
from tippingpoint.targets.lxd.pool_and_network import find_network, find_projects
from tippingpoint.targets.lxd.provision import MARK, access_of, greet, parts_of
from tippingpoint.targets.lxd.retrying import ask_unless_refused
from tippingpoint.targets.lxd.spawn import LxdInstances
from tippingpoint.targets.lxd.workspace import LxdPlace, LxdWorkspace
from tippingpoint.util import timing
from tippingpoint.workloads.spawn.target import Item

_NOT_THERE = {
    "cluster-list": "not a cluster",
    "exec": "no container of a run is running",
    "network-leases": "no network that leases addresses",
}


class Probed(NamedTuple):
    """One of OBSERVATIONS and the milliseconds until its answer; None, with a reason, if there was no answer."""

    name: str
    ms: float | None
    why: str


class _Ours(NamedTuple):
    """A running container of a run."""

    project: str
    run: str
    prefix: str
    item: Item


async def probe(target: LxdTarget, prefix: str = "", within: float = 30.0) -> list[Probed]:
    """Make each of OBSERVATIONS once, one after the other, each for `within` seconds at most.

    They concern the project of a running container of a run whose name begins with `prefix`; `exec` runs in this
    container. Without such a container they concern the first of the target's `projects`, or `default`.
    UserError if a credentials file is unusable, or the target has a token, which only a run can redeem. TargetError if
    LXD refuses the client.
    """
    if target.token is not None:
        raise UserError("target.token", str(target.token), "credentials, because only a run redeems a token")
    remote = target.credentials is None and target.socket is None
    store = config_directory(target.remote) if remote else None
    access = access_of(target, store, None)
    client = LxdClient(access)
    try:
        await greet(client, access)
        await find_projects(client, target.projects)
        ours = await _find_ours(client, target.projects, prefix)
        project = ours.project if ours is not None else (target.projects or ["default"])[0]
        network = await find_network(client, target, project)
    except LxdError as problem:
        raise TargetError(access.name, str(problem), "an LXD that answers") from None
    finally:
        await client.close()
    workspace = LxdWorkspace(
        run=ours.run if ours is not None else "",
        prefix=ours.prefix if ours is not None else "",
        image="",
        network=network,
        places=[LxdPlace(project=project, image="", devices={})]
        * (1 if ours is None else ours.item.group + 1),
        target=target,
        store=store,
        identity=None,
    )
    instances = LxdInstances(workspace, 0)
    try:
        await instances.open()
        running = ours.item if ours is not None else None
        return [await _timed(instances, what, running, within) for what in OBSERVATIONS]
    finally:
        await instances.close()


async def _find_ours(client: LxdClient, projects: list[str], prefix: str) -> _Ours | None:
    """Find a running container with a run's mark and name, the name beginning with `prefix`; None without one."""
    for project in projects or [""]:
        where = {"project": project} if project else {"all-projects": "true"}
        listed: list[dict[str, Any]] | None = await ask_unless_refused(
            client, "/1.0/instances", recursion=1, **where
        )
        for instance in listed or ():
            parts = parts_of(instance["name"])
            config: dict[str, str] = instance["config"] or {}
            run = config.get(MARK)
            if parts and run and instance["status"].lower() == "running" and parts[0].startswith(prefix):
                return _Ours(instance["project"], run, parts[0], Item(parts[1], parts[2]))
    return None


async def _timed(instances: LxdInstances, what: str, running: Item | None, within: float) -> Probed:
    began = timing.monotonic()
    try:
        async with asyncio.timeout(within):
            asked = await instances.observe(what, 0, running)
    except TimeoutError:
        return Probed(what, None, f"no answer within {within:g} s")
    except OperationFailed as problem:
        return Probed(what, None, str(problem))
    took = timing.monotonic() - began
    return Probed(what, took * 1000, "") if asked else Probed(what, None, _NOT_THERE[what])
