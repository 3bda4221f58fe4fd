"""Defines an OpenStack lab's files, ports, addresses and names."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lab.certificates import Certificates
from lab.openstack.programs import PATH, SERVICES, Programs
from lab.ports import free_ports

REGION = "RegionOne"
SERVICE_USERS = tuple(service for service in SERVICES if service != "keystone")


@dataclass(frozen=True)
class Site:
    """One lab's paths and addresses. `brokers` has one URL each for Nova's and Neutron's messages."""

    directory: Path
    brokers: Mapping[str, str]
    certificates: Certificates | None
    programs: Programs
    password: str = field(default_factory=lambda: secrets.token_urlsafe(16), repr=False)
    """The password of the services' own users."""
    ports: Mapping[str, int] = field(default_factory=lambda: _ports())

    @property
    def database(self) -> Path:
        """MariaDB's unix socket, its only one. Whoever can open it is accepted, so its directory is private."""
        return self.directory / "mariadb.sock"

    @property
    def memcached(self) -> str:
        """The address of memcached."""
        return f"127.0.0.1:{self.ports['memcached']}"

    @property
    def ca(self) -> Path | None:
        """The authority of the endpoints' certificate; None without TLS."""
        return self.certificates.ca if self.certificates else None

    def database_url(self, name: str) -> str:
        """Return a database's URL for SQLAlchemy."""
        return f"mysql+pymysql://root@localhost/{name}?unix_socket={self.database}&charset=utf8"

    def url(self, service: str) -> str:
        """Return the endpoint of a service, such as `keystone`, without a path."""
        return f"{'https' if self.certificates else 'http'}://127.0.0.1:{self.ports[service]}"

    def configuration(self, *names: str) -> Path:
        """Return the path of a configuration file, and make its directory."""
        path = self.directory.joinpath("etc", *names)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def state(self, *names: str) -> Path:
        """Return a directory for a service's state, and make it."""
        path = self.directory.joinpath("state", *names)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def log(self, name: str) -> Path:
        """Return the log file of a program."""
        return self.directory / f"{name}.log"


def environment(site: Site) -> dict[str, str]:
    """Return the environment of the lab's programs: this process' own, without settings of Python or a proxy."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "OS_")) and not name.lower().endswith("_proxy")
    }
    return kept | {"PATH": PATH, "HOME": str(site.directory), "LC_ALL": "C.UTF-8"}


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def _ports() -> dict[str, int]:
    names = (*SERVICES, "memcached")
    return dict(zip(names, free_ports(len(names)), strict=True))
