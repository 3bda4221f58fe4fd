"""The scraping side of the relation `metrics` (prometheus_scrape): reads which jobs others want scraped.

Many may be related: LXD, whose jobs have a certificate for each member, Juju controllers with a login, and others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import ops

from tippingpoint_charm.relations.databag import of_app, of_units, related

NAME = "metrics"


@dataclass(frozen=True)
class Scraped:
    """The data of one relation's other side, which may contain logins."""

    owner: str
    """The relation's name in messages."""
    application: Mapping[str, str] = field(repr=False)
    units: Mapping[str, Mapping[str, str]] = field(repr=False)


def read(charm: ops.CharmBase) -> list[Scraped]:
    """Return the data of all relations, the oldest first."""
    return [
        Scraped(
            f"{NAME}:{relation.id} {relation.app.name}",
            of_app(relation),
            {unit.name: bag for unit, bag in of_units(relation)},
        )
        for relation in related(charm, NAME)
        if relation.active
    ]
