"""The relation `metrics` (prometheus_scrape), the scraping side: what others want to be scraped of them.

Many may be related: LXD, whose jobs have a certificate for each member, Juju controllers with a login, anything else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import ops

from tippingpoint_charm.relations.databag import of_app, of_units, related

NAME = "metrics"


@dataclass(frozen=True)
class Scraped:
    """What one relation's other side wrote; there may be logins in it."""

    owner: str
    """The relation, as messages name it."""
    application: Mapping[str, str] = field(repr=False)
    units: Mapping[str, Mapping[str, str]] = field(repr=False)


def read(charm: ops.CharmBase) -> list[Scraped]:
    """All that are related now, the oldest first."""
    return [
        Scraped(
            f"{NAME}:{relation.id} {relation.app.name}",
            of_app(relation),
            {unit.name: bag for unit, bag in of_units(relation)},
        )
        for relation in related(charm, NAME)
        if relation.active
    ]
