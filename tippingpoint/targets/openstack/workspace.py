"""The workspace of a run in OpenStack. Light to import, because every worker imports it."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from tippingpoint.targets.openstack.plan import OpenstackTarget


class OpenstackWorkspace(BaseModel):
    """Servers, and the resources that they need, whose names begin with a prefix."""

    run: str
    """The run whose mark they carry (metadata `tippingpoint`)."""
    prefix: str
    image: str
    """Id of the servers' image."""
    flavor: str
    """Id of their flavor."""
    network: str
    """Id of their network; empty if they have none, or each group has its own."""
    external: str
    """Id of the network for the routers' gateways; empty without one."""
    admin: bool
    """Whether the cloud's own credential is an admin's, who sees all projects, hosts and agents."""
    version: tuple[int, int]
    """The microversion for creating and listing servers."""
    user: str
    """Id of the user that owns the servers of created projects; empty if none are created."""
    role: str
    """Id of this user's role in them."""
    domain: str
    """Id of the domain of the created projects; empty if none are created."""
    identity: Path | None
    """File with that user's password."""
    target: OpenstackTarget
    """The target as the ledger has it, with the cloud's name and file."""
