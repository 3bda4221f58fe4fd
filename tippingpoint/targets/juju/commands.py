"""The commands of the juju client: the calls that each makes to a controller, over connections of its own.

The calls are those of Juju 4.0's client (cmd/juju/*). If the client returns from a command at once, the command ends
here when its effect shows: an added unit is at work, a removed unit is gone. Other commands end with their answer,
because the controller answers once the change is made. Left out are what a client reads once and keeps (models, spaces,
charms of Charmhub), and full TLS handshakes, because ours are resumed.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, cast

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.juju.api import charm
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.connection import Connection
from tippingpoint.targets.juju.api.errors import UNAUTHORIZED, ApiError, result_error
from tippingpoint.targets.juju.api.model import GONE, ModelAdmin, ask, fields, items, log_in, unit_tag
from tippingpoint.targets.juju.hollow import create_model

_GRANTED = "tippingpoint@external"
"""A user of an identity provider, whom a controller need not know."""
_EXEC_TIMEOUT = 300_000_000_000
"""Nanoseconds after which a controller gives a command up: the client's default of 5 minutes."""
_POLL_ACTION = (0.02, 1.5, 2.0)
_POLL_MODEL = (0.01, 2.0, 2.0)
_POLL_STATUS = (0.1, 2.0, 2.0)
"""Seconds until the first check for an effect, the factor by which the interval grows, and its maximum. These are the
values in cmd/juju/action/common.go and cmd/juju/model/destroy.go; the last is ours."""


