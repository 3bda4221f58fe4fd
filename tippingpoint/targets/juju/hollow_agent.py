"""A unit that acts as a unit agent does: it logs in, watches, sets its status, claims leadership, enters relations.

The calls are those of a Juju 4.0 unit agent whose charm has hooks that do nothing (internal/worker/uniter/uniter.go,
.../remotestate/watcher.go, .../relation/statetracker.go, internal/worker/leadership/tracker.go). Not included are
logs, upgrades, migrations, and all calls that a charm's own hooks would make.
A method that the controller does not have is skipped (some have other names before 4.0).
An idle unit has no task: the pending calls of its watchers call back.
"""

from __future__ import annotations

import random
from asyncio import Future
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.connection import Connection
from tippingpoint.targets.juju.api.errors import NOT_IMPLEMENTED, ApiError, result_error
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.targets.juju.api.model import fields, items, unit_tag
from tippingpoint.util import timing
from tippingpoint.util.backoff import backoff
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.spawn.operations import Ended, Operations

LEASE = 60.0
"""Seconds that a leader's lease lasts. It is renewed after half of them (jujud's leadership guarantee is 30 s)."""
RECONNECT_WITHIN = 5.0
"""Seconds within which a unit reconnects after losing its connection: at random, so as not to come all at once."""
_ABSENT = ("not found", "unauthorized access", "cannot enter scope")
_HOOKS = ("install", "leader-elected", "config-changed", "start")
_WATCHES = (
    ("Uniter", "WatchUnitResolveMode", "unit"),
    ("Uniter", "WatchConfigSettingsHash", "units"),
    ("Uniter", "WatchTrustConfigSettingsHash", "units"),
    ("Uniter", "WatchUnitAddressesHash", "units"),
    ("SecretsManager", "WatchConsumedSecretsChanges", "units"),
    ("SecretsManager", "WatchSecretRevisionsExpiryChanges", "units"),
    ("SecretsManager", "WatchSecretsRotationChanges", "units"),
    ("Uniter", "WatchApplication", "application"),
    ("Uniter", "WatchUnitStorageAttachments", "units"),
    ("Uniter", "WatchActionNotifications", "units"),
    ("Uniter", "WatchForModelConfigChanges", "nothing"),
    ("Uniter", "WatchAPIHostPorts", "nothing"),
    ("Logger", "WatchLoggingConfig", "units"),
    ("RetryStrategy", "WatchRetryStrategy", "units"),
)
"""Facade, method and parameter of the watchers whose changes an agent passes on to its charm."""
_KINDS = {
    "WatchRelationUnits": "RelationUnitsWatcher",
    "WatchSecretRevisionsExpiryChanges": "SecretsTriggerWatcher",
    "WatchSecretsRotationChanges": "SecretsTriggerWatcher",
}
"""By method that begins it: the facade of a watcher with events other than strings."""


