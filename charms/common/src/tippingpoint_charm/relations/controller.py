"""The Juju controller that is related: `controller` (juju-dashboard) or `controller-http` (http), in that order.

Both are endpoints of the juju-controller charm and say no more than where the API is; nothing is sent. On `dashboard`
its leader writes controller-url into the application's bag (wss://HOST:PORT/api, Juju's api.ControllerAPIURL); on
`website` it writes hostname, private-address and port into its own unit's bag.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import ops

from tippingpoint_charm.relations.databag import NotThere, host_and_port, of_app, of_units, shown, spoken

DASHBOARD, HTTP = "controller", "controller-http"

API_PORT = 17070
"""Where a controller listens when nobody says otherwise (controller/config.go, DefaultAPIPort)."""


def read(charm: ops.CharmBase) -> list[str]:
    """Where the related controller's API is, as host:port; empty when no controller is related.

    NotThere where one is related and says nothing yet, or nothing that can be used.
    """
    for relation in spoken(charm, DASHBOARD):
        url = of_app(relation).get("controller-url", "").strip()
        if not url:
            raise NotThere(
                f"{DASHBOARD}: waiting for the controller's controller-url: "
                f"juju config -m controller controller controller-url shows it"
            )
        return [_address(url)]
    for relation in spoken(charm, HTTP):
        found: list[str] = []
        for _, bag in of_units(relation):
            host = (bag.get("hostname") or bag.get("private-address") or "").strip()
            port = bag.get("port", "").strip()
            # Juju itself gives every unit's bag a private-address; only the leader's has a port.
            if host and port:
                found.append(host_and_port(HTTP, host, port))
        if not found:
            raise NotThere(f"{HTTP}: waiting for the controller's hostname and port")
        return found
    return []


def _address(url: str) -> str:
    try:
        parts = urlsplit(url if "://" in url else f"wss://{url}")
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host:
        raise NotThere(f"{DASHBOARD}: {shown(url)}: expected a controller-url, wss://HOST:PORT/api")
    return host_and_port(DASHBOARD, host, str(port or API_PORT))
