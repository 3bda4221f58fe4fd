"""The targets a plan may name: where they are, and where who we are there is kept. Secrets stay in files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from tippingpoint.plan.fields import Section

_ENDPOINT = r"^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?\])(:[0-9]{1,5})?$"


def _endpoint(url: str) -> str:
    """A URL as etcd's clients write it; no credentials, which would end up in journals and reports."""
    if "@" in url:
        raise ValueError("http(s)://host:port, and the user in target.credentials")
    try:
        if not re.fullmatch(_ENDPOINT, url) or urlsplit(url).port == 0:
            raise ValueError
    except ValueError:
        raise ValueError("http(s)://host:port") from None
    return url


Endpoint = Annotated[str, AfterValidator(_endpoint), WithJsonSchema({"type": "string", "pattern": _ENDPOINT})]


class EtcdTarget(Section):
    """A real etcd cluster. Secrets stay in files; TLS is verified against `ca` or the system's authorities."""

    kind: Literal["etcd"] = "etcd"
    endpoints: list[Endpoint] = Field(
        default=["http://127.0.0.1:2379"],
        min_length=1,
        description="client URLs; connections are spread over them",
    )
    api: Literal["v3", "v2"] = "v3"
    connections: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1, description="connections to each endpoint, from each worker"
    )
    ca: Path | None = Field(default=None, description="PEM file with the authority that signed the servers")
    cert: Path | None = Field(default=None, description="PEM file with the client certificate")
    key: Path | None = Field(default=None, description="PEM file with the client key, mode 0600")
    credentials: Path | None = Field(
        default=None, description="YAML file, mode 0600, with `username` and `password`"
    )

    @model_validator(mode="after")
    def _pair(self) -> EtcdTarget:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together: expected both or neither")
        return self


class JujuTarget(Section):
    """A Juju controller, stock or patched. TLS is verified against the controller's own authority, always."""

    kind: Literal["juju"]
    controller: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="name in the juju client's store; its current controller when left out"
    )
    credentials: Path | None = Field(
        default=None,
        description="YAML file, mode 0600, with `addresses`, `ca`, `user` and `password`, instead of the store",
    )
    model: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="name or UUID of a model to make hollow units in; one is made, and removed, when left out",
    )
    identity: Literal["hollow", "agent"] = Field(
        default="hollow",
        description="hollow: every unit logs in as itself; agent: all as one unit, which needs a patched controller",
    )
    agent: Path | None = Field(
        default=None, description="the unit's agent.conf, with identity agent; it is read, not copied"
    )

    @model_validator(mode="after")
    def _who(self) -> JujuTarget:
        if self.controller is not None and self.credentials is not None:
            raise ValueError(
                f"credentials: {self.credentials}: expected either controller or credentials, not both"
            )
        if (self.identity == "agent") != (self.agent is not None):
            raise ValueError(
                f"agent: {self.agent or 'missing'}: expected an agent.conf with identity agent, and only then"
            )
        if self.identity == "agent" and (self.controller or self.credentials or self.model):
            raise ValueError(
                "identity: agent: expected no controller, credentials or model, as the agent.conf names them"
            )
        return self


