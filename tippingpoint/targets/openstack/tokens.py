"""Keystone's tokens: requested, read, and used until they are about to expire.

The request is made here and not by keystoneauth1. That library blocks: 500 projects' tokens would need a thread
each, or wait for one another. It also verifies TLS by its own authorities, and adds eight packages to every charm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from tippingpoint.targets.openstack.access import SERVICES, CloudAccess
from tippingpoint.util import timing

RENEW_SHARE = 0.2
RENEW_AT_MOST = 300.0
"""A token is renewed when this share of its life, or this many seconds if that is less, is left. Calls go on with the
old token meanwhile."""
TOO_LATE_SHARE = 0.05
TOO_LATE = 2.0
"""A token is no longer used when this share of its life, or this many seconds if that is less, is left: the service
must check it before it expires."""


@dataclass(frozen=True)
class Token:
    """A token, the user and project it is for, and the services' addresses."""

    text: str = field(repr=False)
    life: float
    """Seconds from its issue until it expires."""
    expires: float
    """When it expires, on the monotonic clock."""
    user: str
    project: str
    """Id of the project that it is for; empty if it is for none."""
    endpoints: Mapping[str, str]
    """The services' addresses by type, without a slash at the end."""
    regions: frozenset[str]
    """The regions in the catalogue."""
    several: bool
    """Whether a region must be chosen, because a service has endpoints in more than one."""

    def is_due(self, now: float) -> bool:
        """Whether it is time to renew it."""
        return now > self.expires - min(RENEW_AT_MOST, RENEW_SHARE * self.life)

    def is_over(self, now: float) -> bool:
        """Whether it must not be used any more."""
        return now > self.expires - min(TOO_LATE, TOO_LATE_SHARE * self.life)


_known: dict[bytes, dict[str, Token]] = {}


def tokens_of(access: CloudAccess) -> dict[str, Token]:
    """Return this process's tokens for a login, by id of their project (empty for the cloud's own).

    All clients share them, because a login costs Keystone a third of a CPU-second for the password's hash.
    """
    now = timing.monotonic()
    over = [
        who for who, known in _known.items() if known and all(token.is_over(now) for token in known.values())
    ]
    for who in over:
        del _known[who]
    where = (access.auth_url, access.region, access.interface)
    who = hashlib.sha256(repr((where, access.identity, access.scope)).encode()).digest()
    return _known.setdefault(who, {})


def request_of(identity: Mapping[str, Any], scope: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the body of a request for a token."""
    auth: dict[str, Any] = {"identity": dict(identity)}
    if scope is not None:
        auth["scope"] = dict(scope)
    return {"auth": auth}


def rescope_of(token: Token, project: str) -> dict[str, Any]:
    """Return the body of a request for a project's token by another token, which needs no password's hash."""
    return request_of({"methods": ["token"], "token": {"id": token.text}}, {"project": {"id": project}})


def read_token(access: CloudAccess, text: str, answer: object, now: float) -> Token:
    """Read the token in an answer of Keystone; ValueError if it has none."""
    try:
        body: dict[str, Any] = cast("dict[str, Any]", answer)["token"]
        life = (
            datetime.fromisoformat(body["expires_at"]) - datetime.fromisoformat(body["issued_at"])
        ).total_seconds()
        catalogue: list[dict[str, Any]] = body.get("catalog") or []
        project: dict[str, Any] | None = body.get("project")
        endpoints, regions = _endpoints(access, catalogue)
        return Token(
            text=text,
            life=life,
            expires=now + life,
            user=str(body["user"]["id"]),
            project=str(project["id"]) if project else "",
            endpoints={kind: next(iter(urls.values())) for kind, urls in endpoints.items()},
            regions=regions,
            several=any(len(urls) > 1 for urls in endpoints.values()),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as problem:
        raise ValueError(f"no token: {type(problem).__name__}") from None


def _endpoints(
    access: CloudAccess, catalogue: list[dict[str, Any]]
) -> tuple[dict[str, dict[str, str]], frozenset[str]]:
    """Return the addresses of the requested services, by region, and all regions in the catalogue."""
    found: dict[str, dict[str, str]] = {}
    regions: set[str] = set()
    for service in catalogue:
        for endpoint in cast("list[dict[str, Any]]", service.get("endpoints") or []):
            region = str(endpoint.get("region_id", ""))
            regions.add(region)
            if endpoint.get("interface") == access.interface and access.region in (None, region):
                found.setdefault(str(service["type"]), {}).setdefault(
                    region, str(endpoint["url"]).rstrip("/")
                )
    named = {kind: {"": url} for kind, url in access.endpoints.items()}
    return {kind: urls for kind, urls in found.items() if kind in SERVICES} | named, frozenset(regions)
