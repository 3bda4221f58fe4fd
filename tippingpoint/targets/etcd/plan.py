"""An etcd in a plan: where it is, and where who we are there is kept. Secrets stay in files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from tippingpoint.plan.claim import ClaimPlan
from tippingpoint.plan.kinds import TargetSection

_ENDPOINT = r"^https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?\])(:[0-9]{1,5})?$"


def _endpoint(url: str) -> str:
    """A URL as etcd's clients write it; no credentials, which would end up in journals and reports."""
    if "@" in url:
        raise ValueError("http(s)://host:port, and the user in target.credentials")
    try:
        if not re.fullmatch(_ENDPOINT, url) or urlsplit(url).port == 0:
            raise ValueError
    except ValueError:
        raise ValueError("http(s)://host:port") from None
    return url


Endpoint = Annotated[str, AfterValidator(_endpoint), WithJsonSchema({"type": "string", "pattern": _ENDPOINT})]


class EtcdTarget(TargetSection, frozen=True):
    """A real etcd cluster. Secrets stay in files; TLS is verified against `ca` or the system's authorities."""

    kind: Literal["etcd"] = "etcd"
    plans: ClassVar = {"claim": ClaimPlan}
    filled_in: ClassVar = ("credentials", "ca", "cert", "key")

    endpoints: list[Endpoint] = Field(
        default=["http://127.0.0.1:2379"],
        min_length=1,
        description="client URLs; connections are spread over them",
    )
    api: Literal["v3", "v2"] = "v3"
    connections: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=1, description="connections to each endpoint, from each worker"
    )
    ca: Path | None = Field(default=None, description="PEM file with the authority that signed the servers")
    cert: Path | None = Field(default=None, description="PEM file with the client certificate")
    key: Path | None = Field(default=None, description="PEM file with the client key, mode 0600")
    credentials: Path | None = Field(
        default=None, description="YAML file, mode 0600, with `username` and `password`"
    )

    @model_validator(mode="after")
    def _pair(self) -> EtcdTarget:
        if (self.cert is None) != (self.key is None):
            raise ValueError("cert and key go together: expected both or neither")
        return self


SECTION = EtcdTarget
