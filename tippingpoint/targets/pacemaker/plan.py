"""A Pacemaker in a plan: where the file with its addresses and password is, and how far its TLS is trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tippingpoint.plan.base import BasePlan
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.fields import Seconds, Section, Settings, in_units
from tippingpoint.plan.kinds import TargetSection
from tippingpoint.plan.spawn import SpawnPlan

REMOTE = "ocf:pacemaker:remote"
"""The agent whose resources are connections to remote nodes."""
RESOURCE_LIFE = {
    "create": "create",
    "start": "start",
    "launch": "launch",
    "delete": "delete",
    "total": "total",
}
"""The steps of a resource's life. `create` lasts until the CIB has the resource, `start` from then until a node's
history says that it was started. `launch` is both, with retries. `delete` lasts until the resource has stopped and no
node's history has it. `total` is a whole iteration."""
RESOURCE_COMMANDS = {
    "status": "crm_mon -1",
    "history": "crm_resource --list-all-operations",
    "simulate": "crm_simulate -sL",
    "move": "pcs resource move --wait",
    "stop": "pcs resource disable --wait",
}
"""The command that an administrator would type for each of these."""
RESOURCE_OBSERVATIONS = tuple(RESOURCE_COMMANDS)
"""What administrators ask and do, timed as the number of resources grows. `status` is the whole CIB, read. `history` is
that of one resource. `simulate` needs crm_simulate on our machine. `move` and `stop` are done to a resource that runs,
and last until it has. It is started again afterwards. Both are left out while others start or stop."""


class HollowNodes(Section, frozen=True):
    """Nodes that the run adds before its first stage."""

    remote: Annotated[int, Field(ge=0, le=1000, json_schema_extra=in_units("nodes"))] = Field(
        default=0,
        description="How many remote nodes. Each is a resource that connects to a pacemaker_remote, whose addresses "
        "the credentials have as `remotes`.",
    )


INTERCEPTED = "TLS is anonymous and can be intercepted: private networks only"
"""The caution about TLS without certificates."""


class PacemakerTarget(TargetSection, frozen=True):
    """A Pacemaker cluster, reached by its remote CIB. Secrets stay in the file of credentials."""

    kind: Literal["pacemaker"] = Field(description="The target: `pacemaker`.")
    plans: ClassVar = {"claim": ClaimPlan, "spawn": SpawnPlan, "cts": CtsPlan}
    filled_in: ClassVar = ("credentials",)
    things = "resources"
    member: ClassVar = "node"
    read_back: ClassVar = True
    steady_leader: ClassVar = "DC"
    called = RESOURCE_LIFE
    observations = RESOURCE_OBSERVATIONS
    commands: ClassVar = RESOURCE_COMMANDS
    steps_note = (
        "create lasts until the CIB has the resource, start from then until a node has started it, launch is both; "
        "delete lasts until it has stopped and no node's history has it."
    )
    evicts = True
    coded_errors: ClassVar = True

    credentials: Path | None = Field(
        default=None,
        description="YAML file, mode 0600, with `addresses`, `port`, `user` and `password`. Where the cluster has "
        "certificates also `ca`, `cert` and `key`, as PEM texts.",
    )
    tls: Literal["verified", "anonymous"] = Field(
        default="verified",
        description="`verified` checks the nodes' certificates. Pacemaker before 3.0, and without certificates, has "
        "anonymous TLS only: no side is authenticated, and a man in the middle can read the password. `anonymous` "
        "allows that, for private networks.",
    )
    store: Literal["ticket", "config"] = Field(
        default="ticket",
        description="What a lease is. A `ticket` is in the status section, which stays in memory. `config` is a set "
        "of properties in the configuration, which every node writes to its disk.",
    )
    connections: Annotated[int, Field(ge=1, le=100, json_schema_extra=in_units("connections"))] = Field(
        default=1, description="How many connections each worker has to each node."
    )
    agent: Annotated[
        str, Field(pattern=r"^[A-Za-z][\w.-]*(:[\w.@-]+){1,2}$", examples=["ocf:heartbeat:Delay"])
    ] = Field(
        default="ocf:pacemaker:Dummy",
        description="The resource agent of what spawn makes: `CLASS:PROVIDER:TYPE`, or `CLASS:TYPE`. With "
        "`ocf:pacemaker:remote` each resource is a remote node, at one of the `remotes` of the credentials.",
    )
    parameters: Settings = Field(
        default={}, description="Parameters of the resources, such as `op_sleep: 1` of a Dummy."
    )
    monitor: Seconds = Field(
        default=10.0, description="How often the cluster monitors each resource; 0s for never."
    )
    placement: Literal["pacemaker", "round-robin"] = Field(
        default="pacemaker",
        description="`pacemaker`: the cluster chooses the node of each resource. `round-robin`: the run chooses them "
        "in turn, by a location constraint with a score of INFINITY.",
    )
    multi_update: Annotated[int, Field(ge=1, le=1000, json_schema_extra=in_units("resources"))] = Field(
        default=1,
        description="The most resources that one update of the CIB makes or removes, where several are due at one "
        "moment, as in a batch.",
    )
    nodes: HollowNodes = Field(
        default=HollowNodes(),
        description="Nodes that the run adds before its first stage, and removes with it.",
    )

    @property
    def in_turn(self) -> bool:
        return self.placement == "round-robin"

    def check(self, plan: BasePlan) -> None:
        if isinstance(plan, SpawnPlan) and plan.workload.until not in ("created", "started"):
            raise ValueError(
                f"workload.until: {plan.workload.until}: expected started or created, for pacemaker"
            )
        if self.agent == REMOTE and self.nodes.remote:
            raise ValueError(
                f"target.nodes.remote: {self.nodes.remote}: expected 0, as the resources are remote nodes themselves"
            )


SECTION = PacemakerTarget