class Agent:
    """One unit's agent, over its own connection."""

    def __init__(
        self,
        client: ApiClient,
        model: str,
        unit: str,
        identity: Identity,
        operations: Operations,
        schedule: Schedule,
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.identity = identity
        self.going = False
        """Whether its unit is about to be removed, so that failures are expected."""
        self._client = client
        self._model = model
        self._unit = unit
        self._application = unit.partition("/")[0]
        self._operations = operations
        self._schedule = schedule
        self._run = run
        self._connection: Connection | None = None
        self._relations: dict[str, bool] = {}
        """The relations it watches, by key, and whether it has entered their scope."""
        self._related: dict[str, set[str]] = {}
        """By relation key, the units that joined or changed and for which no hook has run yet."""
        self._work: deque[Callable[[Connection], Coroutine[Any, Any, None]]] = deque()
        """Work caused by changes. An agent does one piece of work after another."""
        self._busy = False
        self._leads = False
        self._failures = 0
        self._cut = False
        """Whether the connection was lost, possibly before `_connect_ended` was called."""
        self._closed = False
        self._paused = False

    @property
    def connected(self) -> bool:
        """Whether it is logged in."""
        return self._connection is not None

    @property
    def up(self) -> bool:
        """Whether it is logged in and has no work left."""
        return self._connection is not None and not self._busy

    def connect(self, intended: float, ready: float = 0.0) -> None:
        """Log in. After a rate limit, a failure or a lost connection it retries by itself."""
        if self._closed or self._connection is not None:
            return
        self._cut = False
        future = self._client.login(self.identity, self._model, self._lost)
        self._operations.begin("connect", future, intended, ready or intended, self._connect_ended)

    def pause(self) -> None:
        """Start no further logins."""
        self._paused = True

    def close(self) -> None:
        """Log out and end."""
        self._closed = True
        self._work.clear()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # -- the connection --------------------------------------------------------------------------

    def _connect_ended(self, ended: Ended) -> None:
        if ended.outcome == "ok":
            if self._closed or self._cut:
                ended.answer.close()
                return
            self._connection = ended.answer
            self._busy = True
            self._run(self._live(ended.answer))
        elif not self._closed and not self.going:
            # A login refused by a rate limit is still the same operation: its time counts from the first attempt.
            self._try_again(ended.moment, ended.intended if ended.outcome == "limited" else None)

    def _try_again(self, now: float, intended: float | None = None) -> None:
        self._failures += 1
        again = now + backoff(self._failures)
        self._connect_at(again, again if intended is None else intended)

    def _connect_at(self, moment: float, intended: float) -> None:
        def begin(due: float) -> None:
            if not self._paused:
                self.connect(intended, ready=due)

        self._schedule.at(moment, begin)

    def _forget(self) -> None:
        self._connection = None
        self._relations.clear()
        self._related.clear()
        self._work.clear()
        self._leads = False

    def _lost(self, reason: str) -> None:
        self._cut = True
        self._forget()
        if not self._closed and not self.going:
            self._operations.errors.note("connection", "lost", reason)
            moment = timing.monotonic() + random.uniform(0.0, RECONNECT_WITHIN)
            self._connect_at(moment, moment)

    # -- what an agent does ----------------------------------------------------------------------

    async def _live(self, connection: Connection) -> None:
        """Run the agent's start, then the work that came up during it. Later work starts its own task."""
        try:
            await self._start(connection)
        except ApiError as problem:
            self._note(problem)
            if self._connection is connection:
                connection.close()
                self._forget()
                if not self.going:
                    self._try_again(timing.monotonic())
            return
        except OperationFailed:
            return  # the connection was lost, and `_lost` was called
        self._failures = 0
        await self._do_work(connection)

    async def _do_work(self, connection: Connection) -> None:
        """Do the queued work in order. A refusal by the controller is recorded as an error of the run."""
        idle = False
        while self._connection is connection and (self._work or not idle):
            work = self._work.popleft() if self._work else self._set_idle
            idle = work == self._set_idle
            try:
                await work(connection)
            except ApiError as problem:
                self._note(problem)
            except OperationFailed:
                return  # the connection was lost, and `_lost` was called
        if self._connection is connection:
            self._busy = False

    def _later(self, connection: Connection, work: Callable[[Connection], Coroutine[Any, Any, None]]) -> None:
        self._work.append(work)
        if not self._busy:
            self._busy = True
            self._run(self._do_work(connection))

    def _note(self, problem: ApiError) -> None:
        if not self.going and not self._closed:
            self._operations.errors.note("agent", "error", str(problem))

    async def _start(self, connection: Connection) -> None:
        """Make the calls from login to idle, in the uniter's order (uniter.go init, loop; watcher.go loop)."""
        await self._lead(connection)
        await self._get(connection, "Refresh", self._entities)
        await self._get(connection, "UnitStatus", self._entities)
        await self._set_unit_status(connection, "waiting", "agent initialising")
        await self._get(connection, "GetPrincipal", self._entities)
        await self._get(connection, "State", self._entities)
        await self._get(connection, "RelationsStatus", self._entities)
        await self._get(connection, "UnitStorageAttachments", self._entities)
        await self._get(connection, "CurrentModel", None)
        url = await self._get(connection, "CharmURL", {"entities": [{"tag": self._application_tag}]})
        charm = {"tag": self.identity.tag, "charm-url": fields(first_result(url)).get("result") or ""}
        await self._get(connection, "SetCharm", {"entities": [charm]})
        await self._watch(connection, "Uniter", "WatchUnit", self._parameter("unit"), self._unit_changed)
        for facade, method, about in _WATCHES:
            await self._watch(connection, facade, method, self._parameter(about), self._handler(method))
        await self._watch(connection, "Uniter", "WatchUnitRelations", self._entities, self._relations_changed)
        for hook in _HOOKS:
            if hook != "leader-elected" or self._leads:
                await self._run_hook(connection, hook)
        await self._set_unit_status(connection, "active", "")

    def _handler(self, method: str) -> Callable[[Connection, Any], None]:
        """Return the handler for changes of one of _WATCHES, which does nothing where the charm has nothing to do."""
        return _ignore

    async def _run_hook(self, connection: Connection, hook: str) -> None:
        """Make the agent's own calls around a hook that does nothing (operation/runhook.go, runner/context)."""
        await self._set_agent_status(connection, "executing", f"running {hook} hook")
        await self._get(connection, "GetUnitContext", {"tag": self.identity.tag})
        change = {"tag": self.identity.tag, "update-network-info": hook == "config-changed"}
        await self._get(connection, "CommitHookChanges", {"args": [change]})
        state = {"tag": self.identity.tag, "uniter-state": f"op: continue\nhook: {hook}\n"}
        await self._get(connection, "SetState", {"args": [state]})

    def _unit_changed(self, connection: Connection, _: Any) -> None:
        self._later(connection, self._look_at_life)

    async def _look_at_life(self, connection: Connection) -> None:
        """Leave all relations and die if the unit is being removed (uniter.go terminate)."""
        answer = await self._get(connection, "Refresh", self._entities)
        if fields(first_result(answer)).get("life") != "dying":
            return
        self.going = True
        for key in [key for key, inside in self._relations.items() if inside]:
            self._relations[key] = False
            await self._get(connection, "LeaveScope", self._relation_unit(key), absent_is_fine=True)
        await self._get(connection, "EnsureDead", self._entities, absent_is_fine=True)
        self.close()

    def _relations_changed(self, connection: Connection, change: Any) -> None:
        for key in items(fields(change).get("changes")):
            self._later(connection, partial(self._look_at_relation, str(key)))

    async def _look_at_relation(self, key: str, connection: Connection) -> None:
        """Watch a relation's units and enter its scope, or leave it (watcher.go, statetracker.go joinRelation)."""
        scope = self._relation_unit(key)
        relation = fields(first_result(await self._get(connection, "Relation", scope, absent_is_fine=True)))
        life, number = relation.get("life"), relation.get("id")
        if life == "alive" and key not in self._relations:
            self._relations[key] = False
            changed = partial(self._related_units_changed, key)
            await self._watch(connection, "Uniter", "WatchRelationUnits", scope, changed)
            await self._get(connection, "RelationById", {"relation-ids": [number]}, absent_is_fine=True)
            answer = await self._get(connection, "EnterScope", scope, absent_is_fine=True)
            self._relations[key] = answer is not None
            if self._leads:
                status = {
                    "unit-tag": self.identity.tag,
                    "relation-id": number,
                    "status": "joined",
                    "message": "",
                }
                await self._get(connection, "SetRelationStatus", {"args": [status]}, absent_is_fine=True)
            await self._run_hook(connection, "link-relation-created")
        elif life != "alive" and self._relations.pop(key, False):
            await self._get(connection, "LeaveScope", scope, absent_is_fine=True)

    def _related_units_changed(self, key: str, connection: Connection, change: Any) -> None:
        changed = fields(fields(fields(change).get("changes")).get("changed"))
        if changed and key not in self._related:
            self._related[key] = set()
            self._later(connection, partial(self._look_at_units, key))
        if changed:
            self._related[key].update(changed)

    async def _look_at_units(self, key: str, connection: Connection) -> None:
        """Run relation-changed for the units that joined or changed, reading their settings in one call.

        A real agent runs a hook for each of them, so a unit in a large relation costs more than this.
        """
        units = sorted(self._related.pop(key, ()))
        pairs = [
            {"relation": relation_tag(key), "local-unit": self.identity.tag, "remote-unit": unit_tag(unit)}
            for unit in units
        ]
        answer = await self._get(
            connection, "ReadRemoteSettings", {"relation-unit-pairs": pairs}, absent_is_fine=True
        )
        for unit, result in zip(units, items(fields(answer).get("results")), strict=False):
            self._settings_read(key, unit, fields(result).get("settings"))
        await self._run_hook(connection, "link-relation-changed")

    def _settings_read(self, key: str, unit: str, settings: Any) -> None:
        """Receive the settings of a related unit: nothing here depends on them."""

    # -- leadership (internal/worker/leadership/tracker.go) ---------------------------------------

    async def _lead(self, connection: Connection) -> None:
        """Claim the application's leadership. If granted, renew it; if denied, wait for its release."""
        claim = {
            "application-tag": self._application_tag,
            "unit-tag": self.identity.tag,
            "duration": LEASE,
        }
        answer = await connection.call("LeadershipService", "ClaimLeadership", {"params": [claim]})
        error = result_error(first_result(answer), "LeadershipService", "ClaimLeadership")
        self._leads = error is None
        if error is None:
            self._schedule.at(timing.monotonic() + LEASE / 2, partial(self._lead_again, connection))
        else:
            released = connection.call(
                "LeadershipService", "BlockUntilLeadershipReleased", {"Name": self._application}
            )
            released.add_done_callback(partial(self._released, connection))

    def _released(self, connection: Connection, future: Future[Any]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._lead_again(connection, timing.monotonic())

    def _lead_again(self, connection: Connection, _: float) -> None:
        if self._connection is connection and not self.going:
            self._run(self._lead_on(connection))

    async def _lead_on(self, connection: Connection) -> None:
        try:
            await self._lead(connection)
        except ApiError as problem:
            self._note(problem)
        except OperationFailed:
            pass  # the connection was lost, and `_lost` was called

    # -- calls and watchers ----------------------------------------------------------------------

    async def _watch(
        self,
        connection: Connection,
        facade: str,
        method: str,
        parameter: object,
        changed: Callable[[Connection, Any], None],
    ) -> None:
        """Start a watcher, handle its first result, and keep a call for its next change pending."""
        try:
            answer = await connection.call(facade, method, parameter)
        except ApiError as problem:
            if problem.code == NOT_IMPLEMENTED:
                return
            raise
        result = fields(first_result(answer))
        error = result_error(result, facade, method)
        if error is not None:
            if error.code == NOT_IMPLEMENTED or (_is_absent(error) and method == "WatchRelationUnits"):
                return
            raise error
        kind = "NotifyWatcher"
        if "watcher-id" in result:
            kind = _KINDS.get(method, "StringsWatcher")
        watcher = str(result.get("watcher-id") or result.get("NotifyWatcherId") or "")
        if watcher:
            self._next(connection, kind, watcher, changed)
        changed(connection, result)

    def _next(
        self,
        connection: Connection,
        kind: str,
        watcher: str,
        changed: Callable[[Connection, Any], None],
    ) -> None:
        future = connection.call(kind, "Next", None, watcher)

        def came(future: Future[Any]) -> None:
            if future.cancelled() or future.exception() is not None or self._connection is not connection:
                return  # the watcher has ended, for instance with its unit or the connection
            self._next(connection, kind, watcher, changed)
            changed(connection, future.result())

        future.add_done_callback(came)

    async def _get(
        self, connection: Connection, method: str, parameter: object, absent_is_fine: bool = False
    ) -> Any:
        """Call the Uniter facade. None if the controller lacks the method, or the thing and `absent_is_fine`."""
        try:
            answer = await connection.call("Uniter", method, parameter)
            error = result_error(first_result(answer), "Uniter", method)
            if error is not None:
                raise error
        except ApiError as problem:
            if problem.code == NOT_IMPLEMENTED or (absent_is_fine and _is_absent(problem)):
                return None
            raise
        return answer

    async def _set_unit_status(self, connection: Connection, status: str, info: str) -> None:
        await self._set_status(connection, "SetUnitStatus", status, info)

    async def _set_idle(self, connection: Connection) -> None:
        await self._set_agent_status(connection, "idle", "")

    async def _set_agent_status(self, connection: Connection, status: str, info: str) -> None:
        await self._set_status(connection, "SetAgentStatus", status, info)

    async def _set_status(self, connection: Connection, method: str, status: str, info: str) -> None:
        entity = {"tag": self.identity.tag, "status": status, "info": info, "data": None}
        await self._get(connection, method, {"entities": [entity]})

    @property
    def _entities(self) -> dict[str, Any]:
        return {"entities": [{"tag": self.identity.tag}]}

    @property
    def _application_tag(self) -> str:
        return f"application-{self._application}"

    def _parameter(self, about: str) -> dict[str, Any] | None:
        match about:
            case "unit":
                return {"tag": self.identity.tag}
            case "application":
                return {"tag": self._application_tag}
            case "units":
                return self._entities
            case _:
                return None

    def _relation_unit(self, key: str) -> dict[str, Any]:
        return {"relation-units": [{"relation": relation_tag(key), "unit": self.identity.tag}]}


def _ignore(connection: Connection, change: Any) -> None:
    """Ignore a change: a hollow unit has nothing to do for it."""


def _is_absent(problem: ApiError) -> bool:
    """Whether a refusal means that the thing does not exist (any more). Some of Juju 4.0's have no code for it."""
    return problem.code in _ABSENT or (not problem.code and "not found" in problem.message)


def relation_tag(key: str) -> str:
    """The tag of a relation's key, as in names/v6 relation.go: "a:x b:y" is relation-a.x#b.y."""
    return "relation-" + key.replace(":", ".").replace(" ", "#")


def first_result(answer: Any) -> Any:
    """Return the one result of a call for one entity, or the whole answer if it is not a list of results."""
    results = fields(answer).get("results")
    if results is None:
        return answer
    found = items(results)
    return found[0] if found else None
