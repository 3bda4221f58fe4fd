"""The observations of a cloud's users, timed once now, as a person would do by hand."""

from __future__ import annotations

import asyncio

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.openstack.access import from_clouds
from tippingpoint.targets.openstack.client import OpenstackClient
from tippingpoint.targets.openstack.plan import SERVER_OBSERVATIONS, OpenstackTarget
from tippingpoint.targets.openstack.provision import is_admin, told_of
from tippingpoint.targets.openstack.spawn import OpenstackServers
from tippingpoint.targets.openstack.versions import SERVERS
from tippingpoint.targets.openstack.workspace import OpenstackWorkspace
from tippingpoint.util import timing

ANSWERS_WITHIN = 30.0
"""Seconds to wait for each answer of an OpenStack's services."""


async def probe(target: OpenstackTarget) -> list[str]:
    """Make SERVER_OBSERVATIONS in the cloud's own project, one after the other; some are for admins only."""
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
    begun = timing.monotonic()
    try:
        async with asyncio.timeout(ANSWERS_WITHIN):
            answered = await servers.observe(what, 0, None)
    except TimeoutError:
        return f"{what}: no answer within {ANSWERS_WITHIN:g} s"
    except OperationFailed as problem:
        return f"{what}: {problem}"
    took = timing.monotonic() - begun
    return f"{what} {took * 1e3:.0f} ms" if answered else f"{what}: for admins only"
