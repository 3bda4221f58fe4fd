"""The Uniter facade's relations: scopes, settings, and watchers of what the other side writes.

Shapes and refusals are those of apiserver/facades/agent/uniter of Juju 4.0. A watcher tells of a unit of the other
side with the version of its settings, or that it has departed; an application likewise. A hollow machine has no
address, so that entering a scope writes no settings.
"""

from __future__ import annotations

from typing import Any

from lab.juju.callers import (
    for_each_relation,
    for_each_unit,
    if_any,
    leads,
    own_unit,
    relation_of,
)
from lab.juju.charm import Endpoint
from lab.juju.machines import unit_name
from lab.juju.methods import method
from lab.juju.model import Unit
from lab.juju.refusals import Refused, not_leader, permission_denied
from lab.juju.relation import Relation
from lab.juju.rpc import Call, for_each
from lab.juju.statuses import Status
from lab.juju.watchers import Watcher, merge_names
from lab.juju.watching import watch


@method("Uniter", "WatchUnitRelations")
def _watch_unit_relations(call: Call) -> dict[str, Any]:
    def begin(unit: Unit) -> dict[str, Any]:
        keys = [relation.key for relation in call.model.relations_of(unit.application)]
        number = watch(call, Watcher(merge_names), ("unit-relations", unit.application))
        return {"watcher-id": number} | if_any("changes", keys)

    return for_each_unit(call, begin, {"watcher-id": ""})


@method("Uniter", "WatchRelationUnits")
def _watch_relation_units(call: Call) -> dict[str, Any]:
    def begin(unit: Unit, relation: Relation) -> dict[str, Any]:
        def merge(pending: list[str] | None, change: list[str]) -> list[str] | None:
            return merge_names(pending, [name for name in change if _sees(unit, name, relation)])

        watcher = Watcher(merge, lambda names: _changes(names, relation))
        number = watch(call, watcher, ("relation", str(relation.id)))
        return {"watcher-id": number, "changes": _first_changes(call, unit, relation)}

    return for_each_relation(call, begin, {"watcher-id": "", "changes": {"changed": None}})


def _first_changes(call: Call, unit: Unit, relation: Relation) -> dict[str, Any]:
    """Return a watcher's first event: units in scope, and as departed, as in Juju 4.0.15, units not in scope yet."""
    applications = {name for name, _ in relation.ends if name != unit.application} or {unit.application}
    there = [call.model.applications[name] for name in applications if name in call.model.applications]
    units = [name for application in there for name in application.units if _sees(unit, name, relation)]
    return _changes([*sorted(applications), *units], relation)


def _changes(names: list[str], relation: Relation) -> dict[str, Any]:
    """Return an event about units ("app/0") and applications ("app") as they are now."""
    units = [name for name in names if "/" in name]
    applications = [name for name in names if "/" not in name]
    changed = {name: {"version": bag.version} for name in units if (bag := relation.in_scope.get(name))}
    return (
        {"changed": changed}
        | if_any("app-changed", {name: relation.of_application(name).version for name in applications})
        | if_any("departed", [name for name in units if name not in changed])
    )


def _sees(unit: Unit, other: str, relation: Relation) -> bool:
    """Tell whether a unit is told of another unit, or of an application: those of the other end, or its peers."""
    application = other.partition("/")[0]
    return application != unit.application or (len(relation.ends) == 1 and other != unit.name)


@method("Uniter", "RelationsStatus")
def _relations_status(call: Call) -> dict[str, Any]:
    def statuses(unit: Unit) -> dict[str, Any]:
        return {
            "results": [
                {"relation-tag": relation.tag, "in-scope": unit.name in relation.in_scope, "suspended": False}
                for relation in call.model.relations_of(unit.application)
            ]
        }

    return for_each_unit(call, statuses, {"results": None})


@method("Uniter", "Relation")
def _relation(call: Call) -> dict[str, Any]:
    def describe(unit: Unit, relation: Relation) -> dict[str, Any]:
        return _described(call, relation, unit.application)

    return for_each_relation(call, describe, _NO_RELATION)


@method("Uniter", "RelationById")
def _relation_by_id(call: Call) -> dict[str, Any]:
    application = call.entity.id.partition("/")[0]

    def describe(number: int) -> dict[str, Any]:
        relation = call.model.relations.get(number)
        if relation is None or all(name != application for name, _ in relation.ends):
            raise permission_denied()
        return _described(call, relation, application)

    return {"results": for_each(call.params["relation-ids"], describe, _NO_RELATION)}


