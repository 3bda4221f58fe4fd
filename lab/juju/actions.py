"""Actions: users ask for them with the Action facade, and units get, begin and finish them with Uniter.

Cancelling, and what Run refuses, is from source (apiserver/facades/client/action and domain/operation of Juju 4.0), the
rest is recorded. What
a request to enqueue answers about its tasks has no name and no parameters.
"""

from __future__ import annotations

import json
from typing import Any

from lab.juju.callers import for_each_unit
from lab.juju.machines import unit_name, unit_tag
from lab.juju.methods import facade, method
from lab.juju.model import Unit
from lab.juju.operations import Operation, Task
from lab.juju.refusals import Refused, not_found, permission_denied
from lab.juju.rpc import Call, for_each
from lab.juju.statuses import NEVER
from lab.juju.watchers import Watcher, merge_names
from lab.juju.watching import watch

facade("Action", "user")

_LEADER = "/leader"
_EXEC = "juju-exec"
"""The name of the action that a command runs as."""
_NO_TIMES = {"enqueued": NEVER, "started": NEVER, "completed": NEVER}


# -- for users -----------------------------------------------------------------------------------


@method("Action", "ApplicationsCharmsActions", "write")
def _charms_actions(call: Call) -> dict[str, Any]:
    def describe(entity: dict[str, Any]) -> dict[str, Any]:
        name = str(entity["tag"]).removeprefix("application-")
        application = call.model.applications.get(name)
        if application is None:
            return {"application-tag": entity["tag"], "error": not_found(f'application "{name}"').as_dict()}
        actions = {action: spec(action, fields) for action, fields in application.charm.actions.items()}
        return {"application-tag": entity["tag"], "actions": actions}

    return {"results": for_each(call.params["entities"], describe)}


