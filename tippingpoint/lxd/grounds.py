"""What the workers of a run find ready in an LXD. Light to import: every worker knows of it, whatever its target."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from tippingpoint.plan_targets import LxdTarget


class LxdGrounds(BaseModel):
    """Projects and containers whose names begin with a prefix, made from an image on a pool and a network."""

    kind: Literal["lxd"] = "lxd"
    run: str
    """The run whose mark they carry (user.tippingpoint)."""
    prefix: str
    image: str
    """Fingerprint of the image they are made from."""
    pool: str
    network: str
    """The network of their profile; empty where it has none."""
    target: LxdTarget
    """As the ledger has it: with the remote's name."""
    store: Path | None
    """The lxc client's directory that names the remote; None where the target says otherwise who we are."""
    identity: Path | None
    """Directory of the key pair made for a trust token; None without one."""
