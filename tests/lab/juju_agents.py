"""What a unit's agent asks: the Uniter facade, and the watchers of it and of its neighbours.

Shapes are those of rpc/params and apiserver/facades/agent/uniter of Juju 4.0. There are no hooks, secrets, storage
or actions in a simulator: what watches them never changes.
"""

from __future__ import annotations

from typing import Any

from tests.lab.juju_machines import unit_name
from tests.lab.juju_model import Endpoint, Refused, Relation, Status, Unit, not_found, permission_denied
from tests.lab.juju_rpc import Call, facade, method
from tests.lab.juju_watchers import Topic, Watcher, merge_names, merge_notice

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
    if isinstance(unit, Refused):
        raise unit
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
    results: list[dict[str, Any]] = []
    for unit in _units(call):
        if isinstance(unit, Refused):
            results.append({"watcher-id": "", "error": unit.as_dict()})
            continue
        topic = ("unit-relations", unit.application)
        keys = [relation.key for relation in call.model.relations_of(unit.application)]
        results.append({"watcher-id": _watch(call, Watcher(merge_names), topic)} | _if_any("changes", keys))
    return {"results": results}


@method("Uniter", "WatchRelationUnits")
def _watch_relation_units(call: Call) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for params in call.params["relation-units"]:
        try:
            unit, relation = _unit_and_relation(call, params)
        except Refused as refusal:
            no_changes: dict[str, Any] = {"changed": None}
            results.append({"watcher-id": "", "changes": no_changes, "error": refusal.as_dict()})
            continue

        def merge(
            pending: Any, change: tuple[str, str], unit: Unit = unit, relation: Relation = relation
        ) -> Any:
            return _merge_units(pending, change, unit, relation)

        watcher = _watch(call, Watcher(merge), ("relation", str(relation.id)))
        changes = _counterparts(call, unit, relation)
        results.append({"watcher-id": watcher, "changes": changes})
    return {"results": results}


def _counterparts(call: Call, unit: Unit, relation: Relation) -> dict[str, Any]:
    """A watcher's first event: who is in scope, and, as Juju 4.0.15 does, who is not yet as departed."""
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
    """Whether a unit sees another through a relation: the other end's units, or a peer's fellows."""
    application = other.partition("/")[0]
    return application != unit.application or (len(relation.ends) == 1 and other != unit.name)


# -- the unit ------------------------------------------------------------------------------------


