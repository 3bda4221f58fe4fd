"""The Application facade: deploy, add units, relate, destroy. Hollow things go at once, as forced ones do."""

from __future__ import annotations

from typing import Any

from tests.lab.juju_machines import unit_name, unit_tag
from tests.lab.juju_model import Application, Model, Refused, Unit, not_found
from tests.lab.juju_rpc import Call, facade, method

facade("Application", "user")

_TRUST = {
    "default": False,
    "description": "Does this application have access to trusted credentials",
    "source": "default",
    "type": "bool",
    "value": False,
}


@method("Application", "Deploy")
def _deploy(call: Call) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for params in call.params["applications"]:
        try:
            _deploy_one(call.model, params)
        except Refused as refusal:
            name = params["application"]
            results.append({"error": Refused(f'cannot deploy "{name}": {refusal}', refusal.code).as_dict()})
        else:
            results.append({})
    return {"results": results}


def _deploy_one(model: Model, params: dict[str, Any]) -> None:
    origin = params.get("charm-origin")
    if origin is None:
        raise Refused("nil charm origin not valid", "not valid")
    placement: list[dict[str, str] | None] = params.get("placement") or []
    wanted = [_machine(model, place) for place in placement]
    application = model.deploy(
        params["application"],
        params["charm-url"],
        {"name": origin["base"]["name"], "channel": origin["base"]["channel"].removesuffix("/stable")},
        params.get("config") or {},
        params.get("constraints") or {},
    )
    _add_units(model, application, int(params["num-units"]), wanted)


def _machine(model: Model, place: dict[str, str] | None) -> str | None:
    """The machine of a placement; None stands for one of its own."""
    if place is None or place["scope"] != "#":
        return None
    if place["directive"] not in model.machines:
        raise not_found(f'machine "{place["directive"]}"')
    return place["directive"]


def _add_units(model: Model, application: Application, count: int, wanted: list[str | None]) -> list[Unit]:
    units: list[Unit] = []
    for place in range(count):
        machine = wanted[place] if place < len(wanted) else None
        if machine is None:
            base = application.base
            machine = model.add_machine("", "", base, {"arch": "amd64"}, []).id
        units.append(model.add_unit(application, machine))
    return units


@method("Application", "AddUnits")
def _more_units(call: Call) -> dict[str, Any]:
    application = _application(call.model, str(call.params["application"]))
    count = int(call.params["num-units"])
    if count < 1:
        raise Refused("must add at least one unit")
    wanted = [_machine(call.model, place) for place in call.params.get("placement") or []]
    return {"units": [unit.name for unit in _add_units(call.model, application, count, wanted)]}


@method("Application", "Get")
def _get(call: Call) -> dict[str, Any]:
    application = _application(call.model, str(call.params["application"]))
    options = {
        name: {
            "default": option.get("default"),
            "description": option.get("description", ""),
            "source": "user" if name in application.config else "default",
            "type": option.get("type", "string"),
            "value": application.config.get(name, option.get("default")),
        }
        for name, option in application.charm.config.items()
    }
    bindings = {"": "alpha"} | dict.fromkeys(application.charm.endpoints, "alpha")
    return {
        "application": application.name,
        "charm": application.charm.name,
        "config": options,
        "application-config": {"trust": _TRUST},
        "constraints": {"arch": "amd64"} | application.constraints,
        "base": application.base,
        "channel": "",
        "endpoint-bindings": bindings,
    }


@method("Application", "GetCharmURLOrigin")
def _charm_origin(call: Call) -> dict[str, Any]:
    application = _application(call.model, str(call.params["application"]))
    charm = application.charm
    return {"url": charm.url, "charm-origin": charm.origin(application.base)}


@method("Application", "AddRelation")
def _add_relation(call: Call) -> dict[str, Any]:
    ends: list[str] = call.params["endpoints"]
    if len(ends) != 2:
        raise Refused("a relation should have exactly two endpoints", "bad request")
    relation = call.model.relate(*ends)
    return {"endpoints": {name: endpoint.as_dict() for name, endpoint in relation.ends}}


@method("Application", "DestroyRelation")
def _destroy_relation(call: Call) -> dict[str, Any]:
    ends: list[str] = call.params.get("endpoints") or []
    for relation in list(call.model.relations.values()):
        named = {f"{name}:{endpoint.name}" for name, endpoint in relation.ends}
        named |= {name for name, _ in relation.ends}
        if set(ends) <= named if ends else relation.id == call.params.get("relation-id"):
            call.model.remove_relation(relation)
            return {}
    raise not_found(f"relation {' '.join(ends) or call.params.get('relation-id')}")


@method("Application", "DestroyApplication")
def _destroy_applications(call: Call) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for params in call.params["applications"]:
        name = str(params["application-tag"]).removeprefix("application-")
        application = call.model.applications.get(name)
        if application is None:
            results.append({"error": not_found(f'application "{name}"').as_dict()})
            continue
        info: dict[str, Any] = {}
        if application.units:
            info["destroyed-units"] = [{"tag": unit_tag(unit)} for unit in application.units]
        if not params.get("dry-run"):
            call.model.remove_application(application)
        results.append({"info": info})
    return {"results": results}


@method("Application", "DestroyUnit")
def _destroy_units(call: Call) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for params in call.params["units"]:
        name = unit_name(str(params["unit-tag"]))
        unit = call.model.unit(name) if name else None
        if unit is None:
            application = (name or "").partition("/")[0]
            what = (
                f'unit "{name}"' if application in call.model.applications else f"application {application}"
            )
            results.append({"error": not_found(what).as_dict()})
            continue
        if not params.get("dry-run"):
            call.model.remove_unit(unit)
        results.append({"info": {}})
    return {"results": results}


def _application(model: Model, name: str) -> Application:
    application = model.applications.get(name)
    if application is None:
        raise not_found(f'application "{name}"')
    return application
