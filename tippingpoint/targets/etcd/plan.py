"""An etcd in a plan: its address and the files with its credentials."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.fields import in_units
from tippingpoint.plan.kinds import TargetSection
from tippingpoint.plan.store import StorePlan
from tippingpoint.plan.url import PATTERN, PprofUrls, checked_url, listed_urls


def _endpoint(url: str) -> str:
    """A URL as etcd's clients write it. Credentials are refused, as they would appear in journals and reports."""
    if "@" in url:
        raise ValueError("http(s)://host:port, and the user in target.credentials")
    return checked_url(url)


Endpoint = Annotated[str, AfterValidator(_endpoint), WithJsonSchema({"type": "string", "pattern": PATTERN})]


class EtcdTarget(TargetSection, frozen=True):
    """An etcd cluster. Secrets stay in files. TLS is verified against `ca` or the system's authorities."""

    kind: Literal["etcd"] = Field(default="etcd", description="The target: `etcd`.")
    plans: ClassVar = {"claim": ClaimPlan, "store": StorePlan}
    filled_in: ClassVar = ("credentials", "ca", "cert", "key")

    endpoints: Annotated[list[Endpoint], BeforeValidator(listed_urls)] = Field(
        default=["http://127.0.0.1:2379"],
        min_length=1,
        description="Client URLs. Connections are spread over them.",
    )
    api: Literal["v3", "v2"] = Field(
        default="v3", description="The API. `v2` needs an etcd that was started with `--enable-v2`."
    )
    connections: Annotated[int, Field(ge=1, le=10_000, json_schema_extra=in_units("connections"))] = Field(
        default=1, description="How many connections each worker has to each endpoint."
    )
    ca: Path | None = Field(
        default=None, description="PEM file with the authority that signed the servers' certificates."
    )
    cert: Path | None = Field(default=None, description="PEM file with the client certificate.")
    key: Path | None = Field(default=None, description="PEM file with the client key, mode 0600.")
    credentials: Path | None = Field(
        default=None, description="YAML file with `username` and `password`, mode 0600."
    )

    pprof: PprofUrls = Field(
        default=[],
        description="Client URLs of members that are profiled in each stage. They need `--enable-pprof`. Left out: "
        "no profile is taken.",
    )

    @property
    def profiled(self) -> Sequence[str]:
        return self.pprof

    @model_validator(mode="after")
    def _pair(self) -> EtcdTarget:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together: expected both or neither")
        return self


SECTION = EtcdTarget
