"""The Application facade: deploy, add units, configure, expose, relate, destroy.

Hollow things are removed at once, as by force.
"""

from __future__ import annotations

from typing import Any

from lab.juju.machines import unit_name, unit_tag
from lab.juju.methods import facade, method
from lab.juju.model import Application, Model, Unit
from lab.juju.refusals import Refused, not_found
from lab.juju.rpc import Call, for_each

facade("Application", "user")

_EVERYWHERE = {"expose-to-cidrs": ["0.0.0.0/0", "::/0"]}
_TRUST = {
    "default": False,
    "description": "Does this application have access to trusted credentials",
    "source": "default",
    "type": "bool",
    "value": False,
}


@method("Application", "Deploy", "write")
def _deploy(call: Call) -> dict[str, Any]:
    def deploy(params: dict[str, Any]) -> dict[str, Any]:
        try:
            _deploy_one(call.model, params)
        except Refused as refusal:
            name = params["application"]
            raise Refused(f'cannot deploy "{name}": {refusal}', refusal.code) from None
        return {}

    return {"results": for_each(call.params["applications"], deploy)}


def _deploy_one(model: Model, params: dict[str, Any]) -> None:
    origin = params.get("charm-origin")
    if origin is None:
        raise Refused("nil charm origin not valid", "not valid")
    placement: list[dict[str, str] | None] = params.get("placement") or []
    for place in placement:
        if _machine(place) not in (None, *model.machines):
            name = _machine(place)
            raise Refused(
                f'preparing application args: making unit args: getting machine "{name}" for unit placement '
                f'directive: machine with name "{name}" does not exist'
            )
    application = model.deploy(
        params["application"],
        params["charm-url"],
        {"name": origin["base"]["name"], "channel": origin["base"]["channel"].partition("/")[0]},
        params.get("config") or {},
        params.get("constraints") or {},
    )
    _add_units(model, application, int(params["num-units"]), [_machine(place) for place in placement])


def _machine(place: dict[str, str] | None) -> str | None:
    """Return the machine of a placement; None for a new machine."""
    return None if place is None or place["scope"] != "#" else place["directive"]


def _add_units(model: Model, application: Application, count: int, wanted: list[str | None]) -> list[Unit]:
    units: list[Unit] = []
    for place in range(count):
        machine = wanted[place] if place < len(wanted) else None
        if machine is None:
            base = application.base
            machine = model.add_machine("", "", base, {"arch": "amd64"}, []).id
        units.append(model.add_unit(application, machine))
    return units


@method("Application", "AddUnits", "write")
def _more_units(call: Call) -> dict[str, Any]:
    application = _application(call.model, str(call.params["application"]))
    count = int(call.params["num-units"])
    if count < 1:
        raise Refused("must add at least one unit")
    places: list[dict[str, Any]] = call.params.get("placement") or []
    wanted = [_machine(place) for place in places]
    for name in wanted:
        if name is not None and name not in call.model.machines:
            raise Refused(f'getting machine "{name}" for unit placement directive: machine not found')
    return {"units": [unit.name for unit in _add_units(call.model, application, count, wanted)]}


@method("Application", "Get", "read")
def _get(call: Call) -> dict[str, Any]:
    application = call.model.applications.get(str(call.params["application"]))
    if application is None:
        raise not_found(f"application {call.params['application']}")
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


@method("Application", "SetConfigs", "write")
def _set_configs(call: Call) -> dict[str, Any]:
    def configure(params: dict[str, Any]) -> dict[str, Any]:
        if params.get("config-yaml"):
            raise Refused("config yaml not supported not implemented", "not implemented")
        application = _application(call.model, str(params["application"]))
        changes: dict[str, str] = params.get("config") or {}
        changes = {name: text for name, text in changes.items() if name != "trust"}
        call.model.configure(
            application, {n: _value(application, n, text) for n, text in changes.items()}, []
        )
        return {}

    return {"results": for_each(call.params["Args"], configure)}


def _value(application: Application, name: str, text: str) -> Any:
    """Return an option's value from its text. Raises Refused."""
    option = application.charm.config.get(name)
    if option is None:
        raise Refused(f'invalid application config: unknown option "{name}"', "not valid")
    kind = option.get("type", "string")
    try:
        if kind == "boolean":
            return {"true": True, "false": False}[text.lower()]
        return {"int": int, "float": float}.get(kind, str)(text)
    except (KeyError, ValueError):
        raise Refused(f'option "{name}" expected {kind}, got "{text}"') from None


