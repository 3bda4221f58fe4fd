"""The workspace of a run in LXD."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from tippingpoint.targets.lxd.plan import LxdTarget


class LxdPlace(BaseModel):
    """A project that the plan names, for one group."""

    project: str
    image: str
    """Fingerprint of the image for containers in this project."""
    devices: dict[str, dict[str, str]]
    """Devices of the containers beside those of the project's own profile."""


class LxdWorkspace(BaseModel):
    """Projects and containers whose names begin with a prefix, made from an image on a pool and a network."""

    run: str
    """The run whose mark they carry (user.tippingpoint)."""
    prefix: str
    image: str
    """Fingerprint of their image; empty if `places` have it."""
    network: str
    """The network of the first group's containers; empty if they have none."""
    places: list[LxdPlace] = []
    """The project of each group; empty if the run creates the projects."""
    refused: list[str] = []
    """The observations that LXD refuses to the client certificate."""
    target: LxdTarget
    """The target as the ledger has it, with the remote's name."""
    store: Path | None
    """The lxc client's directory that has the remote; None if the target names a socket, credentials or a token."""
    identity: Path | None
    """Directory of the key pair made for a trust token; None without a token."""
