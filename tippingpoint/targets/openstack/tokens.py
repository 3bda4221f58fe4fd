"""Tokens: asked of Keystone, read, and used until they are about to expire.

Keystone is asked by a call of our own, not by keystoneauth1. That blocks (a thread for each of 500 projects' tokens, or
one after the other), verifies TLS by authorities of its own, and brings eight packages into every charm; what is needed
of it is what is here. (Its import takes 0.07 CPU-seconds: that alone would be no reason.)
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, cast

from tippingpoint.targets.openstack.access import CloudAccess

RENEW_SHARE = 0.2
RENEW_AT_MOST = 300.0
"""A token is renewed when a fifth of its life is left, or so many seconds where that is less: calls go on with the old
one meanwhile."""
TOO_LATE_SHARE = 0.05
TOO_LATE = 2.0
"""A token is not used any more when a twentieth of its life is left, or so many seconds where that is less: a call that
is sent has to be checked by then."""
SERVICES = ("compute", "network", "image", "placement")


@dataclass(frozen=True)
class Token:
    """A token, who it says we are, and where services are for it."""

    text: str = field(repr=False)
    life: float
    """Seconds from when it was issued until it expires."""
    expires: float
    """On the monotonic clock."""
    user: str
    project: str
    """Id of the project that it is for; empty where it is for none."""
    endpoints: Mapping[str, str]
    """By service type, without a slash at its end."""
    regions: frozenset[str]
    """The regions that the catalogue has."""
    several: bool
    """Whether one of them has to be named: a service has endpoints in more than one."""

    def is_due(self, now: float) -> bool:
        """Whether it is time to renew it."""
        return now > self.expires - min(RENEW_AT_MOST, RENEW_SHARE * self.life)

    def is_over(self, now: float) -> bool:
        """Whether it is not to be used any more."""
        return now > self.expires - min(TOO_LATE, TOO_LATE_SHARE * self.life)


_known: dict[bytes, dict[str, Token]] = {}


def tokens_of(access: CloudAccess) -> dict[str, Token]:
    """The tokens that this process has for who we are, by the id of the project that they are for (empty for the
    cloud's own), which all clients share: a log-in costs Keystone a third of a CPU-second for the password's hash."""
    now = time.monotonic()
    over = [
        who for who, known in _known.items() if known and all(token.is_over(now) for token in known.values())
    ]
    for who in over:
        del _known[who]
    where = (access.auth_url, access.region, access.interface)
    who = hashlib.sha256(repr((where, access.identity, access.scope)).encode()).digest()
    return _known.setdefault(who, {})


def request_of(identity: Mapping[str, Any], scope: Mapping[str, Any] | None) -> dict[str, Any]:
    """What Keystone is asked for a token with."""
    auth: dict[str, Any] = {"identity": dict(identity)}
    if scope is not None:
        auth["scope"] = dict(scope)
    return {"auth": auth}


def rescope_of(token: Token, project: str) -> dict[str, Any]:
    """The same for a project, by a token: no password has to be hashed for it."""
    return request_of({"methods": ["token"], "token": {"id": token.text}}, {"project": {"id": project}})


def read_token(access: CloudAccess, text: str, answer: object, now: float) -> Token:
    """The token of an answer of Keystone's; ValueError where that is none."""
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
    """Where each service is, by region, of those that were asked for; and all regions that there are."""
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
    return {kind: urls for kind, urls in found.items() if kind in SERVICES}, frozenset(regions)
