"""The Client facade's FullStatus: everything in a model, as `juju status` asks for it.

Offers, ports, exposure and workload versions are from source (apiserver/facades/client/client of Juju 4.0), the rest is
recorded. Subordinates are not simulated.
"""

from __future__ import annotations

from typing import Any

from lab.juju.controller import VERSION
from lab.juju.methods import facade, method
from lab.juju.model import Application, Machine, Model, Unit
from lab.juju.models import CLOUD, REGION
from lab.juju.offers import Consumed, Offer
from lab.juju.relation import Relation
from lab.juju.rpc import Call
from lab.juju.statuses import Status, now

facade("Client", "user")

_ALLOCATING = Status("allocating")
_RUNNING = Status("running", "Manually provisioned machine")
_NOT_MODIFIED = Status("", since="").detailed(data=False) | {"since": None}
_TERMINATED = Status("terminated", "offer has been removed")
_WAITING = Status("waiting", "waiting for machine")


@method("Client", "FullStatus", "read")
def _full_status(call: Call) -> dict[str, Any]:
    model = call.model
    patterns: list[str] = call.params.get("patterns") or []
    machines, applications = model.matching([str(pattern) for pattern in patterns])
    names = {application.name for application, _ in applications}
    consumed = {} if patterns else model.consumed
    offers = model.offers if call.may("admin", model) else {}
    related = names | consumed.keys()
    return {
        "model": {
            "name": model.name,
            "type": "iaas",
            "cloud-tag": f"cloud-{CLOUD}",
            "region": REGION,
            "version": VERSION,
            "available-version": "",
            "model-status": Status("available").detailed(data=False),
        },
        "machines": {machine.id: _machine(machine) for machine in machines},
        "applications": {
            application.name: _application(model, application, units, related)
            for application, units in applications
        },
        "remote-applications": {name: _consumed(call, one) for name, one in consumed.items()},
        "offers": {name: _offer(model, one) for name, one in offers.items() if one.application in names},
        "relations": [
            _relation(relation)
            for relation in model.relations.values()
            if all(name in related for name, _ in relation.ends)
        ]
        or None,
        "controller-timestamp": now(),
        "branches": None,
    }


def _machine(machine: Machine) -> dict[str, Any]:
    return {
        "agent-status": machine.status.detailed("alive"),
        "instance-status": _RUNNING.detailed("alive"),
        "modification-status": _NOT_MODIFIED,
        "dns-name": "",
        "instance-id": machine.instance_id,
        "display-name": "",
        "base": _stable(machine.base),
        "id": machine.id,
        "containers": {},
        "constraints": "",
        "hardware": _hardware(machine.hardware),
        "jobs": ["JobHostUnits"],
        "has-vote": False,
        "wants-vote": False,
    }


def _application(
    model: Model, application: Application, units: list[Unit], shown: set[str]
) -> dict[str, Any]:
    leader = model.leases.holder(application.name)
    units_of = application.units.values()
    return {
        "charm": application.charm.url,
        "charm-version": "",
        "charm-profile": "",
        **({"charm-rev": application.charm.revision} if application.charm.revision else {}),
        "base": _stable(application.base),
        "exposed": application.exposed is not None,
        **({"exposed-endpoints": application.exposed} if application.exposed else {}),
        "life": "alive",
        "relations": _related(model, application.name, shown),
        "can-upgrade-to": "",
        "subordinate-to": [],
        "units": {unit.name: _unit(unit, unit.name == leader) for unit in units},
        "status": _status(application).detailed(data=False),
        "workload-version": next((unit.workload_version for unit in units_of if unit.workload_version), ""),
        "endpoint-bindings": {"": "alpha"} | dict.fromkeys(application.charm.endpoints, "alpha"),
        "public-address": "",
    }


def _status(application: Application) -> Status:
    units = application.units.values()
    return application.status or next((unit.workload for unit in units if unit.workload), _WAITING)


def _related(model: Model, name: str, shown: set[str]) -> dict[str, list[str]]:
    """Return the applications that one is related with, by its endpoints."""
    related: dict[str, set[str]] = {}
    for relation in model.relations_of(name):
        for end, endpoint in relation.ends:
            others = {other for other, _ in relation.ends if other != end} or {end}
            if end == name and shown >= others:
                related.setdefault(endpoint.name, set()).update(others)
    return {endpoint: sorted(others) for endpoint, others in related.items()}


def _consumed(call: Call, consumed: Consumed) -> dict[str, Any]:
    model, offering = call.model, call.session.controller.models.get(consumed.model)
    offered = offering is not None and consumed.offer.name in offering.offers
    application = offering.applications[consumed.offer.application] if offering and offered else None
    return {
        "offer-url": consumed.url,
        "offer-name": consumed.name,
        "endpoints": [endpoint.as_remote() for endpoint in consumed.endpoints.values()],
        "life": "alive",
        "relations": _related(model, consumed.name, model.applications.keys() | model.consumed.keys()),
        "status": (_status(application) if application else _TERMINATED).detailed(),
    }


def _offer(model: Model, offer: Offer) -> dict[str, Any]:
    connections = offer.connections.values()
    return {
        "offer-name": offer.name,
        "application-name": offer.application,
        "charm": model.applications[offer.application].charm.url,
        "endpoints": {
            name: endpoint.as_remote() | {"limit": 0} for name, endpoint in offer.endpoints.items()
        },
        "active-connected-count": sum(one.status.status == "joined" for one in connections),
        "total-connected-count": len(connections),
    }


def _stable(base: dict[str, str]) -> dict[str, str]:
    return base | {"channel": f"{base['channel'].partition('/')[0]}/stable"}


def _hardware(hardware: dict[str, Any]) -> str:
    """Write a machine's hardware as Juju does: "arch=amd64 cores=2 mem=4096M root-disk=16384M"."""
    units = {"mem": "M", "root-disk": "M"}
    shown = {"arch": "arch", "cores": "cpu-cores", "mem": "mem", "root-disk": "root-disk"}
    given = {name: hardware.get(key) for name, key in shown.items()}
    return " ".join(f"{name}={value}{units.get(name, '')}" for name, value in given.items() if value)


def _unit(unit: Unit, leads: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "agent-status": (unit.agent or _ALLOCATING).detailed("alive"),
        "workload-status": (unit.workload or _WAITING).detailed(),
        "workload-version": unit.workload_version,
        "machine": unit.machine,
        "opened-ports": ports(unit),
        "public-address": "",
        "charm": "",
        "subordinates": None,
    }
    if leads:
        shown["leader"] = True
    return shown


def ports(unit: Unit) -> list[str] | None:
    """Return open ports as Juju sorts them: by protocol, then by number; None without any."""
    opened = {port for ports in unit.ports.values() for port in ports}
    return sorted(opened, key=lambda port: (port.rpartition("/")[2], len(port), port)) or None


def _relation(relation: Relation) -> dict[str, Any]:
    return {
        "id": relation.id,
        "key": relation.key,
        "interface": relation.ends[0][1].interface,
        "scope": relation.ends[0][1].scope,
        "endpoints": [
            {"application": name, "name": endpoint.name, "role": endpoint.role, "subordinate": False}
            for name, endpoint in relation.ends
        ],
        "status": (relation.status or Status("joining")).detailed(),
    }
