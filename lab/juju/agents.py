"""The facades of a unit's agent: Uniter for the unit itself, with its statuses, state and config.

Shapes are those of rpc/params and apiserver/facades/agent/uniter of Juju 4.0. There are no hooks and no storage in a
simulator: what watches them never changes. Relations, actions and secrets have modules of their own.
"""

from __future__ import annotations

from typing import Any

from lab.juju.callers import for_each_unit, if_any, leads, own_unit
from lab.juju.machines import unit_name, unit_tag
from lab.juju.methods import facade, method
from lab.juju.model import Unit
from lab.juju.refusals import Refused, permission_denied
from lab.juju.rpc import Call, for_each
from lab.juju.statuses import Status
from lab.juju.watchers import Watcher, merge_last, merge_names
from lab.juju.watching import notices, watch

_SHA_OF_NOTHING = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
_NO_PROXY = {"no-proxy": "127.0.0.1,localhost,::1"}
_KEPT = ("charm-state", "uniter-state", "relation-state", "storage-state", "secret-state")
"""What an agent keeps in the controller (SetUnitStateArg of rpc/params)."""
_WORKLOAD = ("unset", "unknown", "maintenance", "waiting", "blocked", "active", "terminated", "error")

facade("Logger", "unit", "machine")
facade("RetryStrategy", "unit", "machine")


# -- watchers ------------------------------------------------------------------------------------


@method("Uniter", "WatchUnit")
def _watch_unit(call: Call) -> dict[str, Any]:
    unit = own_unit(call, str(call.params["tag"]))
    return notices(call, ("unit", unit.name))


@method("Uniter", "WatchUnitResolveMode")
@method("Uniter", "WatchApplication")
@method("Uniter", "WatchForModelConfigChanges")
@method("Uniter", "WatchAPIHostPorts")
def _watch_something(call: Call) -> dict[str, Any]:
    return notices(call)


@method("Logger", "WatchLoggingConfig")
@method("RetryStrategy", "WatchRetryStrategy")
def _watch_for_each(call: Call) -> dict[str, Any]:
    return {"results": [notices(call) for _ in call.params["entities"]]}


@method("Uniter", "WatchConfigSettingsHash")
@method("Uniter", "WatchTrustConfigSettingsHash")
def _watch_config(call: Call) -> dict[str, Any]:
    def begin(unit: Unit) -> dict[str, Any]:
        watcher = Watcher(merge_last, lambda hashed: [hashed])
        number = watch(call, watcher, ("config", unit.application))
        return {"watcher-id": number, "changes": [call.model.applications[unit.application].config_hash]}

    return for_each_unit(call, begin, {"watcher-id": ""})


@method("Uniter", "WatchUnitAddressesHash")
def _watch_addresses(call: Call) -> dict[str, Any]:
    return {
        "results": [
            {"watcher-id": watch(call, Watcher(merge_names)), "changes": [_SHA_OF_NOTHING]}
            for _ in call.params["entities"]
        ]
    }


@method("Uniter", "WatchUnitStorageAttachments")
def _watch_nothing(call: Call) -> dict[str, Any]:
    return {"results": [{"watcher-id": watch(call, Watcher(merge_names))} for _ in call.params["entities"]]}


# -- the unit ------------------------------------------------------------------------------------


@method("Uniter", "Refresh")
def _refresh(call: Call) -> dict[str, Any]:
    # These keys are Go's field names, because rpc/params has no others.
    found = for_each_unit(call, lambda _: {"error": None})["results"]
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

    return for_each_unit(call, describe, empty)


@method("Uniter", "SetUnitStatus")
def _set_unit_status(call: Call) -> dict[str, Any]:
    return _set_status(call, "workload")


@method("Uniter", "SetAgentStatus")
def _set_agent_status(call: Call) -> dict[str, Any]:
    return _set_status(call, "agent")


def _set_status(call: Call, which: str) -> dict[str, Any]:
    def note(entity: dict[str, Any]) -> dict[str, Any]:
        if which == "workload" and entity["status"] not in _WORKLOAD:
            raise Refused(f'encoding workload status: unknown workload status "{entity["status"]}"')
        setattr(own_unit(call, str(entity["tag"])), which, _status(entity))
        return {}

    return {"results": for_each(call.params["entities"], note)}


