"""The spawn workload in a plan: groups of things that are made, started, reached, probed, kept up, and removed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tippingpoint.plan.fields import Seconds, Section
from tippingpoint.util.durations import format_duration

LIFE = ("create", "start", "reachable", "probe", "launch", "delete", "total")
"""What is timed of one thing's life; `launch` from the moment it was due until it is as the plan wants it, `total`
until it is removed again, where that is what the plan wants of it."""
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
SPAWN_OPERATIONS = (*LIFE, "evict", "poll", *OBSERVATIONS)
"""What the spawn workload times on LXD; `poll` is its own list of a group."""

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
SERVER_OBSERVATIONS = (
    "server-list",
    "flavor-list",
    "image-list",
    "network-list",
    "service-list",
    "agent-list",
)
"""What users and operators ask an OpenStack for, timed as the number of servers grows; the last two are an admin's."""
SERVER_OPERATIONS = (*SERVER_LIFE.values(), "poll", *SERVER_OBSERVATIONS)
"""What the spawn workload times on OpenStack."""

Until = Literal["created", "started", "reachable", "probed"]
Passing = Literal["locked", "quorum", "unreachable", "busy", "timeout", "full", "quota", "image", "other"]
RETRIES: dict[Passing, int] = {
    "locked": 20,
    "quorum": 20,
    "unreachable": 20,
    "busy": 20,
    "timeout": 3,
    "full": 0,
    "quota": 0,
    "image": 0,
    "other": 3,
}
"""How often one thing is tried again after a failure of a kind: what passes by itself often, what does not never."""

Count = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]


class SpawnWorkload(Section):
    """Things in groups (projects) that are made, started, reached, probed, repaired while kept, and removed."""

    kind: Literal["spawn"]
    until: Until = Field(
        default="reachable",
        description="how far a thing is brought: created, started, reachable (it has its address), probed",
    )
    rate: Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)] | None = Field(
        default=None, description="open loop: so many per second, however late the target is"
    )
    concurrency: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None, description="closed loop: so many at once, the next when one has started"
    )
    batch: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        default=None,
        description="closed loop: so many at once, and the next so many when all of them have started",
    )
    retries: dict[Passing, Annotated[int, Field(ge=0, le=1000)]] = Field(
        default={},
        description="how often a thing is tried again after failures of a kind; "
        + ", ".join(f"{kind} {count}" for kind, count in RETRIES.items()),
    )
    cycle: bool = Field(
        default=False,
        description="remove each thing as soon as it is as wanted: a stage's instances are then iterations, and "
        "nothing stays there",
    )
    repair: bool = Field(default=True, description="make again what is lost")
    evict: bool = Field(
        default=False,
        description="remove a member that is gone from the cluster by force, and make again what was on it",
    )
    offline_polls: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=5,
        description="a member is gone when it was offline in so many polls one after the other",
    )
    poll_every: Seconds = Field(
        default=1.0, description="how often the members, and groups that change, are listed"
    )
    observe_every: Seconds = Field(
        default=10.0, description="how often what users ask for is asked for; 0s never"
    )
    timeout: Seconds = Field(default=300.0, description="after this an operation counts as a timeout")
    memory: Annotated[int, Field(ge=1, le=1 << 20)] = Field(
        default=16,
        description="MiB that a thing is expected to take of its member's memory; what does not fit is refused",
    )

    @model_validator(mode="after")
    def _paced(self) -> SpawnWorkload:
        paces = {name: getattr(self, name) for name in ("rate", "concurrency", "batch")}
        given = {name: value for name, value in paces.items() if value is not None}
        if len(given) != 1:
            found = ", ".join(f"{name} {value:g}" for name, value in given.items()) or "none"
            raise ValueError(f"rate: {found}: expected one of rate, concurrency and batch")
        if self.cycle and self.until not in ("created", "started"):
            raise ValueError(f"until: {self.until}: expected created or started, with cycle")
        if self.timeout < 0.01:
            raise ValueError(f"timeout: {format_duration(self.timeout)}: expected at least 10ms")
        if self.poll_every < 0.1:
            raise ValueError(f"poll_every: {format_duration(self.poll_every)}: expected at least 100ms")
        return self


class SpawnStage(Section):
    """One step of a fill: what there is in all when it is reached; less than before is removed."""

    groups: Count = Field(default=1, description="groups (projects)")
    instances: Count = Field(description="things (containers) in each group")
    members: Annotated[int, Field(ge=1, le=1000, strict=True)] | None = Field(
        default=None,
        description="members the cluster has in this stage; a lab starts those that are missing",
    )
    hold: Seconds = Field(default=30.0, description="how long it is kept up and observed once it is there")

    @property
    def size(self) -> int:
        """How many things there are in all."""
        return self.groups * self.instances

    @property
    def over(self) -> float:
        """Seconds the stage is spread over: none, as the workload says how fast things are made."""
        return 0.0