def _setting(value: object) -> object:
    """Settings are texts; what YAML reads as a number or a truth value is one all the same."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Settings = dict[
    Annotated[str, Field(min_length=1, max_length=200)],
    Annotated[str, BeforeValidator(_setting), Field(max_length=10_000)],
]


class LxdTarget(Section):
    """An LXD cluster or single server. TLS is verified against the server's own certificate, always."""

    kind: Literal["lxd"]
    remote: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="name in the lxc client's configuration; its default remote when nothing here says where",
    )
    credentials: Path | None = Field(
        default=None,
        description="YAML file, mode 0600, with `addresses`, `certificate`, `client_certificate` and `client_key`",
    )
    token: Path | None = Field(
        default=None,
        description="file, mode 0600, with a trust token (lxc config trust add); the trust is removed at the end",
    )
    socket: Path | None = Field(default=None, description="the unix socket of an LXD on this machine")
    image: Annotated[str, Field(min_length=1)] = Field(
        default="tiny",
        description="alias or fingerprint of an image on the server, a file to import (a unified image), or tiny: "
        "busybox of this machine, 1 MB",
    )
    pool: str | None = Field(
        default=None,
        description="storage pool of the root disks; what the profile default has, when left out, or else (with "
        "`projects`) the only one there is",
    )
    network: str | None = Field(
        default=None,
        description="network of the containers; what the profile default has, when left out, or else (with "
        "`projects`) the only one there is",
    )
    projects: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        default=[],
        description="projects to put a group in each, in this order, and leave when the run ends, instead of ones that "
        "are made: what a certificate that is restricted to projects needs",
    )
    project: Settings = Field(
        default={}, description="settings of the projects that are made, such as limits.instances: 100"
    )
    profile: Settings = Field(
        default={}, description="settings of the instances, such as limits.memory: 64MiB"
    )
    placement: Literal["lxd", "round-robin"] = Field(
        default="lxd", description="who says which member a container is put on: LXD, or we, in turn"
    )

    @model_validator(mode="after")
    def _who(self) -> LxdTarget:
        ways = ("remote", "credentials", "token", "socket")
        given = [name for name in ways if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(
                f"{given[1]}: {getattr(self, given[1])}: expected only one of {', '.join(ways)}; "
                f"{given[0]} is given too"
            )
        for name in ("project", "profile"):
            ours = [key for key in getattr(self, name) if key.startswith("user.tippingpoint")]
            if ours:
                raise ValueError(
                    f"{name}.{ours[0]}: expected another setting, as this one marks what we made"
                )
        twice = [name for number, name in enumerate(self.projects) if name in self.projects[:number]]
        if twice:
            raise ValueError(f"projects: {twice[0]}: expected each project once")
        if self.projects and self.project:
            setting, value = next(iter(self.project.items()))
            raise ValueError(
                f"project.{setting}: {value}: expected no settings with target.projects, which are there already"
            )
        return self


class OpenstackTarget(Section):
    """An OpenStack, by a cloud of a clouds.yaml. TLS is verified against its `cacert` or the system's authorities."""

    kind: Literal["openstack"]
    credentials: Path | None = Field(
        default=None,
        description="clouds.yaml, mode 0600; when left out, where OpenStack's own clients look for one "
        "(OS_CLIENT_CONFIG_FILE, this directory, ~/.config/openstack, /etc/openstack)",
    )
    cloud: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="a cloud of that file; when left out, OS_CLOUD, or the only one there is"
    )
    region: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="region of the catalogue, instead of the cloud's own"
    )
    interface: Literal["public", "internal", "admin"] | None = Field(
        default=None,
        description="which of the catalogue's endpoints, instead of the cloud's own; else public",
    )
    image: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="name or id of an image, or a file (raw) to upload for the run; when left out, the only one there "
        "is",
    )
    flavor: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="name or id of a flavor, or made: one of 1 vCPU, 64 MB and 1 GB for the run, which takes an "
        "admin; when left out, the smallest there is",
    )
    network: Annotated[str, Field(min_length=1)] = Field(
        default="none",
        description="name or id of a network, none, or made: a network with a subnet and a router for each group",
    )
    external: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="name or id of the network that routers are to have their gateway in"
    )
    tenants: bool = Field(
        default=False,
        description="make a project for each group, with a user in it that the servers are, which takes an admin; "
        "else all groups are in the cloud's own project",
    )
    multi_create: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1,
        description="servers asked for in one call (min_count), where so many are due at one moment, as in a batch",
    )

    @model_validator(mode="after")
    def _whole(self) -> OpenstackTarget:
        if self.external is not None and self.network != "made":
            raise ValueError(f"external: {self.external}: expected only with network: made")
        return self
