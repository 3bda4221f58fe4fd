"""The Juju target of the claim workload: application leadership, claimed by units over connections of their own.

A unit may only claim the lease of its own application. There are two identities:

- `hollow`: lease N is application `PREFIX-lN` of a fleet of hollow units created for the run. Every unit logs in
  as itself. Any stock controller will do.

- `agent`: all units log in as one real unit and claim leases for applications that do not exist. Only a
  controller patched to allow it grants these. The published test was made this way.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from asyncio import Future
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tippingpoint.errors import Limited, OperationFailed, TargetError
from tippingpoint.plan.claim import MAX_LEASES
from tippingpoint.targets.juju.api.access import AgentAccess, ControllerAccess
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.connection import Connection
from tippingpoint.targets.juju.api.errors import (
    UNAUTHORIZED,
    ApiError,
    ConnectionLost,
    result_error,
    result_errors,
)
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.targets.juju.api.model import ask, log_in
from tippingpoint.targets.juju.hollow import HollowFleet, application_name
from tippingpoint.util.bound import Bound
from tippingpoint.workloads.claim.target import Holding
from tippingpoint.workloads.load import OnProgress, TargetFacts

T = TypeVar("T")

_FACADE = "LeadershipService"
_DENIED = "leadership claim denied"
_UNITS = 1024
"""Exceeds a lease's number of contenders. (lease, unit) becomes one number, to keep tens of thousands of keys small."""
_CLOSED_AT_A_TIME = 200
"""Connections closed in one turn of the event loop."""
_WATCH_AGAIN = 1.0
"""Seconds before a unit claims again after its wait for a release was refused."""
_PAUSE = (1.0, 3.0)
"""The minimum and the maximum seconds until the next attempt to prepare leases."""
_PREPARE_PATIENCE = 120.0
"""Seconds without progress after which creating the fleet is no longer retried. A restarted controller is back
within seconds, one with thousands of units within a minute."""
_PROBE_SECONDS = 5.0
"""The shortest lease a controller grants."""


