"""A Juju controller in a plan: its name, the login, and the lease times that it grants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from tippingpoint.errors import UserError
from tippingpoint.plan.base import BasePlan
from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.grow import GrowPlan
from tippingpoint.plan.kinds import TargetSection
from tippingpoint.plan.operate import OperatePlan
from tippingpoint.plan.url import PprofUrls
from tippingpoint.util.durations import format_duration


class JujuTarget(TargetSection, frozen=True):
    """A Juju controller, stock or patched. TLS is always verified against the controller's own authority."""

    kind: Literal["juju"] = Field(description="The target: `juju`.")
    plans: ClassVar = {"claim": ClaimPlan, "grow": GrowPlan, "operate": OperatePlan}
    called_real = "Juju controller"
    coded_errors = True
    rate_limit = "the controller's agent-ratelimit-max (0 lifts it)"
    filled_in: ClassVar = ("credentials", "controller", "agent")
    own_connections = True
    releases = False

    controller: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="The controller's name in the juju client's store; its current controller when left out.",
    )
    credentials: Path | None = Field(
        default=None,
        description="YAML file with `addresses`, `ca`, `user` and `password`, mode 0600, instead of the store.",
    )
    model: Annotated[str, Field(min_length=1)] | None = Field(
        default=None,
        description="Name or UUID of the model for hollow units. When left out, the run makes a model and removes it.",
    )
    identity: Literal["hollow", "agent"] = Field(
        default="hollow",
        description="`hollow`: every unit logs in as itself. `agent`: all log in as one unit, which needs a patched "
        "controller.",
    )
    agent: Path | None = Field(
        default=None, description="The unit's agent.conf, for identity `agent`. It is read and not copied."
    )

    pprof: PprofUrls = Field(
        default=[],
        description="Addresses of controllers that are profiled in each stage, at which `juju-introspect --listen` "
        "runs on their machines. Left out: no profile is taken.",
    )

    @property
    def profiled(self) -> Sequence[str]:
        return self.pprof

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

    def check(self, plan: BasePlan) -> None:
        if not isinstance(plan, ClaimPlan) and self.identity != "hollow":
            raise ValueError(f"target.identity: {self.identity}: expected hollow, for this workload")
        if isinstance(plan, OperatePlan) and self.model is not None:
            raise ValueError(f"target.model: {self.model}: expected none, as the run makes its models")
        if isinstance(plan, ClaimPlan) and not 5 <= plan.workload.claim_time <= 300:
            raise ValueError(
                f"workload.claim_time: {format_duration(plan.workload.claim_time)}: expected 5s to 5m, "
                "which is what a Juju controller grants"
            )

    def check_in_charm(self) -> None:
        super().check_in_charm()
        if self.identity != "hollow":
            raise UserError("target.identity", self.identity, "hollow, in a charm")


SECTION = JujuTarget