@method("Application", "UnsetApplicationsConfig", "write")
def _unset_configs(call: Call) -> dict[str, Any]:
    def unset(params: dict[str, Any]) -> dict[str, Any]:
        application = call.model.applications.get(str(params["application"]))
        if application is None:
            raise not_found(f"application {params['application']}")
        call.model.configure(application, {}, params.get("options") or [])
        return {}

    return {"results": for_each(call.params["Args"], unset)}


@method("Application", "Expose", "write")
def _expose(call: Call) -> dict[str, Any]:
    application = _exposable(call)
    wanted: dict[str, Any] = call.params.get("exposed-endpoints") or {"": {}}
    exposed = {name: whom if any(whom.values()) else _EVERYWHERE for name, whom in wanted.items()}
    application.exposed = (application.exposed or {}) | exposed
    return {}


@method("Application", "Unexpose", "write")
def _unexpose(call: Call) -> dict[str, Any]:
    application = _exposable(call)
    ends: list[str] = call.params.get("exposed-endpoints") or list(application.exposed or {})
    left = {name: whom for name, whom in (application.exposed or {}).items() if name not in ends}
    application.exposed = left or None
    return {}


def _exposable(call: Call) -> Application:
    application = call.model.applications.get(str(call.params["application"]))
    if application is None:
        raise Refused(f'getting application "{call.params["application"]}" not found')
    return application


@method("Application", "GetCharmURLOrigin", "read")
def _charm_origin(call: Call) -> dict[str, Any]:
    application = _application(call.model, str(call.params["application"]))
    charm = application.charm
    return {"url": charm.url, "charm-origin": charm.origin(application.base)}


@method("Application", "AddRelation", "write")
def _add_relation(call: Call) -> dict[str, Any]:
    ends: list[str] = call.params["endpoints"]
    if len(ends) != 2:
        raise Refused("a relation should have exactly two endpoints", "bad request")
    relation = call.model.relate(*ends)
    return {"endpoints": {name: endpoint.as_dict() for name, endpoint in relation.ends}}


@method("Application", "DestroyRelation", "write")
def _destroy_relation(call: Call) -> dict[str, Any]:
    ends: list[str] = call.params.get("endpoints") or []
    for relation in list(call.model.relations.values()):
        named = {f"{name}:{endpoint.name}" for name, endpoint in relation.ends}
        named |= {name for name, _ in relation.ends}
        if set(ends) <= named if ends else relation.id == call.params.get("relation-id"):
            call.model.remove_relation(relation)
            return {}
    number = call.params.get("relation-id", 0)
    raise not_found(f"relation with endpoints [{' '.join(ends)}] or id {number}")


@method("Application", "DestroyApplication", "write")
def _destroy_applications(call: Call) -> dict[str, Any]:
    def destroy(params: dict[str, Any]) -> dict[str, Any]:
        name = str(params["application-tag"]).removeprefix("application-")
        application = _application(call.model, name)
        info: dict[str, Any] = {}
        if application.units:
            info["destroyed-units"] = [{"tag": unit_tag(unit)} for unit in application.units]
        if not params.get("dry-run"):
            call.model.remove_application(application)
        return {"info": info}

    return {"results": for_each(call.params["applications"], destroy)}


@method("Application", "DestroyUnit", "write")
def _destroy_units(call: Call) -> dict[str, Any]:
    def destroy(params: dict[str, Any]) -> dict[str, Any]:
        name = unit_name(str(params["unit-tag"]))
        unit = call.model.unit(name) if name else None
        if unit is None:
            application = (name or "").partition("/")[0]
            what = (
                f'unit "{name}"' if application in call.model.applications else f"application {application}"
            )
            raise not_found(what)
        if not params.get("dry-run"):
            call.model.remove_unit(unit)
        return {"info": {}}

    return {"results": for_each(call.params["units"], destroy)}


def _application(model: Model, name: str) -> Application:
    application = model.applications.get(name)
    if application is None:
        raise not_found(f'application "{name}"')
    return application
