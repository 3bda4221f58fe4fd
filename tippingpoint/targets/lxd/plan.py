"""An LXD in a plan: its address, the login, and the containers that are made in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tippingpoint.errors import UserError
from tippingpoint.plan.base import BasePlan
from tippingpoint.plan.fields import Settings
from tippingpoint.plan.kinds import TargetSection
from tippingpoint.plan.spawn import SpawnPlan
from tippingpoint.plan.url import PprofUrls

COMMANDS = {
    "cluster-list": "lxc cluster list",
    "list-fast": "lxc list --fast",
    "list": "lxc list",
    "operation-list": "lxc operation list",
    "exec": "lxc exec",
    "network-leases": "lxc network list-leases",
    "network-list": "lxc network list",
}
"""The command that a user would type for each of these."""
OBSERVATIONS = (
    "cluster-list",
    "list-fast",
    "list",
    "operation-list",
    "exec",
    "network-leases",
    "network-list",
)
"""The requests of ordinary users, timed as the number of containers grows."""


class LxdTarget(TargetSection, frozen=True):
    """An LXD or Incus cluster or single server. TLS is always verified against the server's own certificate."""

    kind: Literal["lxd"] = Field(description="The target: `lxd`.")
    plans: ClassVar = {"spawn": SpawnPlan}
    filled_in: ClassVar = ("credentials", "token", "socket", "remote", "projects")
    observations = OBSERVATIONS
    commands: ClassVar = COMMANDS
    evicts = True
    products = ("incus",)

    remote: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="The remote's name in the configuration of the client, lxc or incus. Without `remote`, "
        "`credentials`, `token` and `socket` it is the default remote.",
    )
    credentials: Path | None = Field(
        default=None,
        description="YAML file with `addresses`, `certificate`, `client_certificate` and `client_key`, mode 0600.",
    )
    token: Path | None = Field(
        default=None,
        description="File with a trust token of `lxc config trust add`, mode 0600. The trust ends with the run.",
    )
    socket: Path | None = Field(
        default=None, description="The unix socket of an LXD or Incus on this machine."
    )
    image: Annotated[str, Field(min_length=1)] = Field(
        default="tiny",
        description="Alias or fingerprint of an image on the server, or a file to import (a unified image), or `tiny`: "
        "an image of 1 MB with this machine's busybox.",
    )
    pool: str | None = Field(
        default=None,
        description="Storage pool of the root disks. When left out it is the default profile's; with `projects` it is "
        "the only pool of the server.",
    )
    network: str | None = Field(
        default=None,
        description="Network of the containers. When left out it is the default profile's; with `projects` it is the "
        "only network of the server.",
    )
    projects: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(
        default=[],
        description="Existing projects, one for each group, in this order. The run makes and removes no projects then. "
        "A certificate that is restricted to projects needs this.",
    )
    project: Settings = Field(
        default={},
        description="Settings of the projects that the run makes, such as `limits.instances: 100`.",
    )
    profile: Settings = Field(
        default={}, description="Settings of the containers, such as `limits.memory: 64MiB`."
    )
    placement: Literal["lxd", "round-robin"] = Field(
        default="lxd",
        description="`lxd`: LXD chooses the member of each container. `round-robin`: the run chooses them in turn.",
    )

    pprof: PprofUrls = Field(
        default=[],
        description="Addresses of members that are profiled in each stage: their `core.debug_address`. Left out: no "
        "profile is taken.",
    )

    @property
    def profiled(self) -> Sequence[str]:
        return self.pprof

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
                    f"{name}.{ours[0]}: expected another setting, because this one marks a run's own objects"
                )
        twice = [name for number, name in enumerate(self.projects) if name in self.projects[:number]]
        if twice:
            raise ValueError(f"projects: {twice[0]}: expected each project once")
        if self.projects and self.project:
            setting, value = next(iter(self.project.items()))
            raise ValueError(
                f"project.{setting}: {value}: expected no settings with target.projects, which exist already"
            )
        return self

    @property
    def in_turn(self) -> bool:
        return self.placement == "round-robin"

    def check(self, plan: BasePlan) -> None:
        if not isinstance(plan, SpawnPlan):
            return
        for number, stage in enumerate(plan.planned):
            if self.projects and stage.groups > len(self.projects):
                place = f"stages.{number}" if plan.find is None else "find"
                raise ValueError(
                    f"{place}.groups: {stage.groups}: expected at most {len(self.projects)}, as "
                    f"target.projects has that many ({', '.join(self.projects)})"
                )

    @property
    def programs(self) -> Mapping[str, str]:
        if self.image != "tiny":
            return {}
        return {"busybox": "busybox-static: image tiny is made of this machine's busybox"}

    def of_unit(self, number: int) -> Self:
        """The target with the unit's own project first. Otherwise the first groups of all units would share one."""
        if not self.projects:
            return self
        first = number % len(self.projects)
        return self.model_copy(update={"projects": [*self.projects[first:], *self.projects[:first]]})

    def check_in_charm(self) -> None:
        super().check_in_charm()
        if "/" in self.image:
            raise UserError("target.image", self.image, "tiny, or an image on the server: no file")


SECTION = LxdTarget
