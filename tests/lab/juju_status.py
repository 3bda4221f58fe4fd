"""The Client facade's FullStatus: everything in a model, as `juju status` asks for it."""

from __future__ import annotations

from typing import Any

from tests.lab.juju_controller import VERSION
from tests.lab.juju_model import Application, Machine, Model, Relation, Status, Unit, now
from tests.lab.juju_models import CLOUD, REGION
from tests.lab.juju_rpc import Call, facade, method

facade("Client", "user")

_ALLOCATING = Status("allocating")
_WAITING = Status("waiting", "waiting for machine")


@method("Client", "FullStatus")
def _full_status(call: Call) -> dict[str, Any]:
    model = call.model
    machines, applications = model.matching([str(pattern) for pattern in call.params.get("patterns") or []])
    names = {application.name for application, _ in applications}
    return {
        "model": {
            "name": model.name,
            "type": "iaas",
            "cloud-tag": f"cloud-{CLOUD}",
            "region": REGION,
            "version": VERSION,
            "available-version": "",
            "model-status": Status("available").detailed(),
            "sla": "unsupported",
        },
        "machines": {machine.id: _machine(machine) for machine in machines},
        "applications": {
            application.name: _application(model, application, units) for application, units in applications
        },
        "remote-applications": {},
        "offers": {},
        "relations": [
            _relation(relation)
            for relation in model.relations.values()
            if any(name in names for name, _ in relation.ends)
        ],
        "controller-timestamp": now(),
        "branches": {},
    }


def _machine(machine: Machine) -> dict[str, Any]:
    hardware = " ".join(f"{key}={value}" for key, value in machine.hardware.items())
    return {
        "agent-status": machine.status.detailed(),
        "instance-status": Status("running").detailed(),
        "modification-status": Status("idle").detailed(),
        "hostname": "",
        "dns-name": machine.addresses[0] if machine.addresses else "",
        "ip-addresses": machine.addresses,
        "instance-id": machine.instance_id,
        "display-name": "",
        "base": machine.base,
        "id": machine.id,
        "containers": {},
        "constraints": "",
        "hardware": hardware,
        "jobs": ["JobHostUnits"],
        "has-vote": False,
        "wants-vote": False,
    }


def _application(model: Model, application: Application, units: list[Unit]) -> dict[str, Any]:
    related: dict[str, list[str]] = {}
    for relation in model.relations_of(application.name):
        for name, endpoint in relation.ends:
            if name == application.name:
                others = [other for other, _ in relation.ends if other != name] or [name]
                related.setdefault(endpoint.name, []).extend(others)
    leader = model.leases.holder(application.name)
    workload = next((unit.workload for unit in application.units.values() if unit.workload), _WAITING)
    return {
        "charm": application.charm.url,
        "charm-version": "",
        "charm-profile": "",
        "charm-rev": application.charm.revision,
        "base": application.base,
        "exposed": False,
        "life": "alive",
        "relations": related,
        "can-upgrade-to": "",
        "subordinate-to": [],
        "units": {unit.name: _unit(unit, unit.name == leader) for unit in units},
        "status": workload.detailed(),
        "workload-version": "",
        "endpoint-bindings": {"": "alpha"} | dict.fromkeys(application.charm.endpoints, "alpha"),
        "public-address": "",
    }


def _unit(unit: Unit, leads: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "agent-status": (unit.agent or _ALLOCATING).detailed(),
        "workload-status": (unit.workload or _WAITING).detailed(),
        "workload-version": "",
        "machine": unit.machine,
        "opened-ports": [],
        "public-address": "",
        "charm": "",
        "subordinates": {},
    }
    if leads:
        shown["leader"] = True
    return shown


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
