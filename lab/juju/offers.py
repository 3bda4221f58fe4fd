"""Offers of applications to other models, and the applications that a model has consumed from them.

Both are on one controller. A relation with a consumed application is one of the consuming model only: what its units
write does not reach the units of the offering one, whose model counts the connection. In Juju, workers of the
controller carry the settings across.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lab.juju.charm import Endpoint
from lab.juju.refusals import Refused
from lab.juju.statuses import Status

_URL = re.compile(r"((?P<source>[^:/]+):)?((?P<owner>[^/.:]+)/)?(?P<model>[^.:/]+)\.(?P<name>[^.:/]+)")


@dataclass(slots=True)
class Connection:
    """A relation of another model with an offer."""

    model: str
    relation: int
    user: str
    endpoint: str
    end: Callable[[], None]
    """Removes the relation."""
    status: Status = field(default_factory=lambda: Status("joined"))

    def as_dict(self) -> dict[str, Any]:
        """Return it in the form of an offer's details."""
        return {
            "source-model-tag": f"model-{self.model}",
            "relation-id": self.relation,
            "username": self.user,
            "endpoint": self.endpoint,
            "status": {"status": self.status.status, "info": "", "since": self.status.since},
            "ingress-subnets": None,
        }


@dataclass(slots=True)
class Offer:
    """An application's endpoints that other models may relate with. `users` have levels (accounts.OFFER_LEVELS)."""

    name: str
    application: str
    endpoints: dict[str, Endpoint]
    users: dict[str, str]
    description: str = ""
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    connections: dict[tuple[str, int], Connection] = field(default_factory=dict[tuple[str, int], Connection])


@dataclass(slots=True)
class Consumed:
    """An offer of another model, under a name in this one."""

    name: str
    offer: Offer
    url: str
    model: str
    user: str

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """The offer's endpoints, and the one that every application has."""
        return self.offer.endpoints | {"juju-info": Endpoint("juju-info", "provider", "juju-info")}


@dataclass(frozen=True, slots=True)
class OfferURL:
    """An offer's address on this controller: "owner/model.name"."""

    owner: str
    model: str
    name: str

    def __str__(self) -> str:
        return f"{self.owner}/{self.model}.{self.name}"


def parse_url(text: str, user: str) -> OfferURL:
    """Read an offer's URL, which needs no owner if that is the user. Raises Refused."""
    parts = _URL.fullmatch(text)
    if parts is None:
        raise Refused(f'offer URL "{text}" not valid', "not valid")
    if parts["source"]:
        raise Refused("query for non-local application offers", "not supported")
    return OfferURL(parts["owner"] or user, parts["model"], parts["name"])
