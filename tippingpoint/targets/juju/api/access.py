"""Access to a Juju controller, read from the juju client's store, a credentials file, or an agent.conf.

Files are only read. A file that contains a password is refused if others can read it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from tippingpoint.errors import UserError
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.util.secret_files import read_text, read_yaml


@dataclass(frozen=True)
class ControllerAccess:
    """A controller and a user: `addresses` are "host:port", `ca` is PEM text, `user` logs in as "user-NAME".

    `controller_name` is the juju client's name of the controller, or the first address if a file was used.
    """

    controller_name: str
    addresses: tuple[str, ...]
    ca: str = field(repr=False)
    user: Identity

    @property
    def user_name(self) -> str:
        """The user as Juju shows it: "admin", "bob@external"."""
        return self.user.tag.removeprefix("user-")


@dataclass(frozen=True)
class AgentAccess:
    """A controller, a model on it (UUID), and one agent in that model."""

    addresses: tuple[str, ...]
    ca: str = field(repr=False)
    model: str
    agent: Identity


def from_store(controller: str | None, store: Path) -> ControllerAccess:
    """Read the controller with this name from a juju client's store; None reads the current one (`juju switch`).

    UserError if the store, the controller or a password is missing.
    """
    field = "target.controller"
    controllers = read_yaml(field, store / "controllers.yaml", "the juju client's store (JUJU_DATA)")
    known = _mapping(controllers.get("controllers"))
    name = controller if controller is not None else controllers.get("current-controller")
    if not isinstance(name, str) or not name:
        raise UserError(
            field, str(store), "a controller's name, because the store has no current one (juju switch)"
        )
    if name not in known:
        raise UserError(
            field, name, f"one of {_listed(known)}" if known else "a controller (none is registered)"
        )
    details = _mapping(known[name])
    addresses = _addresses(details.get("api-endpoints"))
    ca = _ca(details.get("ca-cert"))
    if addresses is None or ca is None:
        raise UserError(field, name, f"api-endpoints (host:port) and ca-cert in {store / 'controllers.yaml'}")
    accounts_file = store / "accounts.yaml"
    accounts = read_yaml(field, accounts_file, "the juju client's accounts", private=True)
    account = _mapping(_mapping(accounts.get("controllers")).get(name))
    user, password = account.get("user"), account.get("password")
    if not isinstance(user, str) or not user:
        raise UserError(
            field, name, f"a controller with an account in {accounts_file} (juju login -c {name})"
        )
    if not isinstance(password, str) or not password:
        accepted = f"an account with a password: run `juju change-user-password` as {user}, or use target.credentials"
        raise UserError(field, name, accepted)
    return ControllerAccess(name, addresses, ca, Identity(_user_tag(user), password))


def from_file(path: Path) -> ControllerAccess:
    """Read controller and user from a YAML file of mode 0600: addresses, ca or ca-file, user, password.

    `addresses` is a list of host:port, `ca` PEM text, `ca-file` a path (relative to the file). UserError if a field
    is missing or unusable. Errors never show the file's content.
    """
    field = "target.credentials"
    accepted = "a YAML file with `addresses` (host:port), `ca` or `ca-file`, `user` and `password`"
    content = read_yaml(field, path, accepted, private=True)
    unknown = content.keys() - {"addresses", "ca", "ca-file", "user", "password"}
    if unknown or ("ca" in content) == ("ca-file" in content):
        raise UserError(field, str(path), f"{accepted}, and nothing else")
    addresses = _addresses(content.get("addresses"))
    if addresses is None:
        raise UserError(field, str(path), "`addresses` with at least one host:port")
    user, password = content.get("user"), content.get("password")
    if not isinstance(user, str) or not user or not isinstance(password, str) or not password:
        raise UserError(field, str(path), "`user` and `password`, both of them text")
    ca_text, ca_file = content.get("ca"), content.get("ca-file")
    if isinstance(ca_file, str):
        ca_text = read_text(field, path.parent / ca_file, "`ca-file` with a PEM file")
    ca = _ca(ca_text)
    if ca is None:
        raise UserError(field, str(path), "the controller's CA certificate in `ca` or `ca-file` (PEM)")
    return ControllerAccess(addresses[0], addresses, ca, Identity(_user_tag(user), password))


def from_agent_conf(path: Path) -> AgentAccess:
    """Read an agent from its agent.conf (a unit's: /var/lib/juju/agents/unit-NAME-N/agent.conf).

    The fields are those of Juju's agent/format-2.0.go. UserError if one is missing or unusable.
    """
    field = "target.agent"
    accepted = "a unit's agent.conf (tag, model, apiaddresses, cacert, apipassword)"
    content = read_yaml(field, path, accepted, private=True)
    tag, model = content.get("tag"), content.get("model")
    addresses, ca = _addresses(content.get("apiaddresses")), _ca(content.get("cacert"))
    passwords = [content.get("apipassword"), content.get("oldpassword")]
    password = next((text for text in passwords if isinstance(text, str) and text), None)
    nonce = content.get("nonce") or ""
    if not isinstance(tag, str) or not tag.startswith("unit-"):
        raise UserError(field, str(path), f"{accepted}; only units may claim leadership")
    if not isinstance(model, str) or not model.startswith("model-"):
        raise UserError(field, str(path), f"{accepted}; `model` is model-UUID")
    if addresses is None or ca is None or password is None or not isinstance(nonce, str):
        raise UserError(field, str(path), accepted)
    return AgentAccess(addresses, ca, model.removeprefix("model-"), Identity(tag, password, nonce))


def store_directory() -> Path:
    """Return the juju client's store: $JUJU_DATA, $XDG_DATA_HOME/juju or ~/.local/share/juju (juju/osenv/home.go)."""
    if data := os.environ.get("JUJU_DATA"):
        return Path(data).expanduser()
    if data := os.environ.get("XDG_DATA_HOME"):
        return Path(data) / "juju"
    return Path("~/.local/share/juju").expanduser()


def _user_tag(user: str) -> str:
    return "user-" + user.removeprefix("user-").removesuffix("@local")


def _addresses(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list) or not value:
        return None
    addresses = cast("list[object]", value)
    if not all(isinstance(address, str) and _is_address(address) for address in addresses):
        return None
    return tuple(cast("list[str]", addresses))


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        return False
    printable = host.isprintable() and not any(mark.isspace() or mark in "/@?#" for mark in host)
    return bool(host) and printable and port.isascii() and port.isdigit() and 0 < int(port) < 65536


def _ca(value: object) -> str | None:
    return value if isinstance(value, str) and "-----BEGIN CERTIFICATE-----" in value else None


def _listed(known: Mapping[str, Any]) -> str:
    names = sorted(map(str, known))  # YAML's keys may be numbers
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def _mapping(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