_NO_RELATION: dict[str, Any] = {
    "life": "",
    "id": 0,
    "key": "",
    "endpoint": {"application-name": "", "relation": Endpoint("", "", "", "").as_dict()},
    "other-application": {"model-uuid": "", "application": ""},
}


def _described(call: Call, relation: Relation, application: str) -> dict[str, Any]:
    own = next(endpoint for name, endpoint in relation.ends if name == application)
    other = next((name for name, _ in relation.ends if name != application), application)
    return {
        "life": "alive",
        "id": relation.id,
        "key": relation.key,
        "endpoint": {"application-name": application, "relation": own.as_dict()},
        "other-application": {"model-uuid": call.model.uuid, "application": other},
    }


@method("Uniter", "EnterScope")
def _enter_scope(call: Call) -> dict[str, Any]:
    def enter(unit: Unit, relation: Relation) -> dict[str, Any]:
        call.model.enter(relation, unit, {})
        return {}

    return for_each_relation(call, enter)


@method("Uniter", "LeaveScope")
def _leave_scope(call: Call) -> dict[str, Any]:
    def leave(unit: Unit, relation: Relation) -> dict[str, Any]:
        if unit.name not in relation.in_scope:
            raise Refused(f'unit "{unit.name}": relation unit not found')
        call.model.leave(relation, unit.name)
        return {}

    return for_each_relation(call, leave)


@method("Uniter", "SetRelationStatus")
def _set_relation_status(call: Call) -> dict[str, Any]:
    def note(args: dict[str, Any]) -> dict[str, Any]:
        unit = own_unit(call, str(args["unit-tag"]))
        relation = call.model.relations.get(args["relation-id"])
        if relation is None:
            raise permission_denied()
        if not leads(call, unit):
            raise not_leader()
        relation.status = Status(args["status"], args.get("message", ""))
        return {}

    return {"results": for_each(call.params["args"], note)}


@method("Uniter", "ReadSettings")
def _read_settings(call: Call) -> dict[str, Any]:
    def read(pair: dict[str, Any]) -> dict[str, Any]:
        own = call.entity.id
        application = own.partition("/")[0]
        if pair["unit"] == f"application-{application}":
            unit = own_unit(call, f"unit-{own.replace('/', '-')}")
            relation = relation_of(call, unit, pair["relation"])
            return {"settings": _of_own_application(call, unit, relation)}
        unit = own_unit(call, str(pair["unit"]))
        return {"settings": _of_unit(relation_of(call, unit, pair["relation"]), unit.name)}

    return {"results": for_each(call.params["relation-units"], read, {"settings": None})}


@method("Uniter", "ReadLocalApplicationSettings")
def _read_local_application_settings(call: Call) -> dict[str, Any]:
    unit = own_unit(call, str(call.params["unit"]))
    return {"settings": _of_own_application(call, unit, relation_of(call, unit, call.params["relation"]))}


@method("Uniter", "ReadRemoteSettings")
def _read_remote_settings(call: Call) -> dict[str, Any]:
    def read(pair: dict[str, Any]) -> dict[str, Any]:
        unit = own_unit(call, str(pair["local-unit"]))
        relation = relation_of(call, unit, pair["relation"])
        remote = str(pair["remote-unit"])
        application = remote.removeprefix("application-")
        if application != remote:
            if all(name != application for name, _ in relation.ends):
                raise Refused(f'getting application "{application}" not found')
            return {"settings": dict(relation.of_application(application).settings)}
        return {"settings": _of_unit(relation, unit_name(remote) or "")}

    return {"results": for_each(call.params["relation-unit-pairs"], read, {"settings": None})}


def _of_unit(relation: Relation, unit: str) -> dict[str, str]:
    settings = relation.settings_of(unit)
    if settings is None:
        raise _no_relation_unit()
    return dict(settings)


def _of_own_application(call: Call, unit: Unit, relation: Relation) -> dict[str, str]:
    if not leads(call, unit):
        raise permission_denied()
    return dict(relation.of_application(unit.application).settings)


def _no_relation_unit() -> Refused:
    return Refused("relation unit not found")
