"""The facades of a unit's agent: Uniter, and its watchers of the unit and its neighbours.

Shapes are those of rpc/params and apiserver/facades/agent/uniter of Juju 4.0. There are no hooks, secrets, storage
or actions in a simulator: what watches them never changes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lab.juju.machines import unit_name
from lab.juju.methods import facade, method
from lab.juju.model import Endpoint, Refused, Relation, Status, Unit, not_found, permission_denied
from lab.juju.rpc import Call, for_each
from lab.juju.watchers import Topic, Watcher, merge_names, merge_notice

_SHA_OF_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_NO_PROXY = {"no-proxy": "127.0.0.1,localhost,::1"}

facade("Uniter", "unit")
facade("SecretsManager", "unit")
facade("Logger", "unit", "machine")
facade("RetryStrategy", "unit", "machine")
facade("NotifyWatcher")
facade("StringsWatcher")
facade("RelationUnitsWatcher", "unit", "machine")


# -- watchers ------------------------------------------------------------------------------------


@method("NotifyWatcher", "Next")
def _next_notice(call: Call) -> None:
    _watcher(call).next(lambda _: call.answer({}))


@method("StringsWatcher", "Next")
def _next_strings(call: Call) -> None:
    _watcher(call).next(lambda changes: call.answer({"watcher-id": "", "changes": changes}))


@method("RelationUnitsWatcher", "Next")
def _next_units(call: Call) -> None:
    _watcher(call).next(lambda changes: call.answer({"watcher-id": "", "changes": changes}))


@method("NotifyWatcher", "Stop")
@method("StringsWatcher", "Stop")
@method("RelationUnitsWatcher", "Stop")
def _stop(call: Call) -> dict[str, Any]:
    _watcher(call)
    call.session.end_watcher(call.id)
    return {}


def _watcher(call: Call) -> Watcher:
    watcher = call.session.watchers.get(call.id)
    if watcher is None:
        raise not_found(f'watcher "{call.id}"')
    return watcher


def _watch(call: Call, watcher: Watcher, topic: Topic | None = None) -> str:
    end = call.model.topics.watch(topic, watcher) if topic else None
    return call.session.new_watcher(watcher, end)


def _notices(call: Call) -> dict[str, Any]:
    return {"NotifyWatcherId": _watch(call, Watcher(merge_notice))}


@method("Uniter", "WatchUnit")
def _watch_unit(call: Call) -> dict[str, Any]:
    unit = _own_unit(call, str(call.params["tag"]))
    return {"NotifyWatcherId": _watch(call, Watcher(merge_notice), ("unit", unit.name))}


@method("Uniter", "WatchUnitResolveMode")
@method("Uniter", "WatchApplication")
@method("Uniter", "WatchForModelConfigChanges")
@method("Uniter", "WatchAPIHostPorts")
def _watch_something(call: Call) -> dict[str, Any]:
    return _notices(call)


@method("Logger", "WatchLoggingConfig")
@method("RetryStrategy", "WatchRetryStrategy")
def _watch_for_each(call: Call) -> dict[str, Any]:
    return {"results": [_notices(call) for _ in call.params["entities"]]}


@method("Uniter", "WatchConfigSettingsHash")
@method("Uniter", "WatchTrustConfigSettingsHash")
@method("Uniter", "WatchUnitAddressesHash")
def _watch_hash(call: Call) -> dict[str, Any]:
    return {
        "results": [
            {"watcher-id": _watch(call, Watcher(merge_names)), "changes": [_SHA_OF_NOTHING]}
            for _ in call.params["entities"]
        ]
    }


@method("Uniter", "WatchUnitStorageAttachments")
@method("Uniter", "WatchActionNotifications")
@method("SecretsManager", "WatchConsumedSecretsChanges")
def _watch_nothing(call: Call) -> dict[str, Any]:
    return {"results": [{"watcher-id": _watch(call, Watcher(merge_names))} for _ in call.params["entities"]]}


@method("Uniter", "WatchUnitRelations")
def _watch_unit_relations(call: Call) -> dict[str, Any]:
    def watch(unit: Unit) -> dict[str, Any]:
        topic = ("unit-relations", unit.application)
        keys = [relation.key for relation in call.model.relations_of(unit.application)]
        return {"watcher-id": _watch(call, Watcher(merge_names), topic)} | _if_any("changes", keys)

    return _for_each_unit(call, watch, {"watcher-id": ""})


@method("Uniter", "WatchRelationUnits")
def _watch_relation_units(call: Call) -> dict[str, Any]:
    def watch(unit: Unit, relation: Relation) -> dict[str, Any]:
        def merge(pending: Any, change: tuple[str, str]) -> Any:
            return _merge_units(pending, change, unit, relation)

        watcher = _watch(call, Watcher(merge), ("relation", str(relation.id)))
        return {"watcher-id": watcher, "changes": _counterparts(call, unit, relation)}

    return _for_each_relation(call, watch, {"watcher-id": "", "changes": {"changed": None}})


def _counterparts(call: Call, unit: Unit, relation: Relation) -> dict[str, Any]:
    """Return a watcher's first event: units in scope, and as departed, as in Juju 4.0.15, units not in scope yet."""
    applications = {name for name, _ in relation.ends if name != unit.application} or {unit.application}
    units = [
        other
        for name in applications
        for other in call.model.applications[name].units
        if _counterpart(unit, other, relation)
    ]
    changes: dict[str, Any] = {
        "changed": {name: {"version": 0} for name in units if name in relation.in_scope},
        "app-changed": dict.fromkeys(sorted(applications), 0),
    }
    return changes | _if_any("departed", [name for name in units if name not in relation.in_scope])