@method("Uniter", "Refresh")
def _refresh(call: Call) -> dict[str, Any]:
    # These keys are Go's own: rpc/params names them no other way.
    return {
        "Results": [
            {"Life": "", "Resolved": "", "Error": unit.as_dict()}
            if isinstance(unit, Refused)
            else {"Life": "alive", "Resolved": "", "Error": None}
            for unit in _units(call)
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
    results: list[dict[str, Any]] = []
    for unit in _units(call):
        empty = {"id": "", "life": "", "status": "", "info": "", "data": None, "since": None}
        if isinstance(unit, Refused):
            results.append(empty | {"error": unit.as_dict()})
            continue
        status = unit.workload or Status("waiting", "waiting for machine")
        results.append(
            empty
            | {
                "status": status.status,
                "info": status.info,
                "data": status.data or None,
                "since": status.since,
            }
        )
    return {"results": results}


@method("Uniter", "SetUnitStatus")
def _set_unit_status(call: Call) -> dict[str, Any]:
    return _set_status(call, "workload")


@method("Uniter", "SetAgentStatus")
def _set_agent_status(call: Call) -> dict[str, Any]:
    return _set_status(call, "agent")


def _set_status(call: Call, which: str) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for unit, entity in zip(_units(call), call.params["entities"], strict=True):
        if isinstance(unit, Refused):
            results.append({"error": unit.as_dict()})
        else:
            setattr(unit, which, Status(entity["status"], entity["info"], entity.get("data") or {}))
            results.append({})
    return {"results": results}


@method("Uniter", "EnsureDead")
def _ensure_dead(call: Call) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for unit in _units(call):
        if isinstance(unit, Refused):
            results.append({"error": unit.as_dict()})
        else:
            call.model.remove_unit(unit)
            results.append({})
    return {"results": results}


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
    return {
        "results": [
            {"error": unit.as_dict()} if isinstance(unit, Refused) else _if_any("uniter-state", unit.state)
            for unit in _units(call)
        ]
    }


@method("Uniter", "SetState")
def _set_state(call: Call) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for args in call.params["args"]:
        unit = _own_unit(call, str(args["tag"]))
        if isinstance(unit, Refused):
            results.append({"error": unit.as_dict()})
        else:
            unit.state = str(args.get("uniter-state") or unit.state)
            results.append({})
    return {"results": results}


@method("Uniter", "CommitHookChanges")
def _commit_hook_changes(call: Call) -> dict[str, Any]:
    units = [_own_unit(call, str(args["tag"])) for args in call.params["args"]]
    return {"results": [{"error": u.as_dict()} if isinstance(u, Refused) else {} for u in units]}


@method("Uniter", "SetCharm")
def _set_charm(call: Call) -> dict[str, Any]:
    return {
        "results": [{"error": unit.as_dict()} if isinstance(unit, Refused) else {} for unit in _units(call)]
    }


@method("Uniter", "UnitStorageAttachments")
def _storage(call: Call) -> dict[str, Any]:
    return {"results": [{"result": {"ids": []}} for _ in call.params["entities"]]}


@method("Uniter", "CurrentModel")
def _current_model(call: Call) -> dict[str, Any]:
    return {"name": call.model.name, "uuid": call.model.uuid, "type": "iaas"}


@method("Uniter", "GetUnitContext")
def _unit_context(call: Call) -> dict[str, Any]:
    unit = _own_unit(call, str(call.params["tag"]))
    if isinstance(unit, Refused):
        raise unit
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
    results: list[dict[str, Any]] = []
    for unit in _units(call):
        if isinstance(unit, Refused):
            results.append({"results": None, "error": unit.as_dict()})
            continue
        statuses = [
            {
                "relation-tag": _relation_tag(relation.key),
                "in-scope": unit.name in relation.in_scope,
                "suspended": False,
            }
            for relation in call.model.relations_of(unit.application)
        ]
        results.append({"results": statuses})
    return {"results": results}


@method("Uniter", "Relation")
def _relation(call: Call) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for params in call.params["relation-units"]:
        try:
            unit, relation = _unit_and_relation(call, params)
        except Refused as refusal:
            results.append(_NO_RELATION | {"error": refusal.as_dict()})
        else:
            results.append(_described(call, relation, unit.application))
    return {"results": results}


@method("Uniter", "RelationById")
def _relation_by_id(call: Call) -> dict[str, Any]:
    application = call.entity.id.partition("/")[0]
    results: list[dict[str, Any]] = []
    for number in call.params["relation-ids"]:
        relation = call.model.relations.get(number)
        if relation is None or all(name != application for name, _ in relation.ends):
            results.append(_NO_RELATION | {"error": permission_denied().as_dict()})
        else:
            results.append(_described(call, relation, application))
    return {"results": results}


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
    results: list[dict[str, Any]] = []
    for params in call.params["relation-units"]:
        try:
            unit, relation = _unit_and_relation(call, params)
        except Refused as refusal:
            results.append({"error": refusal.as_dict()})
        else:
            call.model.enter(relation, unit, {})  # a hollow machine has no address to tell
            results.append({})
    return {"results": results}


@method("Uniter", "LeaveScope")
def _leave_scope(call: Call) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for params in call.params["relation-units"]:
        try:
            unit, relation = _unit_and_relation(call, params)
        except Refused as refusal:
            results.append({"error": refusal.as_dict()})
        else:
            call.model.leave(relation, unit.name)
            results.append({})
    return {"results": results}


@method("Uniter", "SetRelationStatus")
def _set_relation_status(call: Call) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for args in call.params["args"]:
        unit = _own_unit(call, str(args["unit-tag"]))
        relation = call.model.relations.get(args["relation-id"])
        if isinstance(unit, Refused) or relation is None:
            results.append({"error": permission_denied().as_dict()})
        elif call.model.leases.holder(unit.application) != unit.name:
            results.append({"error": Refused("checking lease token: lease not held").as_dict()})
        else:
            relation.status = Status(args["status"], args.get("message", ""))
            results.append({})
    return {"results": results}


@method("Uniter", "ReadRemoteSettings")
def _read_remote_settings(call: Call) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for pair in call.params["relation-unit-pairs"]:
        try:
            _unit, relation = _unit_and_relation(
                call, {"unit": pair["local-unit"], "relation": pair["relation"]}
            )
            remote = unit_name(str(pair["remote-unit"]))
            if remote not in relation.in_scope:
                raise Refused("relation unit not found")
        except Refused as refusal:
            results.append({"settings": None, "error": refusal.as_dict()})
        else:
            results.append({"settings": relation.in_scope[remote]})
    return {"results": results}


# -- whose, and which ----------------------------------------------------------------------------


def _own_unit(call: Call, tag: str) -> Unit | Refused:
    """The unit of a tag, if it is the one that asks."""
    name = call.entity.id
    if unit_name(tag) != name:
        return permission_denied()
    return call.model.unit(name) or not_found(f'unit "{name}"')


def _units(call: Call) -> list[Unit | Refused]:
    return [_own_unit(call, str(entity["tag"])) for entity in call.params["entities"]]


def _unit_and_relation(call: Call, params: dict[str, Any]) -> tuple[Unit, Relation]:
    unit = _own_unit(call, str(params["unit"]))
    if isinstance(unit, Refused):
        raise unit
    for relation in call.model.relations_of(unit.application):
        if _relation_tag(relation.key) == params["relation"]:
            return unit, relation
    raise permission_denied()


def _relation_tag(key: str) -> str:
    """As names.NewRelationTag: "a:x b:y" is relation-a.x#b.y."""
    return "relation-" + key.replace(":", ".").replace(" ", "#")


def _if_any(key: str, value: Any) -> dict[str, Any]:
    """A field that Go leaves out when it is empty."""
    return {key: value} if value else {}
