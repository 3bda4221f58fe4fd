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
    alone: tuple[str, ...] = ()
    """Packages that are unpacked without what they depend on."""
    beside: str = ""
    """A package that conflicts with the others: it is unpacked below /opt/NAME of the root."""
    compiled: bool = False
    """Whether Python's modules are compiled, which maintainer scripts would do."""
    user: str = ""
    """A user and group that a package would make, as `user:group:id:home`."""

    @property
    def growth(self) -> float:
        """The bytes that a release takes in the cache for each byte that is fetched.

        Measured were 3.8 of a program, 0.8 to 1.05 of an image, 2.0 and 2.3 of one that is compiled (with
        OpenStack's databases), and 2.9 of a tree.
        """
        return {"program": 4, "image": 2.4 if self.compiled else 1.1, "tree": 3}[self.form]


RECIPES = {
    "etcd": Recipe(("etcd-server",), "program"),
    "lxd": Recipe(("lxd", "lxd-client", *_CALLED), "image"),
    "incus": Recipe(("incus-base", "incus-client", *_CALLED), "image"),
    "rabbitmq": Recipe(("rabbitmq-server",), "image"),
    "openstack": Recipe(
        (
            *(f"python3-{name}" for name in ("nova", "keystone", "glance", "placement", "neutron")),
            *(
                "default-mysql-server-core",  # MariaDB, whose packages' names have a version in bullseye
                "default-mysql-client-core",
                "memcached",
                "uwsgi-core",
                "uwsgi-plugin-python3",
            ),
        ),
        "image",
        alone=("nova-common", "glance-common", "neutron-common"),  # for api-paste.ini
        compiled=True,
    ),
    "pacemaker": Recipe(
        ("pacemaker", "corosync", "pacemaker-cli-utils", "resource-agents"),
        "tree",
        beside="pacemaker-remote",
        user="hacluster:haclient:499:/var/lib/pacemaker",
    ),
}
"""By target."""
