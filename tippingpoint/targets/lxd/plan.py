"""An LXD in a plan: which one it is, who we are there, and what is made in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from tippingpoint.errors import UserError
from tippingpoint.plan.base import BasePlan
from tippingpoint.plan.kinds import TargetSection
from tippingpoint.plan.spawn import SpawnPlan

COMMANDS = {
    "cluster-list": "lxc cluster list",
    "list-fast": "lxc list --fast",
    "list": "lxc list",
    "operation-list": "lxc operation list",
    "exec": "lxc exec",
    "network-leases": "lxc network list-leases",
    "network-list": "lxc network list",
}
"""What a user would type for each of these."""
OBSERVATIONS = (
    "cluster-list",
    "list-fast",
    "list",
    "operation-list",
    "exec",
    "network-leases",
    "network-list",
)
"""What a user asks an LXD for, timed as the number of containers grows."""


def _setting(value: object) -> object:
    """Settings are texts; what YAML reads as a number or a truth value is one all the same."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Settings = dict[
    Annotated[str, Field(min_length=1, max_length=200)],
    Annotated[str, BeforeValidator(_setting), Field(max_length=10_000)],
]


class LxdTarget(TargetSection, frozen=True):
    """An LXD cluster or single server. TLS is verified against the server's own certificate, always."""

    kind: Literal["lxd"]
    plans: ClassVar = {"spawn": SpawnPlan}
    options: ClassVar = {"remote": "a remote in the lxc client's configuration"}
    filled_in: ClassVar = ("credentials", "token", "socket", "remote", "projects")
    observations = OBSERVATIONS
    commands: ClassVar = COMMANDS
    evicts = True

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

    @property
    def in_turn(self) -> bool:
        return self.placement == "round-robin"

    def check(self, plan: BasePlan) -> None:
        for number, stage in enumerate(plan.stages if isinstance(plan, SpawnPlan) else ()):
            if self.projects and stage.groups > len(self.projects):
                raise ValueError(
                    f"stages.{number}.groups: {stage.groups}: expected at most {len(self.projects)}, as "
                    f"target.projects has that many ({', '.join(self.projects)})"
                )

    @property
    def programs(self) -> Mapping[str, str]:
        if self.image != "tiny":
            return {}
        return {"busybox": "busybox-static: image tiny is made of this machine's busybox"}

    def of_unit(self, number: int) -> Self:
        """Its own project first: else the first groups of all units meet in the first one."""
        if not self.projects:
            return self
        first = number % len(self.projects)
        return self.model_copy(update={"projects": [*self.projects[first:], *self.projects[:first]]})

    def check_in_charm(self) -> None:
        super().check_in_charm()
        if "/" in self.image:
            raise UserError("target.image", self.image, "tiny, or an image on the server: no file")


SECTION = LxdTarget