class Commands:
    """Commands that people run on one controller. Each method is one command; OperationFailed if it fails or is
    refused."""

    def __init__(self, client: ApiClient, access: ControllerAccess) -> None:
        self._client = client
        self._access = access

    # -- looking -----------------------------------------------------------------------------------

    async def models(self) -> None:
        """`juju models`."""
        async with self._connected() as connection:
            request = {"user-tag": self._access.user.tag}
            await ask(connection, "ModelManager", "ListModelSummaries", request)

    async def show_model(self, model: str) -> None:
        """`juju show-model MODEL`."""
        async with self._connected() as connection:
            await _one(connection, "ModelManager", "ModelInfo", {"entities": [{"tag": f"model-{model}"}]})

    async def status(self, model: str) -> None:
        """`juju status`. Its `--relations` makes no further call: the answer has them already."""
        async with self._connected(model) as connection:
            await ask(connection, "Client", "FullStatus", {"patterns": None})

    # -- applications, units and relations -----------------------------------------------------------

    async def config(self, model: str, application: str, value: str) -> None:
        """`juju config APPLICATION setting=VALUE`."""
        async with self._connected(model) as connection:
            setting = {
                "application": application,
                "generation": "",
                "config": {charm.OPTION: value},
                "config-yaml": "",
            }
            await _one(connection, "Application", "SetConfigs", {"Args": [setting]})

    async def run(self, model: str, unit: str) -> None:
        """`juju run UNIT work`, until the action has ended."""
        action: dict[str, Any] = {
            "tag": "",
            "receiver": unit_tag(unit),
            "name": charm.ACTION,
            "parameters": {},
        }
        await self._task(model, "EnqueueOperation", {"actions": [action]})

    async def exec(self, model: str, unit: str) -> None:
        """`juju exec --unit UNIT -- true`, until the command has ended."""
        command = {"commands": "true", "timeout": _EXEC_TIMEOUT, "units": [unit]}
        await self._task(model, "Run", command)

    async def _task(self, model: str, method: str, request: object) -> None:
        """Request a task of one unit, and poll for its end while its messages are awaited."""
        async with self._connected(model) as connection:
            answer = await ask(connection, "Action", method, request)
            queued = _first_of(answer, "actions", "Action", method)
            entities = {"entities": [{"tag": str(fields(queued.get("action")).get("tag"))}]}
            watch = await _one(connection, "Action", "WatchActionsProgress", entities)
            watcher = str(watch.get("watcher-id"))
            result = await _one(connection, "Action", "Actions", entities)
            messages = asyncio.create_task(_read_messages(connection, watcher))
            await asyncio.sleep(0)  # sends its first request, even if the task has already ended
            try:
                for pause in _pauses(*_POLL_ACTION):
                    if result.get("status") not in ("pending", "running"):
                        break
                    await asyncio.sleep(pause)
                    result = await _one(connection, "Action", "Actions", entities)
            finally:
                messages.cancel()
            await ask(connection, "StringsWatcher", "Stop", None, entity=watcher)
        if result.get("status") != "completed":
            raise OperationFailed(f"{result.get('status')}: expected a task that completes")

    async def deploy(self, model: str, application: str, machine: str) -> None:
        """`juju deploy ./hollow.charm APPLICATION --to MACHINE`, which uploads the charm."""
        async with self._admin(model) as admin, self._connected():
            await admin.ask("ModelConfig", "GetModelConstraints", None)
            for _ in range(2):
                await admin.ask("ModelConfig", "ModelGet", None)
            await admin.ask("Charms", "CharmInfo", {"url": await admin.hollow_charm()})
            await admin.deploy([application], 1, machine)

    async def add_unit(self, model: str, application: str, machine: str) -> str:
        """`juju add-unit APPLICATION --to MACHINE`; returns the unit."""
        async with self._admin(model) as admin:
            return (await admin.add_units(application, 1, [machine]))[0]

    async def remove_unit(self, model: str, unit: str) -> None:
        """`juju remove-unit --force --no-wait --destroy-storage UNIT`, until it is gone."""
        async with self._admin(model) as admin, self._connected(model):
            await admin.destroy_units([unit])
            application = unit.partition("/")[0]
            for pause in _pauses(*_POLL_STATUS):
                there = fields((await admin.full_status([application])).get("applications")).get(application)
                if unit not in fields(fields(there).get("units")):
                    return
                await asyncio.sleep(pause)

    async def remove_application(self, model: str, application: str) -> None:
        """`juju remove-application --force --no-wait --destroy-storage APPLICATION`, until it is gone."""
        async with self._admin(model) as admin, self._connected(model):
            await admin.destroy_applications([application])
            for pause in _pauses(*_POLL_STATUS):
                if application not in fields((await admin.full_status([application])).get("applications")):
                    return
                await asyncio.sleep(pause)

    async def integrate(self, model: str, one: str, other: str) -> None:
        """`juju integrate ONE OTHER`, each with its endpoint."""
        async with self._admin(model) as admin:
            await admin.relate(one, other)

    async def remove_relation(self, model: str, one: str, other: str) -> None:
        """`juju remove-relation --force ONE OTHER`."""
        async with self._admin(model) as admin:
            await admin.destroy_relation(one, other)

    # -- offers ------------------------------------------------------------------------------------

    async def offer(self, model: str, application: str, name: str) -> None:
        """`juju offer APPLICATION:link NAME`."""
        offer = {
            "model-tag": f"model-{model}",
            "offer-name": name,
            "application-name": application,
            "application-description": "",
            "endpoints": {charm.PROVIDES: charm.PROVIDES},
            "owner-tag": self._access.user.tag,
        }
        async with self._connected() as connection:
            await _one(connection, "ApplicationOffers", "Offer", {"Offers": [offer]})

    async def remove_offer(self, url: str) -> None:
        """`juju remove-offer --force URL`."""
        async with self._connected() as connection:
            request = {"offer-urls": [url], "force": True}
            await _one(connection, "ApplicationOffers", "DestroyOffers", request)

    async def consume(self, model: str, url: str, alias: str) -> None:
        """`juju consume URL ALIAS`."""
        async with self._connected() as connection:
            request = {"offer-urls": {"offer-urls": [url], "bakery-version": 3}}
            details = await _one(connection, "ApplicationOffers", "GetConsumeDetails", request)
        consumed = {
            **fields(details.get("offer")),
            "macaroon": details.get("macaroon"),
            "external-controller": details.get("external-controller"),
            "application-alias": alias,
        }
        async with self._connected(model) as connection:
            await _one(connection, "Application", "Consume", {"args": [consumed]})

    async def remove_saas(self, model: str, alias: str) -> None:
        """`juju remove-saas --force --no-wait ALIAS`."""
        request = {
            "applications": [{"application-tag": f"application-{alias}", "force": True, "max-wait": 0}]
        }
        async with self._connected(model) as connection:
            await _one(connection, "Application", "DestroyConsumedApplications", request)

    # -- models and who may use them -------------------------------------------------------------------

    async def add_model(self, name: str) -> str:
        """`juju add-model NAME`; returns its UUID."""
        async with self._connected() as connection:
            return await create_model(connection, self._access, name)

    async def destroy_model(self, model: str) -> None:
        """`juju destroy-model --no-prompt --force --no-wait --destroy-storage MODEL`, until it is gone."""
        tag = f"model-{model}"
        destroyed = {"model-tag": tag, "destroy-storage": True, "force": True, "max-wait": 0}
        async with self._connected() as connection:
            await ask(connection, "ModelManager", "ModelStatus", {"entities": [{"tag": tag}]})
            await _one(connection, "ModelManager", "DestroyModels", {"models": [destroyed]})
            for pause in _pauses(*_POLL_MODEL):
                await asyncio.sleep(pause)
                answer = await ask(connection, "ModelManager", "ModelStatus", {"entities": [{"tag": tag}]})
                error = result_error(_first(answer, "models"), "ModelManager", "ModelStatus")
                if error is not None:
                    if error.code in (*GONE, UNAUTHORIZED) or "not found" in error.message:
                        return
                    raise error

    async def grant(self, model: str) -> None:
        """`juju grant USER read MODEL`, for a user of an identity provider."""
        await self._modify(model, "grant")

    async def revoke(self, model: str) -> None:
        """`juju revoke USER read MODEL`."""
        await self._modify(model, "revoke")

    async def _modify(self, model: str, action: str) -> None:
        change = {
            "user-tag": f"user-{_GRANTED}",
            "action": action,
            "access": "read",
            "model-tag": f"model-{model}",
        }
        async with self._connected() as connection:
            await _one(connection, "ModelManager", "ModifyModelAccess", {"changes": [change]})

    # -- secrets ---------------------------------------------------------------------------------------

    async def add_secret(self, model: str, name: str) -> str:
        """`juju add-secret NAME ...`; returns its URI."""
        value = base64.b64encode(name.encode()).decode()
        secret = {"owner-tag": "", "label": name, "content": {"data": {"key": value}}}
        async with self._connected(model) as connection:
            answer = await _one(connection, "Secrets", "CreateSecrets", {"args": [secret]})
            return str(answer.get("result"))

    async def remove_secret(self, model: str, uri: str) -> None:
        """`juju remove-secret URI`."""
        async with self._connected(model) as connection:
            request = {"args": [{"uri": uri, "label": ""}]}
            await _one(connection, "Secrets", "RemoveSecrets", request)

    # -- connections -------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _admin(self, model: str) -> AsyncGenerator[ModelAdmin]:
        admin = await ModelAdmin.open(self._client, self._access, model)
        try:
            yield admin
        finally:
            admin.close()

    @contextlib.asynccontextmanager
    async def _connected(self, model: str | None = None) -> AsyncGenerator[Connection]:
        """Log in to a model, or for None to the controller."""
        connection = await log_in(self._client, self._access.user, model)
        try:
            yield connection
        finally:
            connection.close()


async def _read_messages(connection: Connection, watcher: str) -> None:
    """Ask for a task's messages, until cancelled or refused."""
    with contextlib.suppress(OperationFailed):
        while True:
            await connection.call("StringsWatcher", "Next", None, watcher)


async def _one(connection: Connection, facade: str, method: str, request: object) -> dict[str, Any]:
    """Make a call about one thing, and return its one result; ApiError if it is refused."""
    answer = await ask(connection, facade, method, request)
    return _first_of(answer, "results", facade, method)


def _first_of(answer: Mapping[str, Any], name: str, facade: str, method: str) -> dict[str, Any]:
    result = _first(answer, name)
    error = result_error(result, facade, method)
    if error is not None:
        raise error
    return result


def _first(answer: Mapping[str, Any], name: str) -> dict[str, Any]:
    results = cast("Sequence[Any]", items(answer.get(name)))
    if not results:
        raise ApiError("an empty answer")
    return fields(results[0])


def _pauses(first: float, factor: float, most: float) -> Iterator[float]:
    pause = first
    while True:
        yield pause
        pause = min(most, pause * factor)