def _merge_units(pending: Any, change: tuple[str, str], unit: Unit, relation: Relation) -> Any:
    what, name = change
    if not _counterpart(unit, name, relation):
        return pending
    merged: dict[str, Any] = pending or {"changed": {}}
    if what == "entered":
        merged["changed"][name] = {"version": 1}
    else:
        merged["changed"].pop(name, None)
        merged["departed"] = merge_names(merged.get("departed"), [name])
    return merged


def _counterpart(unit: Unit, other: str, relation: Relation) -> bool:
    """Tell whether a unit sees another through a relation: a unit of the other end, or a peer."""
    application = other.partition("/")[0]
    return application != unit.application or (len(relation.ends) == 1 and other != unit.name)


# -- the unit ------------------------------------------------------------------------------------


@method("Uniter", "Refresh")
def _refresh(call: Call) -> dict[str, Any]:
    # These keys are Go's field names, because rpc/params has no others.
    found = _for_each_unit(call, lambda _: {"error": None})["results"]
    return {
        "Results": [
            {"Life": "" if one["error"] else "alive", "Resolved": "", "Error": one["error"]} for one in found
        ]
    }


@method("Uniter", "Life")
def _life(call: Call) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for entity in call.params["entities"]:
        tag = str(entity["tag"])
        name = unit_name(tag)
        application = tag.removeprefix("application-")
        unit = call.entity.id
        there = (name == unit and call.model.unit(unit)) or (
            application in call.model.applications and application == unit.partition("/")[0]
        )
        results.append({"life": "alive"} if there else {"life": "", "error": permission_denied().as_dict()})
    return {"results": results}


@method("Uniter", "UnitStatus")
def _unit_status(call: Call) -> dict[str, Any]:
    empty = {"id": "", "life": "", "status": "", "info": "", "data": None, "since": None}

    def describe(unit: Unit) -> dict[str, Any]:
        status = unit.workload or Status("waiting", "waiting for machine")
        return empty | {
            "status": status.status,
            "info": status.info,
            "data": status.data or None,
            "since": status.since,
        }

    return _for_each_unit(call, describe, empty)


@method("Uniter", "SetUnitStatus")
def _set_unit_status(call: Call) -> dict[str, Any]:
    return _set_status(call, "workload")


@method("Uniter", "SetAgentStatus")
def _set_agent_status(call: Call) -> dict[str, Any]:
    return _set_status(call, "agent")


def _set_status(call: Call, which: str) -> dict[str, Any]:
    def note(entity: dict[str, Any]) -> dict[str, Any]:
        unit = _own_unit(call, str(entity["tag"]))
        setattr(unit, which, Status(entity["status"], entity["info"], entity.get("data") or {}))
        return {}

    return {"results": for_each(call.params["entities"], note)}


@method("Uniter", "EnsureDead")
def _ensure_dead(call: Call) -> dict[str, Any]:
    def die(unit: Unit) -> dict[str, Any]:
        call.model.remove_unit(unit)
        return {}

    return _for_each_unit(call, die)


@method("Uniter", "GetPrincipal")
def _principal(call: Call) -> dict[str, Any]:
    return _strings(call, "", False)


@method("Uniter", "CharmURL")
def _charm_url(call: Call) -> dict[str, Any]:
    application = call.model.applications.get(call.entity.id.partition("/")[0])
    return _strings(call, application.charm.url if application else "", False)


def _strings(call: Call, result: str, ok: bool) -> dict[str, Any]:
    return {"results": [{"result": result, "ok": ok} for _ in call.params["entities"]]}


@method("Uniter", "State")
def _state(call: Call) -> dict[str, Any]:
    return _for_each_unit(call, lambda unit: _if_any("uniter-state", unit.state))


@method("Uniter", "SetState")
def _set_state(call: Call) -> dict[str, Any]:
    def keep(args: dict[str, Any]) -> dict[str, Any]:
        unit = _own_unit(call, str(args["tag"]))
        unit.state = str(args.get("uniter-state") or unit.state)
        return {}

    return {"results": for_each(call.params["args"], keep)}


@method("Uniter", "CommitHookChanges")
def _commit_hook_changes(call: Call) -> dict[str, Any]:
    return _for_each_unit(call, _nothing_more, named="args")


@method("Uniter", "SetCharm")
def _set_charm(call: Call) -> dict[str, Any]:
    return _for_each_unit(call, _nothing_more)