class _Leases(ABC):
    """Common part of both identities: claims, renewals and waits, each on the unit's own connection."""

    def __init__(self, addresses: Sequence[str], ca: str, model: str, prefix: str, claim_time: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._members = list(addresses)
        self._client = ApiClient(addresses, ca)
        self._model = model
        self._prefix = prefix
        self._claim_time = claim_time
        self._connections: dict[int, Connection] = {}
        self._dialling: dict[int, Future[Connection]] = {}
        self._waits: dict[int, Future[Any]] = {}

    @abstractmethod
    def _identity(self, application: str, holder: int) -> Identity:
        """Return the identity with which a unit logs in."""

    # -- connections ---------------------------------------------------------------------------------

    def connect(
        self, lease: int, holder: int, begun: Callable[[], None], lost: Callable[[str], None]
    ) -> Future[Connection]:
        """Log in one unit, as itself."""
        key = _key(lease, holder)
        self.disconnect(lease, holder)
        identity = self._identity(self._application(lease), holder)
        dialling = self._client.login(identity, self._model, Bound(_Leases._lost, self, key, lost), begun)
        self._dialling[key] = dialling
        dialling.add_done_callback(Bound(_Leases._dialled, self, lease, holder))
        return dialling

    def _dialled(self, lease: int, holder: int, dialling: Future[Connection]) -> None:
        key = _key(lease, holder)
        wanted = self._dialling.get(key) is dialling
        if wanted:
            del self._dialling[key]
        if dialling.cancelled() or dialling.exception() is not None:
            return
        connection = dialling.result()
        if not wanted:
            connection.close()  # cancelled just as it logged in
        elif not connection.closed:
            self._connections[key] = connection

    def _lost(self, key: int, lost: Callable[[str], None], reason: str) -> None:
        self._connections.pop(key, None)
        self._waits.pop(key, None)
        lost(reason)

    def disconnect(self, lease: int, holder: int) -> None:
        """Close a unit's connection, or cancel its login."""
        key = _key(lease, holder)
        self._waits.pop(key, None)
        dialling = self._dialling.pop(key, None)
        if dialling is not None:
            dialling.cancel()
        connection = self._connections.pop(key, None)
        if connection is not None:
            connection.close()

    async def drop(self) -> None:
        """Close all units' connections at once. Their leases stay held until they expire."""
        self._waits.clear()
        for dialling in [*self._dialling.values()]:
            dialling.cancel()
        self._dialling.clear()
        connections = [*self._connections.values()]
        self._connections.clear()
        for number, connection in enumerate(connections, start=1):
            connection.close()
            if number % _CLOSED_AT_A_TIME == 0:
                await asyncio.sleep(0)

    async def close(self) -> None:
        """Close every connection."""
        await self.drop()
        await self._client.close()

    # -- leases --------------------------------------------------------------------------------------

    def claim(self, lease: int, holder: int) -> Future[Holding | None]:
        """Claim the leadership of the lease's application."""
        return self._ask(
            lease, holder, lambda response: Holding(lease, holder) if _granted(response) else None
        )

    def extend(self, holding: Holding) -> Future[bool]:
        """Claim again, which is how Juju's leases are extended."""
        return self._ask(holding.lease, holding.holder, _granted)

    def _ask(self, lease: int, holder: int, result: Callable[[Any], T]) -> Future[T]:
        connection = self._connections.get(_key(lease, holder))
        if connection is None:
            return self._failed(OperationFailed("not connected"))
        parameters = self._parameters(lease, holder, self._claim_time)
        return connection.call(_FACADE, "ClaimLeadership", parameters, result=result)

    def _parameters(self, lease: int, holder: int, duration: float) -> dict[str, Any]:
        application = self._application(lease)
        return {
            "params": [
                {
                    "application-tag": f"application-{application}",
                    "unit-tag": f"unit-{application}-{holder}",
                    "duration": duration,
                }
            ]
        }

    def watch_release(self, lease: int, holder: int, released: Callable[[], None]) -> None:
        """Ask the controller to answer when the lease is released. A lost connection ends the wait."""
        key = _key(lease, holder)
        connection = self._connections.get(key)
        if connection is None:
            return  # lost in the meantime: the unit claims when it is connected again
        call = connection.call(_FACADE, "BlockUntilLeadershipReleased", {"Name": self._application(lease)})
        self._waits[key] = call
        call.add_done_callback(Bound(_Leases._answered, self, key, released))

    def _answered(self, key: int, released: Callable[[], None], call: Future[Any]) -> None:
        # Always retrieved, or asyncio reports it on standard error.
        problem = None if call.cancelled() else call.exception()
        if self._waits.get(key) is not call:
            return
        del self._waits[key]
        if call.cancelled() or isinstance(problem, ConnectionLost):
            return
        if problem is None and result_error(call.result()) is None:
            released()
        else:
            # Refused, for instance by a controller that is shutting down: the lease may or may not be free.
            self._loop.call_later(_WATCH_AGAIN, released)

    def unwatch(self, lease: int, holder: int) -> None:
        """Stop waiting. A late answer of the controller is dropped."""
        call = self._waits.pop(_key(lease, holder), None)
        if call is not None:
            call.cancel()

    def release(self, holding: Holding) -> Future[None]:
        """Do nothing: Juju's agents have no call for it. A lease ends when it expires."""
        answer: Future[None] = self._loop.create_future()
        answer.set_result(None)
        return answer

    def _failed(self, problem: OperationFailed) -> Future[Any]:
        answer: Future[Any] = self._loop.create_future()
        answer.set_exception(problem)
        return answer

    def _application(self, lease: int) -> str:
        # Units of a generation that was abandoned come back as themselves, as restarted agents do.
        return application_name(self._prefix, lease % MAX_LEASES)


class HollowLeases(_Leases):
    """Leases of a fleet of hollow units, on any controller."""

    def __init__(
        self, access: ControllerAccess, model: str, prefix: str, worker: str, claim_time: float
    ) -> None:
        super().__init__(access.addresses, access.ca, model, prefix, claim_time)
        self._access = access
        self._fleet = HollowFleet(self._client, access, model, prefix, worker)

    async def open(self) -> TargetFacts:
        """Log in as the model's administrator; TargetError if that is refused or no server can be reached."""
        try:
            admin = await log_in(self._client, self._access.user, self._model)
            version = admin.server_version
            admin.close()
            await self._fleet.open()
        except OperationFailed as problem:
            raise TargetError(
                self._access.controller_name, str(problem), "a controller that accepts the login"
            ) from None
        return TargetFacts("juju", version, self._members, self._access.controller_name)

    async def prepare(self, leases: Sequence[int], units: int, progress: OnProgress) -> None:
        """Create the applications and units of these leases. After an interruption, continue with the missing ones."""
        applications = [self._application(lease) for lease in leases]
        got_on = self._loop.time()
        most: dict[str, int] = {}

        def note(what: str, done: int, goal: int) -> None:
            nonlocal got_on
            if done > most.get(what, -1):
                most[what] = done
                got_on = self._loop.time()
            progress(what, done, goal)

        while True:
            try:
                await self._fleet.grow(applications, units, note)
            except (ConnectionLost, Limited, ApiError) as problem:
                refused = isinstance(problem, ApiError) and not problem.passing
                if refused or self._loop.time() - got_on > _PREPARE_PATIENCE:
                    raise
                await asyncio.sleep(random.uniform(*_PAUSE))
            else:
                return

    def _identity(self, application: str, holder: int) -> Identity:
        return self._fleet.identity(f"{application}/{holder}")

    async def close(self) -> None:
        """Close every connection, including the fleet's."""
        await self._fleet.close()
        await super().close()


class AgentLeases(_Leases):
    """Leases of applications that need not exist, on a controller patched to let one agent claim them all."""

    def __init__(self, access: AgentAccess, prefix: str, claim_time: float) -> None:
        super().__init__(access.addresses, access.ca, access.model, prefix, claim_time)
        self._agent = access.agent

    async def open(self) -> TargetFacts:
        """Log in as the agent and check that it may claim for another application; TargetError if not."""
        where = self._agent.tag
        try:
            connection = await log_in(self._client, self._agent, self._model)
            version = connection.server_version
            parameters = self._parameters(MAX_LEASES - 1, 0, _PROBE_SECONDS)
            response = await ask(connection, _FACADE, "ClaimLeadership", parameters)
            connection.close()
            (refusal,) = result_errors(response) or [ApiError("an empty answer")]
        except OperationFailed as problem:
            raise TargetError(where, str(problem), "a controller that accepts this agent") from None
        if refusal is not None and refusal.code == UNAUTHORIZED:
            raise TargetError(
                where,
                f"{refusal.message}: the controller is not patched to let one agent claim every lease",
                "target.identity=hollow, which needs no patch",
            )
        return TargetFacts("juju", version, self._members)

    async def prepare(self, leases: Sequence[int], units: int, progress: OnProgress) -> None:
        """Do nothing: the applications need not exist."""

    def _identity(self, application: str, holder: int) -> Identity:
        return self._agent


def _granted(response: Any) -> bool:
    """Whether a claim was granted; ApiError if it was neither granted nor denied."""
    (refusal,) = result_errors(response, _FACADE, "ClaimLeadership") or [ApiError("an empty answer")]
    if refusal is None:
        return True
    if refusal.code == _DENIED:
        return False
    raise refusal


def _key(lease: int, holder: int) -> int:
    return (lease % MAX_LEASES) * _UNITS + holder
