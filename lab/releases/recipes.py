"""What is fetched of each target, and in which form it is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_CALLED = ("dnsmasq-base", "nftables", "iproute2", "squashfs-tools", "xz-utils", "rsync", "attr")
"""Programs that LXD and Incus call, some of which their packages only recommend."""


@dataclass(frozen=True)
class Recipe:
    """Packages of a target; the first has the version."""

    packages: tuple[str, ...]
    form: Literal["program", "image", "tree"]
    """One package whose program runs as it is; or a root file system, as one compressed file or as files."""
    beside: str = ""
    """A package that conflicts with the others: it is unpacked below /opt/NAME of the root."""
    user: str = ""
    """A user and group that a package would make, as `user:group:id:home`."""


RECIPES = {
    "etcd": Recipe(("etcd-server",), "program"),
    "lxd": Recipe(("lxd", "lxd-client", *_CALLED), "image"),
    "incus": Recipe(("incus-base", "incus-client", *_CALLED), "image"),
    "rabbitmq": Recipe(("rabbitmq-server",), "image"),
    "pacemaker": Recipe(
        ("pacemaker", "corosync", "pacemaker-cli-utils", "resource-agents"),
        "tree",
        beside="pacemaker-remote",
        user="hacluster:haclient:499:/var/lib/pacemaker",
    ),
}
"""By target."""
GROWTH = {"program": 4, "image": 1.1, "tree": 3}
"""The bytes that a release takes in the cache for each byte that is fetched, by form. Measured of each were 3.8, 0.8 to
1.05, and 2.9."""
