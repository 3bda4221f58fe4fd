"""The related Juju controller: `controller` (juju-dashboard) or `controller-http` (http), in that order.

Both are endpoints of the juju-controller charm. They only give the address of the API; nothing is sent. On `dashboard`
its leader writes controller-url into the application's bag (wss://HOST:PORT/api, Juju's api.ControllerAPIURL); on
`website` it writes hostname, private-address and port into its own unit's bag.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import ops

from tippingpoint_charm.relations.databag import NotThere, host_and_port, of_app, of_units, shown, spoken

DASHBOARD, HTTP = "controller", "controller-http"

API_PORT = 17070
"""The default port of a controller's API (controller/config.go, DefaultAPIPort)."""


def read(charm: ops.CharmBase) -> list[str]:
    """Return the addresses of the related controller's API, as host:port; empty if no controller is related.

    Raises NotThere if a related controller has published nothing yet, or nothing usable.
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
