"""An OpenStack in a plan: which cloud it is, who we are there, and what is made in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from tippingpoint.errors import UserError
from tippingpoint.plan.base import BasePlan
from tippingpoint.plan.kinds import TargetSection
from tippingpoint.plan.spawn import SpawnPlan

SERVER_LIFE = {
    "create": "create_server",
    "start": "await_active",
    "launch": "boot_server",
    "delete": "delete_server",
    "total": "total",
}
"""What the steps of a server's life are called on OpenStack, after Rally's operations: `create_server` until the API
has accepted it, `await_active` from then until a list shows it ACTIVE, `boot_server` both, with what was tried again,
`delete_server` until no list shows it any more, `total` a whole iteration."""
SERVER_COMMANDS = {
    "server-list": "openstack server list",
    "flavor-list": "openstack flavor list",
    "image-list": "openstack image list",
    "network-list": "openstack network list",
    "service-list": "openstack compute service list",
    "agent-list": "openstack network agent list",
}
"""What a user would type for each of these."""
SERVER_OBSERVATIONS = (
    "server-list",
    "flavor-list",
    "image-list",
    "network-list",
    "service-list",
    "agent-list",
)
"""What users and operators ask an OpenStack for, timed as the number of servers grows; the last two are an admin's."""


class OpenstackTarget(TargetSection, frozen=True):
    """An OpenStack, by a cloud of a clouds.yaml. TLS is verified against its `cacert` or the system's authorities."""

    kind: Literal["openstack"]
    plans: ClassVar = {"spawn": SpawnPlan}
    steps_note = "create_server is the API's own time, await_active what passes from there to ACTIVE, boot_server both."
    filled_in: ClassVar = ("credentials", "cloud")
    things = "servers"
    member = "host"
    called = SERVER_LIFE
    observations = SERVER_OBSERVATIONS
    commands: ClassVar = SERVER_COMMANDS

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

    def check(self, plan: BasePlan) -> None:
        if not isinstance(plan, SpawnPlan):
            return
        if plan.workload.until not in ("created", "started"):
            raise ValueError(
                f"workload.until: {plan.workload.until}: expected started (ACTIVE) or created, for openstack"
            )
        if plan.workload.evict:
            raise ValueError("workload.evict: true: expected false, for openstack")
        most = max(stage.groups for stage in plan.stages)
        if most > 1 and not self.tenants:
            raise ValueError(
                f"target.tenants: false: expected true, as {most} groups are a project each; or groups: 1"
            )

    def check_in_charm(self) -> None:
        super().check_in_charm()
        if "/" in (self.image or ""):
            raise UserError("target.image", self.image, "the name or id of an image in the cloud: no file")


SECTION = OpenstackTarget