def spec(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return an action's definition with its JSON schema."""
    description = str(fields.get("description") or "No description")
    properties: dict[str, Any] = fields.get("params") or {}
    schema: dict[str, Any] = {"title": name, "type": "object", "description": description}
    schema |= {
        "properties": properties,
        "additionalProperties": bool(fields.get("additionalProperties", False)),
    }
    return {"description": description, "params": schema}


@method("Action", "EnqueueOperation", "write")
def _enqueue(call: Call) -> dict[str, Any]:
    actions: list[dict[str, Any]] = call.params.get("actions") or []
    if not actions:
        raise Refused("no actions specified")
    names = {_application(str(action["receiver"])) for action in actions} - {None}
    if len(names) > 1:
        raise Refused("actions must be run on units from the same application")
    first = actions[0]
    for action in actions:
        _check_led(call, str(action["receiver"]))
    for name in names:
        _check_defined(call, str(name), str(first["name"]), str(first["receiver"]))
    operation = call.model.operations.begin(f'action "{first["name"]}"')

    def add(action: dict[str, Any]) -> dict[str, Any]:
        receiver = str(action["receiver"])
        if _application(receiver) is None:
            raise Refused(f'"{receiver}" is not a valid unit tag')
        task = call.model.operations.add(
            operation,
            _receiver(call, receiver).name,
            str(first["name"]),
            first.get("parameters") or {},
            bool(first.get("parallel")),
            str(first.get("execution-group") or ""),
        )
        return _enqueued(task)

    results = for_each(actions, add, dict(_NO_TIMES))
    return {"operation": f"operation-{operation.id}", "actions": results}


@method("Action", "Run", "admin")
def _run(call: Call) -> dict[str, Any]:
    params = call.params
    command = str(params["commands"])
    operation = call.model.operations.begin(f'exec "{command}"')
    parameters = {"command": command, "timeout": params.get("timeout") or 0}

    def add(name: str) -> dict[str, Any]:
        unit = _receiver(call, name if name.endswith(_LEADER) else unit_tag(name))
        parallel = bool(params.get("parallel"))
        answer = _enqueued(call.model.operations.add(operation, unit.name, _EXEC, parameters, parallel, ""))
        return answer | {"action": answer["action"] | {"execution-group": ""}}

    results = for_each(params.get("units") or [], add, dict(_NO_TIMES))
    return {"operation": f"operation-{operation.id}", "actions": results}


def _enqueued(task: Task) -> dict[str, Any]:
    described = {"tag": f"action-{task.id}", "receiver": unit_tag(task.unit), "name": ""}
    times = _NO_TIMES | {"enqueued": task.enqueued}
    return {"action": described | {"parallel": False}, **times, "status": task.status}


def _application(receiver: str) -> str | None:
    """Return the application of a receiver: "unit-app-0" or "app/leader"; None if it is neither."""
    if receiver.endswith(_LEADER):
        return receiver.removesuffix(_LEADER)
    name = unit_name(receiver)
    return name.partition("/")[0] if name else None


def _receiver(call: Call, receiver: str) -> Unit:
    name = unit_name(receiver)
    if receiver.endswith(_LEADER):
        name = call.model.leases.holder(receiver.removesuffix(_LEADER))
    unit = call.model.unit(name or "")
    if unit is None:
        raise Refused(f'linking task to unit: getting unit UUID for "{name}": unit "{name}" not found')
    return unit


def _check_led(call: Call, receiver: str) -> None:
    application = receiver.removesuffix(_LEADER)
    if application != receiver and call.model.leases.holder(application) is None:
        raise Refused(
            f'getting leader unit for {application}: application "{application}" not found in leases',
            "not found",
        )


def _check_defined(call: Call, application: str, action: str, receiver: str) -> None:
    there = call.model.applications.get(application)
    if there is None:
        raise Refused(
            "adding action operation: adding action operation: "
            f'getting charm UUID for application "{application}": application "{application}" not found'
        )
    if not there.charm.actions:
        raise Refused(f"no actions defined for charm {there.charm.name}.", "not found")
    if action not in there.charm.actions:
        unit = unit_name(receiver) or call.model.leases.holder(application)
        raise Refused(f'action "{action}" not defined for unit "{unit}".', "not found")


@method("Action", "Actions", "read")
def _actions(call: Call) -> dict[str, Any]:
    return {
        "results": for_each(
            call.params["entities"], lambda entity: _described(_task(call, entity)), _NO_TIMES
        )
    }


@method("Action", "Cancel", "write")
def _cancel(call: Call) -> dict[str, Any]:
    def cancel(entity: dict[str, Any]) -> dict[str, Any]:
        task = _task(call, entity)
        call.model.operations.cancel(task)
        return _described(task)

    return {"results": for_each(call.params["entities"], cancel, _NO_TIMES)}


def _task(call: Call, entity: dict[str, Any]) -> Task:
    task = call.model.operations.task(str(entity["tag"]).removeprefix("action-"))
    if task is None:
        raise Refused("id not found", "not found")
    return task


@method("Action", "Operations", "read")
def _operations(call: Call) -> dict[str, Any]:
    def describe(entity: dict[str, Any]) -> dict[str, Any]:
        number = str(entity["tag"]).removeprefix("operation-")
        operation = call.model.operations.all.get(number)
        if operation is None:
            raise Refused(f'operation "{number}" not found')
        return _operation(operation)

    empty = {"operation": "", "summary": "", **_NO_TIMES}
    return {"results": for_each(call.params["entities"], describe, empty)}


@method("Action", "ListOperations", "read")
def _list_operations(call: Call) -> dict[str, Any]:
    params = call.params
    wanted: dict[str, set[str]] = {
        key: set(params.get(key) or ()) for key in ("applications", "units", "actions", "status")
    }
    if params.get("machines"):
        return {}
    found = [operation for operation in call.model.operations.all.values() if _matches(operation, wanted)]
    offset, limit = int(params.get("offset") or 0), params.get("limit")
    shown = found[offset : None if limit is None else offset + int(limit)]
    truncated = {"truncated": True} if offset + len(shown) < len(found) else {}
    return ({"results": [_operation(operation) for operation in shown]} if shown else {}) | truncated


def _matches(operation: Operation, wanted: dict[str, set[str]]) -> bool:
    tasks = operation.tasks
    had = {
        "applications": {task.unit.partition("/")[0] for task in tasks},
        "units": {task.unit for task in tasks},
        "actions": {task.name for task in tasks},
        "status": {operation.status},
    }
    return all(not names or had[key] & names for key, names in wanted.items())


@method("Action", "WatchActionsProgress")
def _watch_progress(call: Call) -> dict[str, Any]:
    def begin(entity: dict[str, Any]) -> dict[str, Any]:
        number = str(entity["tag"]).removeprefix("action-")
        task = call.model.operations.task(number)
        if task is None:
            raise not_found(f'action "{number}"')
        # Messages are kept in order, and two of them may be the same.
        watcher = Watcher(lambda pending, change: [*(pending or []), *change])
        there = [json.dumps(entry) for entry in task.log]
        return {"watcher-id": watch(call, watcher, ("task-log", number))} | (
            {"changes": there} if there else {}
        )

    return {"results": for_each(call.params["entities"], begin, {"watcher-id": ""})}


def _described(task: Task) -> dict[str, Any]:
    action: dict[str, Any] = {"tag": f"action-{task.id}", "receiver": unit_tag(task.unit)}
    return {
        "action": action | _asked(task) | {"execution-group": task.group},
        "enqueued": task.enqueued,
        "started": task.started,
        "completed": task.completed,
        "status": task.status,
        **{key: value for key, value in (("message", task.message), ("log", task.log)) if value},
        **({"output": task.output} if task.output else {}),
    }


def _asked(task: Task) -> dict[str, Any]:
    asked: dict[str, Any] = {"name": task.name}
    if task.parameters:
        asked["parameters"] = task.parameters
    asked["parallel"] = task.parallel
    if task.group:
        asked["execution-group"] = task.group
    return asked


def _in_operation(task: Task) -> dict[str, Any]:
    return {key: value for key, value in _described(task).items() if key != "output"}


def _operation(operation: Operation) -> dict[str, Any]:
    return {
        "operation": f"operation-{operation.id}",
        "summary": operation.summary,
        "enqueued": operation.enqueued,
        "started": operation.started,
        "completed": operation.completed,
        "status": operation.status,
        **({"actions": [_in_operation(task) for task in operation.tasks]} if operation.tasks else {}),
    }


# -- for units -----------------------------------------------------------------------------------


@method("Uniter", "WatchActionNotifications")
def _watch_notifications(call: Call) -> dict[str, Any]:
    def begin(unit: Unit) -> dict[str, Any]:
        number = watch(call, Watcher(merge_names), ("actions", unit.name))
        there = call.model.operations.waiting_for(unit.name)
        return {"watcher-id": number} | ({"changes": there} if there else {})

    return for_each_unit(call, begin, {"watcher-id": ""})


@method("Uniter", "Actions")
def _pending(call: Call) -> dict[str, Any]:
    def describe(entity: dict[str, Any]) -> dict[str, Any]:
        task = _own_task(call, str(entity["tag"]))
        if task.status != "pending":
            raise Refused("action no longer available", "action no longer available")
        return {"action": {"tag": "", "receiver": "", **_asked(task)}, **_NO_TIMES}

    return {"results": for_each(call.params["entities"], describe, _NO_TIMES)}


@method("Uniter", "ActionStatus")
def _status(call: Call) -> dict[str, Any]:
    def read(entity: dict[str, Any]) -> dict[str, Any]:
        return {"result": _own_task(call, str(entity["tag"])).status}

    return {"results": for_each(call.params["entities"], read, {"result": ""})}


@method("Uniter", "BeginActions")
def _begin(call: Call) -> dict[str, Any]:
    def begin(entity: dict[str, Any]) -> dict[str, Any]:
        call.model.operations.start(_own_task(call, str(entity["tag"])))
        return {}

    return {"results": for_each(call.params["entities"], begin)}


@method("Uniter", "FinishActions")
def _finish(call: Call) -> dict[str, Any]:
    def finish(result: dict[str, Any]) -> dict[str, Any]:
        task = _own_task(call, str(result["action-tag"]))
        output: dict[str, Any] = result.get("results") or {}
        call.model.operations.finish(task, str(result["status"]), output, str(result.get("message") or ""))
        return {}

    return {"results": for_each(call.params.get("results") or [], finish)}


@method("Uniter", "LogActionsMessages")
def _log(call: Call) -> dict[str, Any]:
    def log(message: dict[str, Any]) -> dict[str, Any]:
        call.model.operations.log(_own_task(call, str(message["tag"])), str(message["value"]))
        return {}

    return {"results": for_each(call.params["messages"], log)}


def _own_task(call: Call, tag: str) -> Task:
    number = tag.removeprefix("action-")
    task = call.model.operations.task(number)
    if task is None:
        raise Refused(f'getting receiver for task "{number}": task "{number}": task not found')
    if task.unit != call.entity.id:
        raise permission_denied()
    return task
