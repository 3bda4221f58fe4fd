"""The relation `prometheus-api` (prometheus_api): a Prometheus that already scrapes the target, such as that of COS.

The other application writes its URLs: direct_url and, with an ingress, ingress_url for access from outside its cluster.
The interface has no login and no certificate.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import ops

from tippingpoint.errors import UserError
from tippingpoint.monitoring.selecting import read_matchers
from tippingpoint_charm.relations.databag import NotThere, of_app, shown, spoken

NAME = "prometheus-api"


def read(charm: ops.CharmBase) -> str:
    """Return the URL of the related Prometheus; empty without a relation. Raises NotThere if it has no usable URL."""
    for relation in spoken(charm, NAME):
        if not relation.active:
            continue
        bag = of_app(relation)
        url = (bag.get("ingress_url") or bag.get("direct_url") or "").strip()
        if not url:
            raise NotThere(f"{NAME}: {relation.app.name} has not published the URL of its Prometheus yet")
        if not is_server(url):
            given = "(not shown)" if "@" in url else shown(url)  # a login, most likely
            raise NotThere(f"{NAME}: {relation.app.name}: {given}: expected http(s)://HOST[:PORT][/PATH]")
        return url.rstrip("/")
    return ""


def is_server(url: str) -> bool:
    """Tell whether a URL is http(s)://HOST[:PORT][/PATH]. A login is refused, because a status would show it."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    plain = parts.username is None and parts.password is None and not parts.query and not parts.fragment
    return known and plain and url.isprintable() and " " not in url


def matchers(option: str, value: str) -> str:
    """Return what an option says of the target's series there, as label matchers. Raises ValueError if it is wrong."""
    try:
        return read_matchers(option, value)
    except UserError as wrong:
        raise ValueError(f"expected {wrong.accepted}") from None
