"""The collector's configuration, without its secrets."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator
from tippingpoint_charm.relations import prometheus_api

_RETENTION = re.compile(r"[1-9][0-9]{0,4}[hdwy]")


class CollectorSettings(BaseModel):
    """The options: what is scraped, how often, and how long samples are kept."""

    model_config = ConfigDict(frozen=True)

    static_targets: Annotated[str, Field(max_length=100_000)] = ""
    static_targets_ca: Annotated[str, Field(max_length=100_000)] = ""
    prometheus_url: str = ""
    prometheus_only: str = ""
    retention: str = "15d"
    scrape_interval: Annotated[int, Field(ge=5, le=120)] = 15
    """Seconds between two scrapes."""

    @field_validator("prometheus_url")
    @classmethod
    def _url(cls, value: str) -> str:
        if value and not prometheus_api.is_server(value):
            raise ValueError(
                "expected http(s)://HOST[:PORT][/PATH]; a login is the secret prometheus-credentials"
            )
        return value

    @field_validator("static_targets_ca")
    @classmethod
    def _certificate(cls, value: str) -> str:
        if value.strip() and "-----BEGIN CERTIFICATE-----" not in value:
            raise ValueError("expected the text of certificates (PEM): static-targets-ca=@FILE")
        return value

    @field_validator("prometheus_only")
    @classmethod
    def _labels(cls, value: str) -> str:
        prometheus_api.matchers("prometheus-only", value)
        return value

    @property
    def only(self) -> str:
        """The option prometheus-only as label matchers."""
        return prometheus_api.matchers("prometheus-only", self.prometheus_only)

    @field_validator("retention")
    @classmethod
    def _time(cls, value: str) -> str:
        if not _RETENTION.fullmatch(value):
            raise ValueError("expected a number of hours, days, weeks or years, such as 36h or 15d")
        return value