@method("Uniter", "SetApplicationStatus")
def _set_application_status(call: Call) -> dict[str, Any]:
    def note(entity: dict[str, Any]) -> dict[str, Any]:
        tag = str(entity["tag"])  # as in Juju, that of a unit, which leads
        if unit_name(tag) is None:
            raise Refused(f'"{tag}" is not a valid unit tag')
        unit = own_unit(call, tag)
        if not leads(call, unit):
            raise permission_denied()
        call.model.applications[unit.application].status = _status(entity)
        return {}

    return {"results": for_each(call.params["entities"], note)}


def _status(entity: dict[str, Any]) -> Status:
    return Status(entity["status"], entity["info"], entity.get("data") or {})


@method("Uniter", "WorkloadVersion")
def _workload_version(call: Call) -> dict[str, Any]:
    return for_each_unit(call, lambda unit: {"result": unit.workload_version}, {"result": ""})


@method("Uniter", "SetWorkloadVersion")
def _set_workload_version(call: Call) -> dict[str, Any]:
    def note(entity: dict[str, Any]) -> dict[str, Any]:
        own_unit(call, str(entity["tag"])).workload_version = str(entity["workload-version"])
        return {}

    return {"results": for_each(call.params["entities"], note)}


@method("Uniter", "ConfigSettings")
def _config_settings(call: Call) -> dict[str, Any]:
    def read(unit: Unit) -> dict[str, Any]:
        return {"settings": call.model.applications[unit.application].settings}

    return for_each_unit(call, read, {"settings": None})


@method("Uniter", "EnsureDead")
def _ensure_dead(call: Call) -> dict[str, Any]:
    def die(unit: Unit) -> dict[str, Any]:
        call.model.remove_unit(unit)
        return {}

    return for_each_unit(call, die)


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
    return for_each_unit(call, lambda unit: {key: value for key, value in unit.state.items() if value})


@method("Uniter", "SetState")
def _set_state(call: Call) -> dict[str, Any]:
    def keep(args: dict[str, Any]) -> dict[str, Any]:
        keep_state(own_unit(call, str(args["tag"])), args)
        return {}

    return {"results": for_each(call.params["args"], keep)}


def keep_state(unit: Unit, args: dict[str, Any]) -> None:
    """Keep the state that the arguments name; what they do not name stays."""
    unit.state |= {key: args[key] for key in _KEPT if args.get(key) is not None}


@method("Uniter", "SetCharm")
def _set_charm(call: Call) -> dict[str, Any]:
    return for_each_unit(call, lambda _: {})


@method("Uniter", "UnitStorageAttachments")
def _storage(call: Call) -> dict[str, Any]:
    return {"results": [{"result": {"ids": []}} for _ in call.params["entities"]]}


@method("Uniter", "CurrentModel")
def _current_model(call: Call) -> dict[str, Any]:
    return {"name": call.model.name, "uuid": call.model.uuid, "type": "iaas"}


@method("Uniter", "GetUnitContext")
def _unit_context(call: Call) -> dict[str, Any]:
    unit = own_unit(call, str(call.params["tag"]))
    setup = call.session.controller.setup
    opened = {
        tag: {part["endpoint"]: part["port-ranges"] for part in parts} for tag, parts in _opened(call, unit)
    }
    return {
        "api-addresses": [f"{address}:{setup.port}" for address in setup.addresses],
        "cloud-api-version": "",
        "legacy-proxy-settings": _NO_PROXY,
        "juju-proxy-settings": _NO_PROXY,
        **if_any("opened-machine-port-ranges-by-endpoint", opened),
        "charm-tracing-config": {},
    }


@method("Uniter", "OpenedPortRangesByEndpoint")
def _opened_ports(call: Call) -> dict[str, Any]:
    unit = own_unit(call, unit_tag(call.entity.id))
    return {"results": [{"unit-port-ranges": dict(_opened(call, unit))}]}


def _opened(call: Call, unit: Unit) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the open ports of all units on a unit's machine: by tag, and by endpoint."""
    machine = call.model.machines[unit.machine]
    there = [one for name in machine.units if (one := call.model.unit(name)) is not None]
    return [
        (
            unit_tag(one.name),
            [
                {"endpoint": endpoint, "port-ranges": [_range(port) for port in sorted(ports)]}
                for endpoint, ports in sorted(one.ports.items())
                if ports
            ],
        )
        for one in there
        if any(one.ports.values())
    ]


def _range(port: str) -> dict[str, Any]:
    span, _, protocol = port.rpartition("/")
    first, _, last = span.partition("-")  # "icmp" has none
    return {"from-port": int(first or -1), "to-port": int(last or first or -1), "protocol": protocol}
