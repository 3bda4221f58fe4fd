"""An OpenStack in a plan: the cloud, the login, and the servers that are made in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from tippingpoint.errors import UserError
from tippingpoint.plan.base import BasePlan
from tippingpoint.plan.fields import in_units
from tippingpoint.plan.kinds import TargetSection
from tippingpoint.plan.spawn import SpawnPlan

SERVER_LIFE = {
    "create": "create_server",
    "start": "await_active",
    "launch": "boot_server",
    "delete": "delete_server",
    "total": "total",
}
"""The names of a server's steps on OpenStack, after Rally's operations. `create_server` lasts until the API has
accepted the server, `await_active` from then until a list shows it ACTIVE. `boot_server` is both, with retries.
`delete_server` lasts until no list shows the server any more, and `total` is a whole iteration."""
SERVER_COMMANDS = {
    "server-list": "openstack server list",
    "flavor-list": "openstack flavor list",
    "image-list": "openstack image list",
    "network-list": "openstack network list",
    "service-list": "openstack compute service list",
    "agent-list": "openstack network agent list",
}
"""The command that a user would type for each of these."""
SERVER_OBSERVATIONS = (
    "server-list",
    "flavor-list",
    "image-list",
    "network-list",
    "service-list",
    "agent-list",
)
"""The requests of users and operators, timed as the number of servers grows. The last two need an admin."""


class OpenstackTarget(TargetSection, frozen=True):
    """An OpenStack: a cloud of a clouds.yaml. TLS is verified against its `cacert` or the system's authorities."""

    kind: Literal["openstack"] = Field(description="The target: `openstack`.")
    plans: ClassVar = {"spawn": SpawnPlan}
    steps_note = (
        "create_server is the API's own time, await_active the time from then to ACTIVE, boot_server both."
    )
    filled_in: ClassVar = ("credentials", "cloud")
    things = "servers"
    member = "host"
    called = SERVER_LIFE
    observations = SERVER_OBSERVATIONS
    commands: ClassVar = SERVER_COMMANDS

    credentials: Path | None = Field(
        default=None,
        description="A clouds.yaml, mode 0600 if it has a secret in it. When left out it is looked for as OpenStack's "
        "own clients do: `OS_CLIENT_CONFIG_FILE`, this directory, `~/.config/openstack`, `/etc/openstack`.",
    )
    cloud: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="A cloud of that file; when left out, `OS_CLOUD`, or the only cloud of the file.",
    )
    region: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="A region of the catalogue, instead of the cloud's own."
    )
    interface: Literal["public", "internal", "admin"] | None = Field(
        default=None,
        description="The kind of endpoint in the catalogue, instead of the cloud's own; `public` where neither says.",
    )
    image: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Name or id of an image, or a raw file to upload for the run; when left out, the only image of the "
        "cloud.",
    )
    flavor: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Name or id of a flavor, or `made`: the run makes one of 1 vCPU, 64 MB and 1 GB, which needs an "
        "admin. When left out, the smallest flavor of the cloud.",
    )
    network: Annotated[str, Field(min_length=1)] = Field(
        default="none",
        description="Name or id of a network, or `none`, or `made`: the run makes a network with a subnet and a router "
        "for each group.",
    )
    external: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Name or id of the network in which the routers have their gateway; only with `network: made`.",
    )
    tenants: bool = Field(
        default=False,
        description="The run makes a project for each group, and a user that owns its servers, which needs an admin. "
        "Otherwise a plan has one group, in the cloud's own project.",
    )
    multi_create: Annotated[int, Field(ge=1, le=1000, json_schema_extra=in_units("servers"))] = Field(
        default=1,
        description="The most servers that one call asks for (`min_count`), where several are due at one moment, as in "
        "a batch.",
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
        most = max(stage.groups for stage in plan.planned)
        if most > 1 and not self.tenants:
            raise ValueError(
                f"target.tenants: false: expected true, as {most} groups need a project each; or groups: 1"
            )

    def check_in_charm(self) -> None:
        super().check_in_charm()
        if "/" in (self.image or ""):
            raise UserError("target.image", self.image, "the name or id of an image in the cloud: no file")


SECTION = OpenstackTarget
