"""A hollow unit at work: what its charm's hooks would do in addition to the calls of every agent.

It changes its settings of relations, has secrets, renews those that expire and reads those of others, reads its
configuration, runs actions and update-status hooks, and opens and closes ports. The calls are those of Juju 4.0's hook
commands (internal/worker/uniter/runner/context/context.go, .../runner/jujuc/*.go, .../operation/runaction.go).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from asyncio import Future
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.juju.api import charm
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.connection import Connection
from tippingpoint.targets.juju.api.errors import ConnectionLost, result_error
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.targets.juju.api.model import fields, items
from tippingpoint.targets.juju.hollow_agent import Agent, first_result, relation_tag
from tippingpoint.targets.juju.work import Noticing, SharedSecret
from tippingpoint.util import timing
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.spawn.operations import Operations

CHANGE = "change"
"""The setting, and the key in a secret, that has the number of the last change."""
_PADDING = "padding"
_PORT = 8080
_VERSION = "1.0"


class WorkingAgent(Agent):
    """The agent of a unit whose charm has work to do."""

    def __init__(
        self,
        noticing: Noticing,
        client: ApiClient,
        model: str,
        unit: str,
        identity: Identity,
        operations: Operations,
        schedule: Schedule,
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        super().__init__(client, model, unit, identity, operations, schedule, run)
        self._noticing = noticing
        self._starting: list[Future[None]] = []
        self._port_is_open = False

    def started(self, done: Future[None]) -> None:
        """End a future once the unit is logged in and idle."""
        if self.up:
            done.set_result(None)
        else:
            self._starting.append(done)

    def hook(self, done: Future[None]) -> None:
        """Run an update-status hook after the queued work, and then end a future."""
        self._do(done, self._update_status)

    def change_settings(self, key: str, number: int, size: int) -> Future[Any]:
        """Write the settings of a relation: the change's number, and padding up to this many bytes."""
        settings = {CHANGE: str(number), _PADDING: "x" * max(1, size - len(str(number)))}
        relation = {"relation": relation_tag(key), "unit": self.identity.tag, "settings": settings}
        return self._commit({"relation-unit-settings": [{**relation, "application-settings": None}]})

    async def make_secret(
        self, key: str, others: str, rotate: float, readers: Callable[[], Sequence[str]]
    ) -> str:
        """Make a secret that the other application of a relation may read; returns its URI.

        Each of its revisions expires after `rotate` seconds, unless that is 0. The unit then makes another, and
        `readers` returns the units that have to notice it.
        """
        uri = str(fields(await self._one("SecretsManager", "CreateSecretURIs", {"count": 1}))["result"])
        self._noticing.secrets[secret_id(uri)] = own = SharedSecret(uri, rotate, readers)
        created = {"uri": uri, "owner-tag": self.identity.tag, **_revision(own, 0)}
        grant = {
            "uri": uri,
            "scope-tag": relation_tag(key),
            "subject-tags": [f"application-{others}"],
            "role": "view",
        }
        await self._commit({"secret-creates": [created], "secret-grants": [grant]})
        return uri

    def change_secret(self, uri: str, number: int) -> Future[Any]:
        """Give a secret of this unit a new revision."""
        own = self._noticing.secrets[secret_id(uri)]
        return self._commit({"secret-updates": [{"uri": uri, **_revision(own, number)}]})

    # -- what changes -----------------------------------------------------------------------------

    def _do(self, done: Future[None], work: Callable[[Connection], Coroutine[Any, Any, None]]) -> None:
        connection = self._connection
        if connection is None:
            done.set_exception(OperationFailed(f"{self._unit}: not logged in"))
            return

        async def and_end(connection: Connection) -> None:
            try:
                await work(connection)
            except OperationFailed as problem:
                if not done.done():
                    done.set_exception(problem)
                raise
            if not done.done():
                done.set_result(None)

        self._later(connection, and_end)

    def _handler(self, method: str) -> Callable[[Connection, Any], None]:
        handlers = {
            "WatchConfigSettingsHash": self._config_changed,
            "WatchConsumedSecretsChanges": self._secrets_changed,
            "WatchSecretRevisionsExpiryChanges": self._expiries_changed,
            "WatchActionNotifications": self._actions_came,
        }
        return handlers.get(method) or super()._handler(method)

    async def _live(self, connection: Connection) -> None:
        await super()._live(connection)
        if self.up:
            starting, self._starting = self._starting, []
            for done in starting:
                if not done.done():
                    done.set_result(None)

    def _settings_read(self, key: str, unit: str, settings: Any) -> None:
        self._noticing.seen(("settings", key, unit), _number(fields(settings).get(CHANGE)), self._unit)

    def _secrets_changed(self, connection: Connection, change: Any) -> None:
        uris = [str(uri) for uri in items(fields(change).get("changes"))]
        if uris:
            self._later(connection, partial(self._look_at_secrets, uris))

    async def _look_at_secrets(self, uris: Sequence[str], connection: Connection) -> None:
        """Run secret-changed for each (internal/worker/uniter/secrets): read the new revision, and track it."""
        request = {"consumer-tag": self.identity.tag, "uris": list(uris)}
        await connection.call("SecretsManager", "GetConsumerSecretsRevisionInfo", request)
        for uri in uris:
            await self.read_secret(uri)
            await self._run_hook(connection, "secret-changed")

    async def read_secret(self, uri: str) -> None:
        """Read another unit's secret as it is now; from the first time on, the unit notices new revisions."""
        request = {"args": [{"uri": uri, "refresh": True}]}
        answer = fields(await self._one("SecretsManager", "GetSecretContentInfo", request))
        text = str(fields(fields(answer.get("content")).get("data")).get(CHANGE, ""))
        try:
            number = _number(base64.b64decode(text).decode())
        except ValueError:
            number = -1
        self._noticing.seen(("secret", secret_id(uri)), number, self._unit)

    def _expiries_changed(self, connection: Connection, change: Any) -> None:
        """Renew each revision when it expires, unless a newer one is known then (internal/worker/secretexpire)."""
        for each in items(fields(change).get("changes")):
            trigger = fields(each)
            own = self._noticing.secrets.get(secret_id(str(trigger.get("uri"))))
            revision, moment = trigger.get("revision"), _seconds(trigger.get("next-trigger-time"))
            if own is not None and isinstance(revision, int) and moment is not None:
                own.latest = max(own.latest, revision)
                due = timing.monotonic() + moment - timing.wall()
                self._schedule.at(due, partial(self._expired, connection, own, revision))

    def _expired(self, connection: Connection, own: SharedSecret, revision: int, due: float) -> None:
        if self._connection is not connection or revision < own.latest:
            return
        done: Future[None] = asyncio.get_running_loop().create_future()
        self._operations.begin("secret-rotation", done, due, due, lambda ended: None)
        self._later(connection, partial(self._renew, own, done))

    async def _renew(self, own: SharedSecret, done: Future[None], connection: Connection) -> None:
        """Run a secret-expired hook, whose charm gives the secret a new revision."""
        number, readers = next(self._noticing.numbers), own.readers()
        if readers:
            self._noticing.expect(("secret", secret_id(own.uri)), number, readers, done)
        try:
            await self._set_agent_status(connection, "executing", "running secret-expired hook")
            await self._get(connection, "GetUnitContext", {"tag": self.identity.tag})
            await self.change_secret(own.uri, number)
        except OperationFailed as problem:
            if not done.done():
                done.set_exception(problem)
            raise
        if not readers and not done.done():
            done.set_result(None)

    def _config_changed(self, connection: Connection, _: Any) -> None:
        if self._noticing.expects(("config", self._application)):
            self._later(connection, self._look_at_config)

    async def _look_at_config(self, connection: Connection) -> None:
        await self._read_config(connection)
        await self._run_hook(connection, "config-changed")

    async def _read_config(self, connection: Connection) -> None:
        answer = fields(first_result(await self._get(connection, "ConfigSettings", self._entities)))
        number = _number(fields(answer.get("settings")).get(charm.OPTION))
        self._noticing.seen(("config", self._application), number, self._unit)

    # -- actions and hooks -----------------------------------------------------------------------

    def _actions_came(self, connection: Connection, change: Any) -> None:
        for number in items(fields(change).get("changes")):
            self._later(connection, partial(self._run_action, str(number)))

    async def _run_action(self, number: str, connection: Connection) -> None:
        tag = {"entities": [{"tag": f"action-{number}"}]}
        answer = await self._get(connection, "Actions", tag, absent_is_fine=True)
        name = fields(fields(first_result(answer)).get("action")).get("name")
        await self._set_agent_status(connection, "executing", f"running action {name}")
        await self._get(connection, "BeginActions", tag, absent_is_fine=True)
        await self._get(connection, "GetUnitContext", {"tag": self.identity.tag})
        result = {
            "action-tag": f"action-{number}",
            "status": "completed",
            "results": {"return-code": 0},
            "message": "",
        }
        await self._get(connection, "FinishActions", {"results": [result]}, absent_is_fine=True)

    async def _update_status(self, connection: Connection) -> None:
        """Run an update-status hook whose charm reads its configuration and state, sets its status and workload
        version, and opens or closes a port."""
        tag = self.identity.tag
        await self._set_agent_status(connection, "executing", "running update-status hook")
        await self._get(connection, "GetUnitContext", {"tag": tag})
        await self._read_config(connection)
        await self._get(connection, "State", self._entities)
        await self._set_unit_status(connection, "active", "at work")
        version = {"entities": [{"tag": tag, "workload-version": _VERSION}]}
        await self._get(connection, "SetWorkloadVersion", version)
        ports = {"tag": tag, "protocol": "tcp", "from-port": _PORT, "to-port": _PORT, "endpoint": ""}
        change = {"close-ports" if self._port_is_open else "open-ports": [ports]}
        self._port_is_open = not self._port_is_open
        state = {"unit-state": {"tag": tag, "charm-state": {"hooks": "1"}}}
        await self._commit({**change, **state})
        uniter = {"tag": tag, "uniter-state": "op: continue\nhook: update-status\n"}
        await self._get(connection, "SetState", {"args": [uniter]})

    # -- calls -----------------------------------------------------------------------------------

    def _commit(self, change: dict[str, Any]) -> Future[Any]:
        request = {"args": [{"tag": self.identity.tag, "update-network-info": False, **change}]}
        return self._one("Uniter", "CommitHookChanges", request)

    def _one(self, facade: str, method: str, request: object) -> Future[Any]:
        """Make a call whose answer has one result; the future ends with it, or with the refusal in it."""
        connection = self._connection
        if connection is None:
            future: Future[Any] = asyncio.get_running_loop().create_future()
            future.set_exception(ConnectionLost(self._unit, "not logged in"))
            return future
        return connection.call(facade, method, request, result=partial(_only, facade, method))


