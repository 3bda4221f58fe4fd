"""What the workers of a run find ready in an LXD."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel

from tippingpoint.targets.lxd.plan import LxdTarget


class LxdPlace(BaseModel):
    """A project that was there before the run, for one group."""

    project: str
    image: str
    """Fingerprint of the image that containers are made from in this project."""
    devices: dict[str, dict[str, str]]
    """What containers get beside what the project's own profile gives them."""


class LxdWorkspace(BaseModel):
    """Projects and containers whose names begin with a prefix, made from an image on a pool and a network."""

    run: str
    """The run whose mark they carry (user.tippingpoint)."""
    prefix: str
    image: str
    """Fingerprint of the image they are made from; empty where `places` say it."""
    network: str
    """The network of the first group's containers; empty where they have none."""
    places: list[LxdPlace] = []
    """For each group the project that it is put in; none where projects are made."""
    refused: list[str] = []
    """The observations that LXD refuses our certificate."""
    target: LxdTarget
    """As the ledger has it: with the remote's name."""
    store: Path | None
    """The lxc client's directory that names the remote; None where the target says otherwise who we are."""
    identity: Path | None
    """Directory of the key pair made for a trust token; None without one."""
