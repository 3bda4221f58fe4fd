"""A Pacemaker in a plan: where the file with its addresses and password is, and how far its TLS is trusted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.cts import CtsPlan
from tippingpoint.plan.fields import in_units
from tippingpoint.plan.kinds import TargetSection


class PacemakerTarget(TargetSection, frozen=True):
    """A Pacemaker cluster, reached by its remote CIB. Secrets stay in the file of credentials."""

    kind: Literal["pacemaker"] = Field(description="The target: `pacemaker`.")
    plans: ClassVar = {"claim": ClaimPlan, "cts": CtsPlan}
    filled_in: ClassVar = ("credentials",)
    member: ClassVar = "node"
    read_back: ClassVar = True
    steady_leader: ClassVar = "DC"
    coded_errors: ClassVar = True

    credentials: Path | None = Field(
        default=None,
        description="YAML file, mode 0600, with `addresses`, `port`, `user` and `password`. Where the cluster has "
        "certificates also `ca`, `cert` and `key`, as PEM texts.",
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
    connections: Annotated[int, Field(ge=1, le=100, json_schema_extra=in_units("connections"))] = Field(
        default=1, description="How many connections each worker has to each node."
    )


SECTION = PacemakerTarget
