"""What a target's users ask it for, timed now, each once: the figures a person would try by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from tippingpoint.errors import OperationFailed, TargetError, UserError
from tippingpoint.plan.spawn import SERVER_OBSERVATIONS
from tippingpoint.plan.targets import JujuTarget, LxdTarget, OpenstackTarget
from tippingpoint.rundir.ledger import Entry, JujuEntry, LxdEntry
from tippingpoint.targets.openstack.workspace import OpenstackWorkspace

if TYPE_CHECKING:
    from tippingpoint.targets.openstack.spawn import OpenstackServers

ANSWERS_WITHIN = 30.0
"""Seconds for each answer of an OpenStack's services."""

_TARGETS: dict[str, TypeAdapter[Any]] = {
    "lxd": TypeAdapter(LxdTarget),
    "juju": TypeAdapter(JujuTarget),
    "openstack": TypeAdapter(OpenstackTarget),
}


async def probe(target: Mapping[str, Any], made: Entry | None = None) -> str:
    """A line for each thing asked for, such as `list 46 ms`, of the run's own things where one goes on that made some.

    UserError or TargetError where nobody can be asked.
    """
    kind = str(target.get("kind", ""))
    if kind not in _TARGETS:
        raise UserError("target.kind", kind or "missing", f"one of {', '.join(_TARGETS)}")
    try:
        access = _TARGETS[kind].validate_python(dict(target))
    except ValidationError as problem:
        error = problem.errors(include_url=False, include_input=False)[0]
        field = ".".join(["target", *map(str, error["loc"])])
        raise UserError(field, "given", str(error["msg"]).removeprefix("Value error, ")) from None
    if kind == "lxd":
        return "\n".join(await _probe_lxd(access, made.prefix if isinstance(made, LxdEntry) else ""))
    if kind == "openstack":
        return "\n".join(await _probe_openstack(access))
    model = made.model if isinstance(made, JujuEntry) else access.model
    return "\n".join(await _probe_juju(access, model))


async def _probe_lxd(target: LxdTarget, prefix: str) -> list[str]:
    from tippingpoint.targets.lxd.probe import probe

    return [
        f"{probed.name} {probed.ms:.0f} ms" if probed.ms is not None else f"{probed.name}: {probed.why}"
        for probed in await probe(target, prefix)
    ]


async def _probe_openstack(target: OpenstackTarget) -> list[str]:
    """SERVER_OBSERVATIONS of the cloud's own project, one after the other; some are answered to an admin alone."""
    from tippingpoint.targets.openstack.access import from_clouds
    from tippingpoint.targets.openstack.client import OpenstackClient
    from tippingpoint.targets.openstack.provision import is_admin, told_of
    from tippingpoint.targets.openstack.spawn import OpenstackServers
    from tippingpoint.targets.openstack.versions import SERVERS

    access = from_clouds(target)
    client = OpenstackClient(access)
    try:
        with told_of(access.name, "an OpenStack that answers"):
            await client.log_in()
            admin = await is_admin(client)
    finally:
        await client.close()
    workspace = OpenstackWorkspace(
        run="",
        prefix="",
        image="",
        flavor="",
        network="",
        external="",
        admin=admin,
        version=SERVERS,
        user="",
        role="",
        domain="",
        identity=None,
        target=target,
    )
    servers = OpenstackServers(workspace, poll_every=1.0)
    try:
        await servers.open()
        return [await _asked(servers, what) for what in SERVER_OBSERVATIONS]
    finally:
        await servers.close()


async def _asked(servers: OpenstackServers, what: str) -> str:
    begun = time.monotonic()
    try:
        async with asyncio.timeout(ANSWERS_WITHIN):
            answered = await servers.observe(what, 0, None)
    except TimeoutError:
        return f"{what}: no answer within {ANSWERS_WITHIN:g} s"
    except OperationFailed as problem:
        return f"{what}: {problem}"
    took = time.monotonic() - begun
    return f"{what} {took * 1e3:.0f} ms" if answered else f"{what}: answered to an admin alone"


async def _probe_juju(target: JujuTarget, model: str | None) -> list[str]:
    from tippingpoint.targets.juju.api.access import from_file, from_store, store_directory
    from tippingpoint.targets.juju.api.client import ApiClient
    from tippingpoint.targets.juju.api.model import ModelAdmin
    from tippingpoint.targets.juju.hollow import find_model

    if target.credentials is not None:
        access = from_file(target.credentials)
    else:
        access = from_store(target.controller, store_directory())
    if not model:
        raise UserError("target.model", "missing", "a run that goes on, or the name of a model to ask for")
    client = ApiClient(access.addresses, access.ca)
    try:
        uuid = await find_model(access, model)
        begun = time.monotonic()
        admin = await ModelAdmin.open(client, access, uuid)
        connected = time.monotonic()
        await admin.full_status()
        listed = time.monotonic()
    except OperationFailed as problem:
        raise TargetError(access.controller_name, str(problem), "a controller that answers") from None
    finally:
        await client.close()
    return [f"connect {(connected - begun) * 1e3:.0f} ms", f"full-status {(listed - connected) * 1e3:.0f} ms"]
