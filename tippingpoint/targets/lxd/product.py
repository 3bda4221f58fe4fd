"""What differs between LXD and Incus, its fork. The rest of this package serves both."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Product:
    """LXD or Incus on a client's machine. `variables` is the prefix of its environment variables."""

    client: str
    variables: str
    sockets: tuple[Path, ...]
    """Where packages and the snap put the local server's socket."""
    configurations: tuple[Path, ...]
    """Where its client keeps its configuration."""
    everybodys: Path
    """Where a machine keeps remotes for all of its users."""

    @property
    def named_socket(self) -> Path | None:
        """The socket that the environment names."""
        if socket := os.environ.get(f"{self.variables}_SOCKET"):
            return Path(socket)
        directory = os.environ.get(f"{self.variables}_DIR")
        return Path(directory) / "unix.socket" if directory else None

    @property
    def named_configuration(self) -> Path | None:
        """The client's configuration that the environment names."""
        directory = os.environ.get(f"{self.variables}_CONF")
        return Path(directory).expanduser() if directory else None

    @property
    def everybodys_configuration(self) -> Path:
        """Where the remotes for all users of this machine are."""
        return Path(os.environ.get(f"{self.variables}_GLOBAL_CONF") or self.everybodys)

    @property
    def named_remote(self) -> str | None:
        """The remote that the environment names."""
        return os.environ.get(f"{self.client.upper()}_REMOTE") or None


LXD = Product(
    "lxc",
    "LXD",
    (Path("/var/lib/lxd/unix.socket"), Path("/var/snap/lxd/common/lxd/unix.socket")),
    (Path("~/.config/lxc"), Path("~/snap/lxd/common/config")),
    Path("/etc/lxd"),
)
INCUS = Product(
    "incus",
    "INCUS",
    (Path("/var/lib/incus/unix.socket"), Path("/run/incus/unix.socket")),
    (Path("~/.config/incus"),),
    Path("/etc/incus"),
)
PRODUCTS = (LXD, INCUS)
"""The first one that a machine has is used."""


def named_version(environment: Mapping[str, Any]) -> str:
    """The version in a server's `environment`; Incus is named, as in `incus 6.0.4`."""
    version = str(environment.get("server_version", ""))
    product = str(environment.get("server", "lxd"))
    return version if product == "lxd" else f"{product} {version}"


def trust_request(token: str, extensions: object) -> dict[str, str]:
    """The request by which a server trusts the client that shows a token.

    LXD accepts it as `trust_token` since an extension of its API, and before that as a password. Incus, which does not
    reveal to strangers that it is Incus, accepts it as `trust_token` without that extension, and ignores a password.
    """
    explicit = isinstance(extensions, list) and "explicit_trust_token" in extensions
    names = ("trust_token",) if explicit else ("trust_token", "password")
    return {"type": "client", **dict.fromkeys(names, token)}


def image_headers(**named: str) -> dict[str, str]:
    """The headers that describe an uploaded image: those of both products, because each ignores the other's."""
    return {f"X-{product}-{name}": value for product in ("LXD", "Incus") for name, value in named.items()}