def _only(facade: str, method: str, answer: Any) -> Any:
    result = first_result(answer)
    error = result_error(result, facade, method)
    if error is not None:
        raise error
    return result


def secret_id(uri: str) -> str:
    """Return the end that all forms of a secret's URI share: secret://MODEL/ID and secret:ID."""
    return uri.rpartition("/")[2].rpartition(":")[2]


def _revision(secret: SharedSecret, number: int) -> dict[str, Any]:
    """Return the fields of a secret's new revision, with the number of its change."""
    expires = {"expire-time": _moment(timing.wall() + secret.rotate)} if secret.rotate else {}
    return {"content": _content(number), **expires}


def _moment(seconds: float) -> str:
    """Return a moment, given in seconds since the epoch, as the API writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _seconds(moment: object) -> float | None:
    """Return a moment of the API in seconds since the epoch; None for anything else."""
    try:
        return datetime.fromisoformat(str(moment)).timestamp()
    except ValueError:
        return None


def _number(text: object) -> int:
    """The number of a change, or -1 for a text that is not ours."""
    return int(text) if isinstance(text, str) and text.isdecimal() else -1


def _content(number: int) -> dict[str, Any]:
    """The content of a secret as `secret-set` sends it (core/secrets/secretvalue.go): base64, with a checksum."""
    data = {CHANGE: base64.b64encode(str(number).encode()).decode()}
    checksum = hashlib.sha256(json.dumps(data, separators=(",", ":"), sort_keys=True).encode())
    return {"data": data, "checksum": checksum.hexdigest()}
