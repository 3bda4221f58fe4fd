"""A charm, read from its archive: endpoints, options and actions."""

from __future__ import annotations

import io
import secrets
import zipfile
from dataclasses import dataclass, field
from typing import Any, cast

import yaml

from lab.juju.refusals import Refused


@dataclass(slots=True)
class Endpoint:
    """One end of a charm's relation."""

    name: str
    role: str
    interface: str
    scope: str = "global"
    optional: bool = False
    limit: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return it in the form of the API."""
        return {
            "name": self.name,
            "role": self.role,
            "interface": self.interface,
            "optional": self.optional,
            "limit": self.limit,
            "scope": self.scope,
        }

    def as_remote(self) -> dict[str, Any]:
        """Return it in the form of an offer's endpoints."""
        return {"name": self.name, "role": self.role, "interface": self.interface, "limit": self.limit}


@dataclass(slots=True)
class Charm:
    """An uploaded local charm. Its architecture is amd64, the only one simulated."""

    name: str
    revision: int
    sha256: str
    config: dict[str, dict[str, Any]]
    endpoints: dict[str, Endpoint]
    actions: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    description: str = ""
    instance_key: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def url(self) -> str:
        return f"local:{self.name}-{self.revision}"

    @property
    def full_url(self) -> str:
        """The URL with the architecture, as offers and CharmInfo show it."""
        return f"local:amd64/{self.name}-{self.revision}"

    def origin(self, base: dict[str, str]) -> dict[str, Any]:
        """Return the charm's origin in the form of GetCharmURLOrigin."""
        return {
            "source": "local",
            "type": "",
            "id": "",
            "hash": self.sha256,
            "revision": self.revision,
            "architecture": "amd64",
            "base": base,
            "instance-key": self.instance_key,
        }


def read_charm(name: str, revision: int, archive: bytes, sha256: str) -> Charm:
    """Read a charm's archive. Raises Refused if it is no charm."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as files:
            metadata = _yaml(files, "metadata.yaml")
            config = _yaml(files, "config.yaml")
            actions = _yaml(files, "actions.yaml")
    except (zipfile.BadZipFile, yaml.YAMLError) as problem:
        raise Refused(f"reading charm archive: {problem}", "bad request") from None
    if not metadata:
        raise Refused('reading charm archive: archive file "metadata.yaml" not found', "bad request")
    described = {str(action): _fields(fields, "description") for action, fields in actions.items()}
    text = str(metadata.get("description") or "")
    return Charm(name, revision, sha256, config.get("options") or {}, _endpoints(metadata), described, text)


def _yaml(files: zipfile.ZipFile, name: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(files.read(name))
    except KeyError:
        return {}
    return cast(dict[str, Any], content) if isinstance(content, dict) else {}


def _fields(described: object, otherwise: str) -> dict[str, Any]:
    """Return a description's fields; `otherwise` names what something else than a mapping is."""
    return cast(dict[str, Any], described) if isinstance(described, dict) else {otherwise: described}


def _endpoints(metadata: dict[str, Any]) -> dict[str, Endpoint]:
    roles = {"peers": "peer", "provides": "provider", "requires": "requirer"}
    found = {"juju-info": Endpoint("juju-info", "provider", "juju-info")}
    for section, role in roles.items():
        of_role: dict[str, Any] = metadata.get(section) or {}
        for name, described in of_role.items():
            fields = _fields(described, "interface")
            found[name] = Endpoint(
                name,
                role,
                str(fields.get("interface", "")),
                str(fields.get("scope", "global")),
                bool(fields.get("optional", False)),
                int(fields.get("limit", 0)),
            )
    return found
