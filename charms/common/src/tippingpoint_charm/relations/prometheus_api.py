"""The relation `prometheus-api` (prometheus_api): a Prometheus that knows the target already, such as that of COS.

The other application writes where it is asked: ingress_url, from outside of its cluster, where it has an ingress, and
direct_url. The interface has no login and no certificate.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import ops

from tippingpoint_charm.relations.databag import NotThere, of_app, shown, spoken

NAME = "prometheus-api"


def read(charm: ops.CharmBase) -> str:
    """Where it is asked; empty where none is related. NotThere where one is that says nothing of use."""
    for relation in spoken(charm, NAME):
        if not relation.active:
            continue
        bag = of_app(relation)
        url = (bag.get("ingress_url") or bag.get("direct_url") or "").strip()
        if not url:
            raise NotThere(f"{NAME}: {relation.app.name} has not said yet where its Prometheus is")
        if not is_server(url):
            given = "(not shown)" if "@" in url else shown(url)  # a login, most likely
            raise NotThere(f"{NAME}: {relation.app.name}: {given}: expected http(s)://HOST[:PORT][/PATH]")
        return url.rstrip("/")
    return ""


def is_server(url: str) -> bool:
    """Whether it is http(s)://HOST[:PORT][/PATH]: a login in it would be shown to whoever reads a status."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    plain = parts.username is None and parts.password is None and not parts.query and not parts.fragment
    return known and plain and url.isprintable() and " " not in url
