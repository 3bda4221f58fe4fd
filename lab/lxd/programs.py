"""The LXD that a lab runs, or Incus, which is its fork: this machine's, or a release's in a root file system."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lab.control import LabError
from lab.lxd.machine import PATH
from lab.releases.find import find
from lab.releases.roots import ROOT_IMAGE

Product = Literal["lxd", "incus"]
_HOST = ("ip", "nft", "nsenter", "unshare", "mount", "pivot_root")
_UNIFIED_FROM = 7
"""The first Incus that wants version 2 of control groups alone, as its liblxc does."""


@dataclass(frozen=True)
class Programs:
    """An LXD or Incus to run: its programs, and the image of the root that has them (None: this machine's)."""

    label: str
    """For people, such as `Incus 6.0.4 (trixie)`."""
    daemon: str
    client: str
    init: tuple[str, ...]
    variables: str
    """How its environment variables begin."""
    image: Path | None = None
    unified: bool = False
    """Whether it needs version 2 of control groups alone."""

    def environment(self, **named: str) -> dict[str, str]:
        """Environment variables for its programs, such as DIR=... for LXD_DIR."""
        return {f"{self.variables}_{name}": value for name, value in named.items()} | (
            {"PATH": PATH} if self.image is not None else {}
        )


def programs(product: Product, release: str | None) -> Programs:
    """Return what to run: a release (a suite or version), or LXD of this machine. Incus is trixie's unless it is named.

    LabError when it is not there and cannot be fetched, or when the machine lacks what runs it.
    """
    if os.geteuid() != 0:
        raise LabError(f"user: uid {os.geteuid()}", "root: LXD needs it")
    if product == "lxd" and release is None:
        _check(("lxd", "lxc", "dnsmasq", *_HOST))
        return Programs("LXD", "lxd", "lxc", ("lxd", "init"), "LXD")
    _check(_HOST)
    found = find(product, release or "trixie")
    label = f"{'LXD' if product == 'lxd' else 'Incus'} {found.version} ({found.origin})"
    image = found.path / ROOT_IMAGE
    if product == "lxd":
        return Programs(label, "lxd", "lxc", ("lxd", "init"), "LXD", image)
    unified = int(found.version.partition(".")[0]) >= _UNIFIED_FROM
    return Programs(label, "incusd", "incus", ("incus", "admin", "init"), "INCUS", image, unified)


def _check(names: tuple[str, ...]) -> None:
    for name in names:
        if shutil.which(name) is None:
            raise LabError(f"{name}: not found", "the packages of Debian that ./scripts/lab up lxd installs")
