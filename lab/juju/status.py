"""The Client facade's FullStatus: everything in a model, as `juju status` asks for it."""

from __future__ import annotations

from typing import Any

from lab.juju.controller import VERSION
from lab.juju.methods import facade, method
from lab.juju.model import Application, Machine, Model, Relation, Status, Unit, now
from lab.juju.models import CLOUD, REGION
from lab.juju.rpc import Call

facade("Client", "user")

_ALLOCATING = Status("allocating")
_RUNNING = Status("running", "Manually provisioned machine")
_NOT_MODIFIED = Status("", since="").detailed(data=False) | {"since": None}
_WAITING = Status("waiting", "waiting for machine")


@method("Client", "FullStatus")
def _full_status(call: Call) -> dict[str, Any]:
    model = call.model
    patterns: list[str] = call.params.get("patterns") or []
    machines, applications = model.matching([str(pattern) for pattern in patterns])
    names = {application.name for application, _ in applications}
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
            application.name: _application(model, application, units, names)
            for application, units in applications
        },
        "remote-applications": {},
        "offers": {},
        "relations": [
            _relation(relation)
            for relation in model.relations.values()
            if all(name in names for name, _ in relation.ends)
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
    related: dict[str, list[str]] = {}
    for relation in model.relations_of(application.name):
        for name, endpoint in relation.ends:
            others = [other for other, _ in relation.ends if other != name] or [name]
            if name == application.name and shown.issuperset(others):
                related.setdefault(endpoint.name, []).extend(others)
    leader = model.leases.holder(application.name)
    workload = next((unit.workload for unit in application.units.values() if unit.workload), _WAITING)
    return {
        "charm": application.charm.url,
        "charm-version": "",
        "charm-profile": "",
        **({"charm-rev": application.charm.revision} if application.charm.revision else {}),
        "base": _stable(application.base),
        "exposed": False,
        "life": "alive",
        "relations": related,
        "can-upgrade-to": "",
        "subordinate-to": [],
        "units": {unit.name: _unit(unit, unit.name == leader) for unit in units},
        "status": workload.detailed(data=False),
        "workload-version": "",
        "endpoint-bindings": {"": "alpha"} | dict.fromkeys(application.charm.endpoints, "alpha"),
        "public-address": "",
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
        "workload-version": "",
        "machine": unit.machine,
        "opened-ports": None,
        "public-address": "",
        "charm": "",
        "subordinates": None,
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