@method("Uniter", "UnitStorageAttachments")
def _storage(call: Call) -> dict[str, Any]:
    return {"results": [{"result": {"ids": []}} for _ in call.params["entities"]]}


@method("Uniter", "CurrentModel")
def _current_model(call: Call) -> dict[str, Any]:
    return {"name": call.model.name, "uuid": call.model.uuid, "type": "iaas"}


@method("Uniter", "GetUnitContext")
def _unit_context(call: Call) -> dict[str, Any]:
    _own_unit(call, str(call.params["tag"]))
    setup = call.session.controller.setup
    return {
        "api-addresses": [f"{address}:{setup.port}" for address in setup.addresses],
        "cloud-api-version": "",
        "legacy-proxy-settings": _NO_PROXY,
        "juju-proxy-settings": _NO_PROXY,
        "charm-tracing-config": {},
    }


# -- relations -----------------------------------------------------------------------------------


@method("Uniter", "RelationsStatus")
def _relations_status(call: Call) -> dict[str, Any]:
    def statuses(unit: Unit) -> dict[str, Any]:
        return {
            "results": [
                {
                    "relation-tag": _relation_tag(relation.key),
                    "in-scope": unit.name in relation.in_scope,
                    "suspended": False,
                }
                for relation in call.model.relations_of(unit.application)
            ]
        }

    return _for_each_unit(call, statuses, {"results": None})


@method("Uniter", "Relation")
def _relation(call: Call) -> dict[str, Any]:
    def describe(unit: Unit, relation: Relation) -> dict[str, Any]:
        return _described(call, relation, unit.application)

    return _for_each_relation(call, describe, _NO_RELATION)


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
        call.model.enter(relation, unit, {})  # a hollow machine has no address
        return {}

    return _for_each_relation(call, enter)


@method("Uniter", "LeaveScope")
def _leave_scope(call: Call) -> dict[str, Any]:
    def leave(unit: Unit, relation: Relation) -> dict[str, Any]:
        call.model.leave(relation, unit.name)
        return {}

    return _for_each_relation(call, leave)


@method("Uniter", "SetRelationStatus")
def _set_relation_status(call: Call) -> dict[str, Any]:
    def note(args: dict[str, Any]) -> dict[str, Any]:
        unit = _own_unit(call, str(args["unit-tag"]))
        relation = call.model.relations.get(args["relation-id"])
        if relation is None:
            raise permission_denied()
        if call.model.leases.holder(unit.application) != unit.name:
            raise Refused("checking lease token: lease not held")
        relation.status = Status(args["status"], args.get("message", ""))
        return {}

    return {"results": for_each(call.params["args"], note)}


@method("Uniter", "ReadRemoteSettings")
def _read_remote_settings(call: Call) -> dict[str, Any]:
    def read(pair: dict[str, Any]) -> dict[str, Any]:
        _unit, relation = _unit_and_relation(call, pair["local-unit"], pair["relation"])
        remote = unit_name(str(pair["remote-unit"]))
        if remote not in relation.in_scope:
            raise Refused("relation unit not found")
        return {"settings": relation.in_scope[remote]}

    return {"results": for_each(call.params["relation-unit-pairs"], read, {"settings": None})}


# -- whose, and which ----------------------------------------------------------------------------


def _own_unit(call: Call, tag: str) -> Unit:
    """Return the unit of a tag, if it is the one that asks."""
    name = call.entity.id
    if unit_name(tag) != name:
        raise permission_denied()
    unit = call.model.unit(name)
    if unit is None:
        raise not_found(f'unit "{name}"')
    return unit


def _for_each_unit(
    call: Call,
    answer: Callable[[Unit], dict[str, Any]],
    refused: dict[str, Any] | None = None,
    *,
    named: str = "entities",
) -> dict[str, Any]:
    found = for_each(call.params[named], lambda entity: answer(_own_unit(call, str(entity["tag"]))), refused)
    return {"results": found}


def _for_each_relation(
    call: Call, answer: Callable[[Unit, Relation], dict[str, Any]], refused: dict[str, Any] | None = None
) -> dict[str, Any]:
    def one(params: dict[str, Any]) -> dict[str, Any]:
        return answer(*_unit_and_relation(call, params["unit"], params["relation"]))

    return {"results": for_each(call.params["relation-units"], one, refused)}


def _nothing_more(_unit: Unit) -> dict[str, Any]:
    return {}


def _unit_and_relation(call: Call, tag: object, relation_tag: object) -> tuple[Unit, Relation]:
    unit = _own_unit(call, str(tag))
    for relation in call.model.relations_of(unit.application):
        if _relation_tag(relation.key) == relation_tag:
            return unit, relation
    raise permission_denied()


def _relation_tag(key: str) -> str:
    """Return a relation's tag, as names.NewRelationTag: "a:x b:y" is relation-a.x#b.y."""
    return "relation-" + key.replace(":", ".").replace(" ", "#")


def _if_any(key: str, value: Any) -> dict[str, Any]:
    """Return a field that Go leaves out if it is empty."""
    return {key: value} if value else {}
