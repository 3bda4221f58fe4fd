"""One model of the operate workload: its shape, its units at work, and what operators made in it."""

from __future__ import annotations

import asyncio
import random
from asyncio import Future
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tippingpoint.errors import OperationFailed
from tippingpoint.plan.operate import ModelShape
from tippingpoint.targets.juju.api import charm
from tippingpoint.targets.juju.api.access import ControllerAccess
from tippingpoint.targets.juju.api.client import ApiClient
from tippingpoint.targets.juju.api.errors import ApiError
from tippingpoint.targets.juju.api.log_stream import LogStream
from tippingpoint.targets.juju.api.login import Identity
from tippingpoint.targets.juju.api.model import GONE, HollowMachineSpec, ModelAdmin, fields, items
from tippingpoint.targets.juju.grow_steps import Existing, Pair, Share
from tippingpoint.targets.juju.hollow import (
    APPLICATIONS_PER_CALL,
    application_name,
    batches,
    find_model,
    instance_id,
    make_model,
)
from tippingpoint.targets.juju.hollow_agents import Agents
from tippingpoint.targets.juju.work import Noticing
from tippingpoint.targets.juju.working_agent import WorkingAgent
from tippingpoint.workloads.schedule import Schedule
from tippingpoint.workloads.spawn.operations import Operations

_ADDRESS = "192.0.2.1"  # in TEST-NET-1 of RFC 5737: assigned to nobody
_ALL = Share(0, 1)
_TRIES = 20
"""Units that are tried to find one that is logged in."""
_LOOK_AGAIN = 1.0
"""Seconds between two requests for a model's status while something is being removed from it."""


@dataclass(frozen=True, slots=True)
class Link:
    """A relation of the shape: its key, and the units of both applications."""

    key: str
    units: tuple[Sequence[str], Sequence[str]]

    def others(self, unit: str) -> Sequence[str]:
        """Return the units on the other side of one."""
        return self.units[unit in self.units[0]]


@dataclass
class Made:
    """What operators have made in a model, and not removed yet."""

    applications: list[str] = field(default_factory=list[str])
    units: dict[str, str] = field(default_factory=dict[str, str])
    """Units that were added, with their machines."""
    relations: list[Pair] = field(default_factory=list[Pair])
    changing: set[Pair] = field(default_factory=set[Pair])
    """Relations that a command is making or removing now."""
    offers: list[str] = field(default_factory=list[str])
    """Names of offers."""
    saas: list[str] = field(default_factory=list[str])
    secrets: list[str] = field(default_factory=list[str])
    granted: bool | None = False
    """Whether a user was granted access; None while a command changes it."""


