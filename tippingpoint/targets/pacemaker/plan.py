"""A Pacemaker in a plan: where the file with its addresses and password is, and how far its TLS is trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.kinds import TargetSection


class PacemakerTarget(TargetSection, frozen=True):
    """A Pacemaker cluster, reached by its remote CIB. Secrets stay in the file of credentials."""

    kind: Literal["pacemaker"] = "pacemaker"
    plans: ClassVar = {"claim": ClaimPlan}
    filled_in: ClassVar = ("credentials",)
    member: ClassVar = "node"
    coded_errors: ClassVar = True

    credentials: Path | None = Field(
        default=None,
        description="YAML file, mode 0600, with `addresses`, `port`, `user` and `password`, and where the cluster has "
        "certificates the paths of `ca`, `cert` and `key`.",
    )
    tls: Literal["verified", "anonymous"] = Field(
        default="verified",
        description="`verified` checks the nodes' certificates. Pacemaker before 3.0, and without certificates, has "
        "anonymous TLS only: nobody proves who they are, and whoever is in between reads the password. `anonymous` "
        "allows that, for private networks.",
    )
    store: Literal["ticket", "config"] = Field(
        default="ticket",
        description="What a lease is. A `ticket` is in the status section, which stays in memory. `config` is a set "
        "of properties in the configuration, which every node writes to its disk.",
    )
    connections: Annotated[int, Field(ge=1, le=100)] = Field(
        default=1, description="Connections to each node, from each worker."
    )


SECTION = PacemakerTarget
