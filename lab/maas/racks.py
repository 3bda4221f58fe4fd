"""The rack controllers and the region controller, as a region lists them: which of their services run.

The services, and what becomes of them when a rack controller has gone, are those of src/maasserver/models/service.py
of MAAS 3.3.11 (RACK_SERVICES, REGION_SERVICES, DEAD_STATUSES). A region notes a rack controller as dead when its last
connection has closed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.maas.machine import UNTESTED, named
from lab.maas.parts import API

SIMULATED = "simulated"
"""The `subversion` of this region, in version/, and the version of its controllers: a real one has a revision there."""

_OF_RACK = {
    "dhcpd": ("running", "dead"),
    "dhcpd6": ("off", "dead"),
    "dns_rack": ("running", "unknown"),
    "http": ("running", "unknown"),
    "ntp_rack": ("running", "dead"),
    "proxy_rack": ("running", "unknown"),
    "rackd": ("running", "dead"),
    "syslog_rack": ("running", "unknown"),
    "tftp": ("running", "dead"),
}
"""Each service of a rack controller: its status there, and once the rack controller has gone."""
_OF_REGION: tuple[str, ...] = ("bind9", "ntp_region", "proxy", "regiond", "reverse_proxy", "syslog_region")


def rack_controller(name: str, alive: bool) -> dict[str, Any]:
    """Return a rack controller as the API does."""
    services = {service: states[0 if alive else 1] for service, states in _OF_RACK.items()}
    return _controller(name, 2, "Rack controller", f"{API}/rackcontrollers/{name}/", services)


def region_controller(name: str) -> dict[str, Any]:
    """Return the region controller as the API does. It runs: it is what answers."""
    services = dict.fromkeys(_OF_REGION, "running")
    return _controller(name, 3, "Region controller", f"{API}/regioncontrollers/{name}/", services)


def _controller(
    name: str, kind: int, kind_name: str, uri: str, services: Mapping[str, str]
) -> dict[str, Any]:
    return UNTESTED | {
        "system_id": name,
        "hostname": name,
        "fqdn": f"{name}.maas",
        "description": SIMULATED,
        "architecture": "amd64/generic",
        "node_type": kind,
        "node_type_name": kind_name,
        "power_type": "",
        "power_state": "unknown",
        "ip_addresses": ["127.0.0.1"],
        "interface_set": [],
        "tag_names": [],
        "zone": named("zones", "default", "default", 1),
        "version": SIMULATED,
        "service_set": [
            {"name": service, "status": status, "status_info": ""} for service, status in services.items()
        ],
        "resource_uri": uri,
    }
