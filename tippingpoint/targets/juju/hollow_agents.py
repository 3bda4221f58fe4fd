"""The agents of a worker's units. As in Juju, each gets a password from its machine's agent, and a connection."""

from __future__ import annotations

import asyncio
import secrets
from asyncio import Task
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from tippingpoint.errors import OperationFailed
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.connection import Connection
from tippingpoint.targets.juju.api.errors import ConnectionLost, result_errors
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.targets.juju.api.model import ask, log_in, unit_tag
from tippingpoint.targets.juju.hollow import PASSWORDS_PER_CALL
from tippingpoint.targets.juju.hollow_agent import Agent
from tippingpoint.util import timing
from tippingpoint.util.backoff import backoff
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.spawn.operations import Operations


class Agents:
    """The agents of one worker's units; used from one event loop."""

    def __init__(
        self,
        client: ApiClient,
        model: str,
        machine_identity: Callable[[str], Awaitable[Identity]],
        operations: Operations,
        schedule: Schedule,
        make: Callable[..., Agent] = Agent,
    ) -> None:
        """`make` returns an agent for the arguments of Agent."""
        self._make = make
        self._client = client
        self._model = model
        self._machine_identity = machine_identity
        self._operations = operations
        self._schedule = schedule
        self._agents: dict[str, Agent] = {}
        self._without_password: dict[str, list[str]] = {}
        self._setting: set[str] = set()
        self._machines: dict[str, Connection] = {}
        self._tasks: set[Task[None]] = set()
        self._stopped = False

    @property
    def up(self) -> bool:
        """Whether every unit is logged in and has no work left."""
        return all(agent.up for agent in self._agents.values())

    @property
    def connected(self) -> int:
        """The number of units that are logged in."""
        return sum(agent.connected for agent in self._agents.values())

    def of(self, unit: str) -> Agent | None:
        """Return the agent of a unit."""
        return self._agents.get(unit)

    def want(self, units: Mapping[str, str], going: Collection[object]) -> None:
        """Have an agent for exactly these units (name to machine id). A unit being removed gets no new agent."""
        for unit in self._agents.keys() - units.keys():
            self._agents.pop(unit).close()
        self.let_go(unit for unit in self._agents if unit in going)
        self.add({unit: machine for unit, machine in units.items() if unit not in going})

    def let_go(self, units: Iterable[str]) -> None:
        """Note that removal of these units was requested: from now on, failures of their agents are expected."""
        for unit in units:
            if unit in self._agents:
                self._agents[unit].going = True

    def add(self, units: Mapping[str, str]) -> None:
        """Have agents for these units, too (name to machine id).

        A unit without a machine gets no agent yet, because the machine sets its password.
        """
        self._stopped = False
        for unit, machine in units.items():
            if unit not in self._agents and machine:
                identity = Identity(unit_tag(unit), secrets.token_urlsafe(24))
                agent = self._make(
                    self._client, self._model, unit, identity, self._operations, self._schedule, self._run
                )
                self._agents[unit] = agent
                self._without_password.setdefault(machine, []).append(unit)
        for machine in self._without_password.keys() - self._setting:
            self._setting.add(machine)
            self._run(self._set_passwords(machine))

    def stop(self) -> None:
        """Start nothing new. Open connections stay open."""
        self._stopped = True
        for agent in self._agents.values():
            agent.pause()

    def close(self) -> None:
        """Log every unit out."""
        self._stopped = True
        for task in list(self._tasks):
            task.cancel()
        for agent in self._agents.values():
            agent.close()
        for connection in self._machines.values():
            connection.close()
        self._agents.clear()
        self._machines.clear()
        self._without_password.clear()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ran)

    def _ran(self, task: Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._operations.errors.note("agent", "error", f"{type(problem).__name__}: {problem}")

    async def _set_passwords(self, machine: str) -> None:
        """As the machine's agent, set the passwords of its units until every unit has one."""
        failures = 0
        try:
            while not self._stopped:
                waiting = [unit for unit in self._without_password.pop(machine, []) if unit in self._agents]
                if not waiting:
                    return
                units = waiting[:PASSWORDS_PER_CALL]
                done: set[str] = set()
                try:
                    done = await self._change(machine, units)
                except OperationFailed as problem:
                    self._operations.errors.note("password", "error", str(problem))
                left = [unit for unit in waiting if unit not in done]
                if left:
                    self._without_password.setdefault(machine, []).extend(left)
                now = timing.monotonic()
                for unit in units:
                    if unit in done and unit in self._agents:
                        self._agents[unit].connect(now)
                failures = 0 if done else failures + 1
                if not done:
                    await asyncio.sleep(backoff(failures))
        finally:
            self._setting.discard(machine)

    async def _change(self, machine: str, units: Sequence[str]) -> set[str]:
        connection = self._machines.get(machine)
        if connection is None:
            identity = await self._machine_identity(machine)
            lost = partial(self._machine_lost, machine)
            connection = self._machines[machine] = await log_in(self._client, identity, self._model, lost)
        identities = [self._agents[unit].identity for unit in units]
        changes = [{"tag": identity.tag, "password": identity.password} for identity in identities]
        try:
            answer = await ask(connection, "Deployer", "SetPasswords", {"changes": changes})
        except ConnectionLost:
            self._machines.pop(machine, None)  # may have been lost before `log_in` returned
            raise
        done: set[str] = set()
        for unit, error in zip(units, result_errors(answer, "Deployer", "SetPasswords"), strict=False):
            if error is None:
                done.add(unit)
            else:
                self._operations.errors.note("password", "error", str(error))
        return done

    def _machine_lost(self, machine: str, reason: str) -> None:
        self._machines.pop(machine, None)
