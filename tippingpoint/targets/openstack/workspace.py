"""What the workers of a run find ready in an OpenStack. Light to import: every worker knows of it."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from tippingpoint.targets.openstack.plan import OpenstackTarget


class OpenstackWorkspace(BaseModel):
    """Servers, and what they need, whose names begin with a prefix."""

    run: str
    """The run whose mark they carry (metadata `tippingpoint`)."""
    prefix: str
    image: str
    """Id of the image that servers are made from."""
    flavor: str
    """Id of their flavor."""
    network: str
    """Id of their network; empty where they have none, or each group has one that is made."""
    external: str
    """Id of the network that routers have their gateway in; empty where they have none."""
    admin: bool
    """Whether the cloud's own credential is an admin's, who sees all projects, hosts and agents."""
    version: tuple[int, int]
    """The microversion that servers are made and listed by."""
    user: str
    """Id of the user that the servers of made projects are; empty where none are made."""
    role: str
    """Id of the role that this user has in them."""
    domain: str
    """Id of the domain that projects are made in; empty where none are."""
    identity: Path | None
    """File with that user's password."""
    target: OpenstackTarget
    """As the ledger has it: with the cloud's name and file."""
