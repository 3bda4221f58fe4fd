"""The removal of what a run made on a controller: its things in a model, and the model where it made that too."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tippingpoint.errors import OperationFailed, TargetError
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.juju.api.client import ApiClient, Connection
from tippingpoint.targets.juju.api.errors import UNAUTHORIZED, ApiError, result_error, result_errors
from tippingpoint.targets.juju.api.model import GONE, ModelAdmin, ask, fields, items, log_in
from tippingpoint.targets.juju.hollow import batches, list_models, matching_model

REMOVED_PER_CALL = 100
REMOVED_WITHIN = 600.0
"""Seconds a removal may take; 19,000 hollow units went with their model in 47 s."""

_POLL = 1.5
_ASK_AGAIN = 20.0
_GONE = "gone"


async def remove_fleet(access: ControllerAccess, model: str, prefix: str, made_model: bool) -> int:
    """Remove what a run made, whole or in part, and wait until it is gone; how many things there were.

    `model` is a name or UUID. What is removed are applications named PREFIX-..., machines with an instance id of
    manual:PREFIX-..., and with `made_model` the model itself, all by force. A model is only destroyed when the
    prefix is in its name, which says that we made it, and nothing of anyone else is in it, and a machine only when
    nobody else's unit is on it: else TargetError says so, after the rest of ours has been removed. Counted are units,
    applications, machines and the model. A model that is not there counts nothing; one that somebody has asked to go
    is asked again, as without force hollow units never end. OperationFailed where it is not gone within
    REMOVED_WITHIN seconds.
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
            # Someone else may be destroying it: its database goes before its name does.
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
            kept = f"has {', '.join(ours.foreign[:3])} in it" if named else f"is not named {prefix}"
            raise TargetError(
                "target.model",
                f"{found.name}: kept, as it {kept}",
                "`juju destroy-model` from you, if you want",
            )
        if ours.shared:
            raise TargetError(
                "target.model",
                f"{found.name}: machine {', '.join(ours.shared)}: kept, as units of others are there",
                "`juju remove-machine` from you, if you want",
            )
        return ours.count
    finally:
        await client.close()


@dataclass(frozen=True)
class _Ours:
    """What of a model's status a run made, and the names of what others did."""

    applications: list[str]
    units: int
    machines: list[str]
    shared: list[str]
    """Machines of the run's that have units of others on them."""
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
    """A model's life: "alive", "dying", "dead", _GONE, or what the controller says instead while it goes."""
    tag = f"model-{uuid}"
    answer = await ask(connection, "ModelManager", "ModelInfo", {"entities": [{"tag": tag}]})
    (result,) = items(answer.get("results")) or [{}]
    error = result_error(result, "ModelManager", "ModelInfo")
    if error is None:
        return str(fields(fields(result).get("result")).get("life"))
    # Only a controller's administrator is told "not found"; others may no longer ask.
    return _GONE if error.code in (*GONE, UNAUTHORIZED) else str(error)


async def _remove_from(admin: ModelAdmin, ours: _Ours, prefix: str) -> None:
    """Remove a run's things from a model that stays, and wait until its status shows none of them."""
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
                    # A large model's status costs the controller more than the wait for it.
                    await asyncio.sleep(max(_POLL, 2 * (loop.time() - began)))
    except TimeoutError:
        first = (left.applications + [f"machine {number}" for number in left.machines])[0]
        problem = f"{left.count} of {ours.count} things, {first} among them, are still there"
        raise OperationFailed(f"model {admin.model}: {problem} after {REMOVED_WITHIN:.0f} s") from None
