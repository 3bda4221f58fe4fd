"""OpenStack's programs: this machine's, or another release's in its own /usr. What differs by release is here."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.control import LabError
from lab.releases.find import Release
from lab.releases.usr import holding_usr_of, in_usr_of
from lab.service import Starter

PYTHON = "/usr/bin/python3"
"""Debian's Python, which has OpenStack's modules. It is not the one that runs the lab."""
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
SERVICES = ("keystone", "nova", "glance", "placement", "neutron")
NO_SNAPSHOT_ISOLATION = "--loose-innodb-snapshot-isolation=OFF"
"""MariaDB has this on from 11.6 on (trixie). Nova then fails in nested transactions by SAVEPOINT does not exist, and
operators turn it off: https://bugs.launchpad.net/nova/+bug/2116186"""
_PROGRAMS = ("mariadb", "mariadbd", "mariadb-install-db", "memcached", "uwsgi", PYTHON)
_PACKAGES = ("mariadb-server-core", *(f"python3-{service}" for service in SERVICES))
_CACHE = Path(__file__).resolve().parents[2] / ".cache"
_SHARED = _CACHE / "packages" / "openstack" / "usr" / "share"
_PIPELINES = {
    "nova": "nova-common/api-paste.ini",
    "neutron": "neutron-common/api-paste.ini",
    "glance": "glance-common/glance-api-paste.ini",
}
"""The paste configurations in Debian's -common packages, which are unpacked but not installed."""
_EXPECTED = "the packages of Debian 12 that ./scripts/lab up openstack installs"


@dataclass(frozen=True)
class Programs:
    """Where the programs of one release are. By default they are this machine's."""

    usr: Path = Path("/usr")
    """Their /usr, as this process sees it."""
    shared: Path = _SHARED
    """The directory with files of the -common packages."""
    databases: Path = _CACHE / "openstack"
    """The directory in which databases of this release are kept."""
    holder: int | None = None
    """The process with their /usr in place of the machine's; None for this machine's."""

    def line(self, *command: str) -> list[str]:
        """Return the command line that runs a command among these programs. The process keeps its id."""
        return list(command) if self.holder is None else in_usr_of(self.holder, command)

    @property
    def pipelines(self) -> dict[str, Path]:
        """The paste configurations by service."""
        return {service: self.shared / path for service, path in _PIPELINES.items()}

    @property
    def uwsgi_plugin(self) -> str:
        """The name of uwsgi's plugin for their Python. Without its number it may be a link that only packages make."""
        (plugin,) = (self.usr / "lib/uwsgi/plugins").glob("python3[0-9]*_plugin.so")
        return plugin.name.removesuffix("_plugin.so")

    def check(self) -> None:
        """Raise LabError if a program of the lab is missing."""
        for program in _PROGRAMS:
            if shutil.which(program, path=PATH) is None:
                raise LabError(f"{program}: not found", _EXPECTED)
        modules = (self.usr / "lib/python3/dist-packages" / name for name in SERVICES)
        for path in (*self.pipelines.values(), *modules):
            if not path.exists():
                raise LabError(f"{path}: not there", _EXPECTED)

    def version_key(self) -> bytes:
        """Return what is the same as long as the packages that make the databases are."""
        if self.holder is not None:
            return b""  # databases of a release are kept with it
        ran = subprocess.run(["dpkg-query", "-W", *_PACKAGES], capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise LabError(ran.stderr, "Debian's packages")
        return ran.stdout.encode()


def programs_of(release: Release | None, starter: Starter, directory: Path) -> Programs:
    """Return the programs of a release, or of this machine. They end with the starter."""
    if release is None:
        return Programs()
    empty = directory / "release"
    empty.mkdir()
    holder = starter.start("release", holding_usr_of(release.path, empty), piped=True)
    assert holder.stdout is not None
    if not holder.stdout.readline():
        raise LabError(f"{release.label}: {starter.last_words('release')}", "an image that can be mounted")
    usr = Path(f"/proc/{holder.pid}/root/usr")
    return Programs(usr, usr / "share", release.path / "databases", holder.pid)


def is_installed() -> bool:
    """Tell whether all programs of the lab are installed."""
    with contextlib.suppress(LabError):
        Programs().check()
        return True
    return False
