"""Removal of everything that a run created on a controller, and of the model if the run created it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.connection import Connection
from tippingpoint.targets.juju.api.errors import UNAUTHORIZED, ApiError, result_error, result_errors
from tippingpoint.targets.juju.api.model import GONE, ModelAdmin, ask, fields, items, log_in
from tippingpoint.targets.juju.hollow import Model, batches, list_models, matching_model
from tippingpoint.workloads.load import OnProgress

REMOVED_PER_CALL = 100
REMOVED_WITHIN = 600.0
"""Seconds that a removal may take. Juju 4.0.15 removed 19,000 hollow units with their model in 47 s."""

_AT_ONCE = 8
"""Models that are removed concurrently."""
_POLL = 1.5
_ASK_AGAIN = 20.0
_GONE = "gone"


async def remove_fleet(access: ControllerAccess, model: str, prefix: str, made_model: bool) -> int:
    """Remove what a run created, even if incomplete, and wait until it is gone. Returns the number of things found.

    `model` is a name or UUID. The run's things are applications named PREFIX-... and machines with an instance id of
    manual:PREFIX-...; with `made_model` also the model. All are removed by force. The number counts units,
    applications, machines and the model.

    The model is only destroyed if the prefix is in its name and everything in it is the run's. A machine is only
    removed if all units on it are the run's. Otherwise TargetError says what was kept, after everything else of the
    run has been removed.

    The result is 0 if the model does not exist. If the model is already being destroyed, it is destroyed again by
    force, because without force hollow units never end. OperationFailed if it is not gone within REMOVED_WITHIN
    seconds.
    """
    client = ApiClient(access.addresses, access.ca)
    try:
        connection = await log_in(client, access.user, None)
        found = matching_model(await list_models(connection, access), model, access)
        if found is None or await _life(connection, found.uuid) == _GONE:
            return 0
        try:
            admin = await ModelAdmin.open(client, access, found.uuid)
            ours = _Ours.of(await admin.full_status(), prefix)
        except ApiError:
            # Someone else may be destroying it: its database is dropped before its name.
            if await _life(connection, found.uuid) == "alive":
                raise
            await _await_gone(connection, found.uuid)
            return 0
        if made_model and prefix in found.name and not ours.foreign:
            admin.close()
            await _destroy_model(connection, found.uuid)
            return ours.count + 1
        await _remove_from(admin, ours, prefix)
        if made_model:
            named = prefix in found.name
            kept = f"it contains {', '.join(ours.foreign[:3])}" if named else f"it is not named {prefix}"
            raise TargetError(
                "target.model",
                f"{found.name}: kept because {kept}",
                "`juju destroy-model`, if you want it gone",
            )
        if ours.shared:
            raise TargetError(
                "target.model",
                f"{found.name}: machine {', '.join(ours.shared)}: kept because others' units are on it",
                "`juju remove-machine`, if you want it gone",
            )
        return ours.count
    finally:
        await client.close()


async def remove_models(access: ControllerAccess, beginning: str, progress: OnProgress) -> int:
    """Remove all models whose names begin with `beginning`, with everything in them, and wait until they are gone.

    Returns how many there were. A model that is not gone within REMOVED_WITHIN seconds does not hold up the others:
    OperationFailed is raised for it once they are gone.
    """
    client = ApiClient(access.addresses, access.ca)
    few = asyncio.Semaphore(_AT_ONCE)
    done = 0
    try:
        connection = await log_in(client, access.user, None)
        ours = [model for model in await list_models(connection, access) if model.name.startswith(beginning)]
        progress("models", 0, len(ours))

        async def remove(model: Model) -> None:
            nonlocal done
            async with few:
                await _destroy_model(connection, model.uuid)
            done += 1
            progress("models", done, len(ours))

        ended = await asyncio.gather(*map(remove, ours), return_exceptions=True)
        problem = next((each for each in ended if isinstance(each, BaseException)), None)
        if problem is not None:
            raise problem
        return len(ours)
    finally:
        await client.close()


@dataclass(frozen=True)
class _Ours:
    """A run's things in a model's status, and the names of everybody else's things."""

    applications: list[str]
    units: int
    machines: list[str]
    shared: list[str]
    """Machines of the run that also carry units of others."""
    foreign: list[str]

    @property
    def count(self) -> int:
        return len(self.applications) + self.units + len(self.machines)

    @classmethod
    def of(cls, status: Mapping[str, Any], prefix: str) -> _Ours:
        applications: list[str] = []
        machines: list[str] = []
        shared: list[str] = []
        foreign: list[str] = []
        used_by_others: set[str] = set()
        count = 0
        for name, application in fields(status.get("applications")).items():
            units = fields(fields(application).get("units"))
            if name.startswith(f"{prefix}-"):
                applications.append(name)
                count += len(units)
            else:
                foreign.append(name)
                # "3/lxd/0" is inside machine 3.
                used_by_others |= {
                    str(fields(unit).get("machine")).partition("/")[0] for unit in units.values()
                }
        for number, machine in fields(status.get("machines")).items():
            if not str(fields(machine).get("instance-id")).startswith(f"manual:{prefix}-"):
                foreign.append(f"machine {number}")
            elif number in used_by_others:
                shared.append(number)
            else:
                machines.append(number)
        return cls(applications, count, machines, shared, sorted(foreign))


