"""What `juju show-application`, `show-unit` and `deploy` of a local charm ask beside: a model's config, and its charms.

Recorded, but for a model's config: only some of its keys are there.
"""

from __future__ import annotations

from typing import Any

from lab.juju.actions import spec
from lab.juju.controller import VERSION
from lab.juju.machines import unit_name
from lab.juju.methods import facade, method
from lab.juju.model import Model, Unit
from lab.juju.refusals import not_found
from lab.juju.relation import Relation
from lab.juju.rpc import Call, for_each
from lab.juju.status import ports

facade("Charms", "user")
facade("ModelConfig", "user")


@method("Application", "ApplicationsInfo", "read")
def _applications(call: Call) -> dict[str, Any]:
    def inform(entity: dict[str, Any]) -> dict[str, Any]:
        name = str(entity["tag"]).removeprefix("application-")
        application = call.model.applications.get(name)
        if application is None:
            raise not_found(f"application {name}")
        shown: dict[str, Any] = {
            "tag": f"application-{name}",
            "charm": application.charm.name,
            "base": application.base,
            "constraints": {"arch": "amd64"} | application.constraints,
            "principal": True,
            "exposed": application.exposed is not None,
            "remote": False,
            "life": "alive",
            "endpoint-bindings": {"": "alpha"} | dict.fromkeys(application.charm.endpoints, "alpha"),
        }
        return {"result": shown | ({"exposed-endpoints": application.exposed} if application.exposed else {})}

    return {"results": for_each(call.params["entities"], inform)}


@method("Application", "UnitsInfo", "read")
def _units(call: Call) -> dict[str, Any]:
    def inform(entity: dict[str, Any]) -> dict[str, Any]:
        name = unit_name(str(entity["tag"])) or ""
        unit = call.model.unit(name)
        if unit is None:
            raise not_found(f"unit {name}")
        shown: dict[str, Any] = {
            "tag": entity["tag"],
            "workload-version": unit.workload_version,
            "machine": unit.machine,
            "opened-ports": ports(unit),
            "charm": call.model.applications[unit.application].charm.url,
            **({"leader": True} if call.model.leases.holder(unit.application) == unit.name else {}),
            "life": "alive",
            "relation-data": [
                _relation_data(call.model, unit, one) for one in call.model.relations_of(unit.application)
            ],
        }
        return {"result": shown}

    return {"results": for_each(call.params["entities"], inform)}


def _relation_data(model: Model, unit: Unit, relation: Relation) -> dict[str, Any]:
    own = next(endpoint for name, endpoint in relation.ends if name == unit.application)
    other, related = next((end for end in relation.ends if end[0] != unit.application), relation.ends[0])
    application = model.applications.get(other)
    return {
        "relation-id": relation.id,
        "endpoint": own.name,
        "cross-model": False,
        "related-endpoint": related.name,
        "ApplicationData": relation.of_application(unit.application).settings,
        "unit-relation-data": {
            name: {"InScope": name in relation.in_scope, "UnitData": relation.settings_of(name) or {}}
            for name in (application.units if application else ())
        },
    }


@method("Charms", "CharmInfo", "read")
def _charm(call: Call) -> dict[str, Any]:
    charm = call.model.charms.get(str(call.params["url"]))
    if charm is None:
        raise not_found(f'charm "{call.params["url"]}"')
    of_role = {
        section: {name: end.as_dict() for name, end in charm.endpoints.items() if end.role == role}
        for section, role in (("provides", "provider"), ("requires", "requirer"), ("peers", "peer"))
    }
    metadata: dict[str, Any] = {
        "name": charm.name,
        "summary": charm.description,
        "description": charm.description,
        "subordinate": False,
        **{section: ends for section, ends in of_role.items() if ends},
        "min-juju-version": "0.0.0",
    }
    base = {"name": "ubuntu", "channel": "24.04/stable", "architectures": ["amd64"]}
    return {
        "revision": charm.revision,
        "url": charm.full_url,
        "config": {
            name: {key: option[key] for key in ("type", "description", "default") if key in option}
            for name, option in charm.config.items()
        },
        "meta": metadata,
        "actions": {"specs": {name: spec(name, fields) for name, fields in charm.actions.items()}},
        "manifest": {"bases": [base]},
    }


@method("ModelConfig", "ModelGet", "read")
def _model_config(call: Call) -> dict[str, Any]:
    known: dict[str, Any] = {
        "agent-version": VERSION,
        "default-base": "",
        "logging-config": "<root>=INFO",
        "name": call.model.name,
        "type": "manual",
        "uuid": call.model.uuid,
    }
    config = {key: {"value": value, "source": "model"} for key, value in known.items()}
    changed = {key: {"value": value, "source": "model"} for key, value in call.model.config.items()}
    return {"config": config | changed}


@method("ModelConfig", "ModelSet", "admin")
def _set_model_config(call: Call) -> dict[str, Any]:
    call.model.config |= call.params["config"]
    return {}


@method("ModelConfig", "GetModelConstraints", "read")
def _model_constraints(_call: Call) -> dict[str, Any]:
    return {"constraints": {}}