class OperatedModel:
    """One model, which belongs to one worker. `worker` is part of the name of its machine."""

    def __init__(
        self,
        client: ApiClient,
        access: ControllerAccess,
        name: str,
        prefix: str,
        worker: str,
        operations: Operations,
        schedule: Schedule,
        rotate: float = 0.0,
    ) -> None:
        """`rotate` is the time in seconds after which a revision of a shared secret expires; 0 for never."""
        self.name = name
        self.uuid = ""
        """Empty until it exists."""
        self.machine = ""
        """The id of its one machine."""
        self.links: list[Link] = []
        self.applications: dict[str, list[str]] = {}
        """The units of each application of the shape."""
        self.made = Made()
        self.secrets: dict[str, str] = {}
        """By relation key, the URI of the secret that the first unit on its first side shares with the other side."""
        self.noticing = Noticing()
        self.sink: LogStream | None = None
        self._client = client
        self._access = access
        self._prefix = prefix
        self._worker = worker
        self._admin: ModelAdmin | None = None
        self._charm_url: str | None = None
        self._shape: ModelShape | None = None
        self._operations = operations
        self._schedule = schedule
        self._rotate = rotate
        self._agents: Agents | None = None

    # -- its shape -----------------------------------------------------------------------------------

    async def become(self, shape: ModelShape) -> None:
        """Make the model if it does not exist, bring it to a shape, and log its units in.

        Whatever exists stays, so that a failed call can be repeated. A model that somebody destroyed is made again.
        Raises OperationFailed.
        """
        self._shape = None
        try:
            await self._become(shape)
        except ApiError as problem:
            if not self.uuid or problem.code not in GONE:
                raise
            self.close()
            self.uuid, self._admin, self._agents, self._charm_url = "", None, None, None
            self.made = Made()
            await self._become(shape)
        self._shape = shape

    async def _become(self, shape: ModelShape) -> None:
        if not self.uuid:
            try:
                self.uuid = await make_model(self._access, self.name)
            except OperationFailed as problem:
                if "already exists" not in str(problem):
                    raise
                self.uuid = await find_model(self._access, self.name)
        admin = await self._administrator()
        while True:
            status = await admin.full_status()
            existing = Existing.of(status, _ALL, self._prefix, self._worker)
            relations = _own_relations(status, self._prefix)
            if not await self._go_towards(admin, shape, existing, relations):
                if not existing.going:
                    break
                await asyncio.sleep(_LOOK_AGAIN)
        self._see(shape, existing, relations)

    async def _go_towards(
        self, admin: ModelAdmin, shape: ModelShape, existing: Existing, relations: Mapping[Pair, str]
    ) -> bool:
        """Make what is missing and remove what is superfluous; returns whether there was anything to do."""
        machines = [*existing.staying_machines().values()]
        if not machines:
            spec = HollowMachineSpec(instance_id(self._prefix, self._worker, 0), _ADDRESS)
            machines = await admin.add_machines([spec])
        self.machine = machines[0]
        changed = False
        missing: dict[int, list[str]] = {}
        for number, units in enumerate(shape.applications):
            if number not in existing.units:
                missing.setdefault(units, []).append(application_name(self._prefix, number))
        for units, names in missing.items():
            for batch in batches(names, APPLICATIONS_PER_CALL):
                await admin.deploy(batch, units, self.machine)
                changed = True
        self._charm_url = await admin.hollow_charm()
        for number in existing.units:
            changed |= await self._resize(admin, number, shape, existing)
        for pair in sorted(shape.pairs - relations.keys()):
            await admin.relate(*self.ends(*pair))
            changed = True
        stay = range(len(shape.applications))
        for pair in sorted(relations.keys() - shape.pairs):
            if pair[0] in stay and pair[1] in stay and existing.has(pair[0]) and existing.has(pair[1]):
                await admin.destroy_relation(*self.ends(*pair))
                changed = True
        return changed

    async def _resize(self, admin: ModelAdmin, number: int, shape: ModelShape, existing: Existing) -> bool:
        if ("application", number) in existing.going:
            return False
        name = application_name(self._prefix, number)
        if number >= len(shape.applications):
            self.agents.let_go(existing.units[number])
            await admin.destroy_applications([name])
            return True
        wanted = shape.applications[number]
        staying = sorted(existing.staying_units(number), key=unit_number)
        if len(staying) < wanted:
            await admin.add_units(name, wanted - len(staying), [self.machine])
        elif len(staying) > wanted:
            self.agents.let_go(staying[wanted:])
            await admin.destroy_units(staying[wanted:])
        return len(staying) != wanted

    def _see(self, shape: ModelShape, existing: Existing, relations: Mapping[Pair, str]) -> None:
        self.applications = {
            application_name(self._prefix, number): sorted(existing.units.get(number, {}), key=unit_number)
            for number in range(len(shape.applications))
        }
        names = [*self.applications]
        self.links = [
            Link(relations[pair], (self.applications[names[pair[0]]], self.applications[names[pair[1]]]))
            for pair in sorted(shape.pairs & relations.keys())
        ]
        keys = {link.key for link in self.links}
        self.secrets = {key: uri for key, uri in self.secrets.items() if key in keys}
        there = {unit: on for units in existing.units.values() for unit, on in units.items()}
        self.made.units = {
            unit: on
            for unit, on in self.made.units.items()
            if unit in there or unit.partition("/")[0] in self.made.applications
        }
        self.agents.want({**there, **self.made.units}, existing.going)

    # -- its units ------------------------------------------------------------------------------------

    @property
    def agents(self) -> Agents:
        """The agents of its units; the model has to exist."""
        if self._agents is None:
            make = partial(WorkingAgent, self.noticing)
            self._agents = Agents(
                self._client, self.uuid, self._machine_identity, self._operations, self._schedule, make
            )
        return self._agents

    @property
    def connected(self) -> int:
        """How many units are logged in."""
        return self._agents.connected if self._agents is not None else 0

    @property
    def units(self) -> int:
        """How many units exist, as far as is known."""
        return sum(map(len, self.applications.values()))

    @property
    def up(self) -> bool:
        """Whether it has a shape, and every unit is logged in and has no work left."""
        return self._shape is not None and self.agents.up

    def agent(self, unit: str) -> WorkingAgent | None:
        """Return the agent of a unit if it is logged in."""
        agent = self.agents.of(unit)
        return agent if isinstance(agent, WorkingAgent) and agent.connected else None

    def logged_in(self, units: Sequence[str]) -> list[str]:
        """Return those of these units that are logged in."""
        return [unit for unit in units if self.agent(unit) is not None]

    async def share_secrets(self) -> None:
        """For each relation of the shape, have the first unit make a secret that the whole other side reads."""
        for link in self.links:
            owners, readers = link.units
            owner = self.agent(owners[0]) if owners else None
            if link.key in self.secrets or owner is None or not readers:
                continue
            present = partial(self.logged_in, readers)
            uri = await owner.make_secret(link.key, readers[0].partition("/")[0], self._rotate, present)
            for unit in readers:
                agent = self.agent(unit)
                if agent is not None:
                    await agent.read_secret(uri)
            self.secrets[link.key] = uri

    async def open_sink(self) -> None:
        """Open the sink that the units' log lines are written to, unless it is open."""
        if self.sink is None or self.sink.closed:
            self.sink = self._client.log_sink(await self._machine_identity(self.machine), self.uuid)
            await self.sink.accepted

    def at_work(self, unit: str, done: Future[None]) -> None:
        """Start an agent for a unit that operators added, and end a future once it is logged in and idle."""
        self.made.units[unit] = self.machine
        self.agents.add({unit: self.machine})
        agent = self.agents.of(unit)
        assert isinstance(agent, WorkingAgent)
        agent.started(done)

    def drop(self) -> None:
        """Log all units out and in again at once, as the agents of a restarted machine would."""
        if self._agents is None:
            return
        self._agents.close()
        there = {unit: self.machine for units in self.applications.values() for unit in units}
        self._agents.want({**there, **self.made.units}, ())

    # -- names ------------------------------------------------------------------------------------------

    def ends(self, one: int, other: int) -> tuple[str, str]:
        """Return the endpoints of a relation between two applications, by their numbers."""
        first, second = (application_name(self._prefix, number) for number in (one, other))
        return f"{first}:{charm.PROVIDES}", f"{second}:{charm.REQUIRES}"

    def a_unit(self) -> str | None:
        """Return a random unit of the shape that is logged in; None if twenty tries find none."""
        units = [unit for units in self.applications.values() for unit in units]
        for _ in range(_TRIES if units else 0):
            unit = random.choice(units)
            if self.agent(unit) is not None:
                return unit
        return None

    def close(self) -> None:
        """Log everybody out."""
        if self.sink is not None:
            self.sink.close()
        if self._agents is not None:
            self._agents.close()
        if self._admin is not None:
            self._admin.close()

    def stop(self) -> None:
        """Start no further logins."""
        if self._agents is not None:
            self._agents.stop()

    # -- its administrator ----------------------------------------------------------------------------

    async def _administrator(self) -> ModelAdmin:
        if self._admin is None or self._admin.lost:
            self._admin = await ModelAdmin.open(
                self._client, self._access, self.uuid, charm_url=self._charm_url
            )
        return self._admin

    async def _machine_identity(self, machine: str) -> Identity:
        spec = HollowMachineSpec(instance_id(self._prefix, self._worker, 0), _ADDRESS)
        return await (await self._administrator()).machine_identity(machine, spec.nonce)


def unit_number(unit: str) -> int:
    """Return the number at the end of a unit's name."""
    return int(unit.rpartition("/")[2])


def _own_relations(status: Mapping[str, Any], prefix: str) -> dict[Pair, str]:
    """Return the keys of the relations made for a shape, by pair of applications: the lower one provides."""
    stem = application_name(prefix, 0)[:-1]
    found: dict[Pair, str] = {}
    for details in items(status.get("relations")):
        relation = fields(details)
        ends = {
            str(fields(end).get("name")): str(fields(end).get("application")).removeprefix(stem)
            for end in items(relation.get("endpoints"))
        }
        one, other = ends.get(charm.PROVIDES, ""), ends.get(charm.REQUIRES, "")
        if one.isdecimal() and other.isdecimal() and int(one) < int(other):
            found[int(one), int(other)] = str(relation.get("key"))
    return found