async def _destroy_model(connection: Connection, uuid: str) -> None:
    tag = f"model-{uuid}"
    request = {
        "models": [
            {
                "model-tag": tag,
                "destroy-storage": True,
                "force": True,
                "max-wait": 0,
                "timeout": int(REMOVED_WITHIN * 1e9),
            }
        ]
    }
    answer = await ask(connection, "ModelManager", "DestroyModels", request)
    for error in result_errors(answer, "ModelManager", "DestroyModels"):
        if error is not None and await _life(connection, uuid) == "alive":
            raise error
    await _await_gone(connection, uuid)


async def _await_gone(connection: Connection, uuid: str) -> None:
    life = ""
    try:
        async with asyncio.timeout(REMOVED_WITHIN):
            while True:
                life = await _life(connection, uuid)
                if life == _GONE:
                    return
                await asyncio.sleep(_POLL)
    except TimeoutError:
        raise OperationFailed(f"model {uuid}: still there ({life}) after {REMOVED_WITHIN:.0f} s") from None


async def _life(connection: Connection, uuid: str) -> str:
    """Return a model's life: "alive", "dying", "dead", _GONE, or the controller's error while it is going."""
    tag = f"model-{uuid}"
    answer = await ask(connection, "ModelManager", "ModelInfo", {"entities": [{"tag": tag}]})
    (result,) = items(answer.get("results")) or [{}]
    error = result_error(result, "ModelManager", "ModelInfo")
    if error is None:
        return str(fields(fields(result).get("result")).get("life"))
    # Only a controller's administrator gets "not found"; others are no longer authorised.
    return _GONE if error.code in (*GONE, UNAUTHORIZED) else str(error)


async def _remove_from(admin: ModelAdmin, ours: _Ours, prefix: str) -> None:
    """Remove a run's things from a model that is kept, and wait until its status shows none of them."""
    loop = asyncio.get_running_loop()
    left, asked = ours, float("-inf")
    try:
        async with asyncio.timeout(REMOVED_WITHIN):
            while left.count:
                if loop.time() - asked > _ASK_AGAIN:
                    for batch in batches(left.applications, REMOVED_PER_CALL):
                        await admin.destroy_applications(batch)
                    if left.machines:
                        await admin.destroy_machines(left.machines)
                    asked = loop.time()
                began = loop.time()
                left = _Ours.of(await admin.full_status(), prefix)
                if left.count:
                    # In a large model a status call is more expensive for the controller than waiting.
                    await asyncio.sleep(max(_POLL, 2 * (loop.time() - began)))
    except TimeoutError:
        first = (left.applications + [f"machine {number}" for number in left.machines])[0]
        problem = f"{left.count} of {ours.count} things, {first} among them, are still there"
        raise OperationFailed(f"model {admin.model}: {problem} after {REMOVED_WITHIN:.0f} s") from None
