"""One model in a simulated controller: charms, machines, applications, units and relations."""

from __future__ import annotations

import fnmatch
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

from lab.juju.charm import Charm, Endpoint, read_charm
from lab.juju.leases import Leases
from lab.juju.offers import Connection, Consumed, Offer
from lab.juju.operations import Operations
from lab.juju.refusals import Refused, not_found
from lab.juju.relation import Databag, Relation
from lab.juju.secret_store import SecretStore
from lab.juju.statuses import Status
from lab.juju.watchers import Topics

_APPLICATION = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]*[a-z][a-z0-9]*)*")
"""Matches valid application names: every part after a dash has a letter (names.IsValidApplication)."""


@dataclass(slots=True)
class Machine:
    """A manual machine: it exists in the controller only."""

    id: str
    instance_id: str
    nonce: str
    base: dict[str, str]
    hardware: dict[str, Any]
    addresses: list[str]
    password: str = ""
    units: dict[str, None] = field(default_factory=dict[str, None])
    status: Status = field(default_factory=lambda: Status("pending"))


@dataclass(slots=True)
class Unit:
    """A unit. `password` is empty until it is set; an empty one allows no login."""

    name: str
    machine: str
    password: str = ""
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    """What the agent keeps in the controller, by the API's keys: "uniter-state", "charm-state", ..."""
    agent: Status | None = None
    workload: Status | None = None
    workload_version: str = ""
    ports: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """Open ports, such as "80/tcp", by endpoint; "" is all endpoints."""

    @property
    def application(self) -> str:
        return self.name.partition("/")[0]


@dataclass(slots=True)
class Application:
    """An application with its charm and units. Unit numbers are never reused."""

    name: str
    charm: Charm
    base: dict[str, str]
    config: dict[str, Any]
    constraints: dict[str, Any]
    units: dict[str, Unit] = field(default_factory=dict[str, Unit])
    next_unit: int = 0
    exposed: dict[str, Any] | None = None
    """What is exposed to whom, by endpoint; None for nothing."""
    status: Status | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The values of all options that have one."""
        options = {
            name: self.config.get(name, option.get("default")) for name, option in self.charm.config.items()
        }
        return {name: value for name, value in options.items() if value is not None}

    @property
    def config_hash(self) -> str:
        """Juju's hash of what was set, and of trust (hashConfigAndSettings of domain/application/state)."""
        text = "".join(f"{name}{value}" for name, value in sorted(self.config.items()))
        return sha256(f"{text}false".encode()).hexdigest()


class Model:
    """One model with its watchers."""

    def __init__(self, name: str, owner: str, leases: Leases) -> None:
        self.uuid = str(uuid.uuid4())
        self.name = name
        self.owner = owner
        self.life = "alive"
        self.kept: str | None = None
        """The message with which it refuses to be destroyed; None if it does not."""
        self.users = {owner: "admin"}
        """Users' levels (accounts.MODEL_LEVELS)."""
        self.last_connections: dict[str, str] = {}
        """When users last logged in."""
        self.config: dict[str, Any] = {}
        """The model's own config that was set."""
        self.log_lines = 0
        """The number of lines that agents have sent to the log sink."""
        self.leases = leases
        self.topics = Topics()
        self.operations = Operations(self.topics)
        self.secrets = SecretStore(self.topics)
        self.offers: dict[str, Offer] = {}
        self.consumed: dict[str, Consumed] = {}
        self.charms: dict[str, Charm] = {}
        self.machines: dict[str, Machine] = {}
        self.applications: dict[str, Application] = {}
        self.relations: dict[int, Relation] = {}
        self._passwords: dict[str, Unit] = {}
        self._by_application: dict[str, dict[int, Relation]] = {}
        self._next_machine = 0
        self._next_relation = 0

    def add_charm(self, name: str, archive: bytes, sha256: str) -> Charm:
        """Add a charm from its archive, with the next revision of its name. Raises Refused if it is no charm."""
        revision = sum(charm.name == name for charm in self.charms.values())
        charm = read_charm(name, revision, archive, sha256)
        self.charms[charm.url] = charm
        return charm

    def add_machine(
        self,
        instance_id: str,
        nonce: str,
        base: dict[str, str],
        hardware: dict[str, Any],
        addresses: list[str],
    ) -> Machine:
        """Add a manual machine."""
        machine = Machine(str(self._next_machine), instance_id, nonce, base, hardware, addresses)
        self._next_machine += 1
        self.machines[machine.id] = machine
        return machine

    def deploy(
        self,
        name: str,
        url: str,
        base: dict[str, str],
        config: dict[str, Any],
        constraints: dict[str, Any],
    ) -> Application:
        """Add an application without units."""
        if not _APPLICATION.fullmatch(name):
            raise Refused("application name is not valid", "not valid")
        charm = self.charms.get(url)
        if charm is None:
            raise not_found(f'charm "{url.partition(":")[2].rpartition("-")[0]}"')
        if name in self.applications or name in self.consumed:
            raise Refused(
                f'creating application "{name}": creating IAAS application "{name}": inserting IAAS application '
                f'"{name}": checking if application "{name}" exists: application already exists'
            )
        application = Application(name, charm, base, config, constraints)
        self.applications[name] = application
        for endpoint in charm.endpoints.values():
            if endpoint.role == "peer":
                self._add_relation([(name, endpoint)])
        return application

    def add_unit(self, application: Application, machine: str) -> Unit:
        """Add a unit on an existing machine."""
        host = self.machines[machine]
        unit = Unit(f"{application.name}/{application.next_unit}", machine)
        application.next_unit += 1
        application.units[unit.name] = unit
        host.units[unit.name] = None
        return unit

    def unit(self, name: str) -> Unit | None:
        """Return a unit by name; None without one."""
        application = self.applications.get(name.partition("/")[0])
        return application.units.get(name) if application else None

    def remove_unit(self, unit: Unit) -> None:
        """Remove a unit and its lease at once, as Juju removes a hollow unit by force."""
        self.applications[unit.application].units.pop(unit.name, None)
        if unit.machine in self.machines:
            self.machines[unit.machine].units.pop(unit.name, None)
        self._passwords.pop(unit.password, None)
        for relation in self.relations_of(unit.application):
            self.leave(relation, unit.name)
        self.leases.revoke(unit.name)
        self.secrets.forget("unit-" + unit.name.replace("/", "-"), unit.name)
        self.topics.tell(("unit", unit.name), {})

    def remove_application(self, application: Application) -> None:
        """Remove an application with its units and relations."""
        for unit in list(application.units.values()):
            self.remove_unit(unit)
        for relation in self.relations_of(application.name):
            self.remove_relation(relation)
        for offer in [offer for offer in self.offers.values() if offer.application == application.name]:
            self.remove_offer(offer)
        self.secrets.forget(f"application-{application.name}")
        self.applications.pop(application.name, None)

    def remove_machine(self, machine: Machine) -> None:
        """Remove a machine with its units."""
        for name in list(machine.units):
            unit = self.unit(name)
            if unit is not None:
                self.remove_unit(unit)
        self.machines.pop(machine.id, None)

    def relate(self, one: str, other: str) -> Relation:
        """Relate two ends, each "application" or "application:endpoint". Raises Refused in the same cases as Juju."""
        pairs = [
            (first, second)
            for first in self._ends(one, one, other)
            for second in self._ends(other, one, other)
            if first[1].interface == second[1].interface
            and {first[1].role, second[1].role} == {"provider", "requirer"}
        ]
        adding = f'adding relation between endpoints "{one}" and "{other}": '
        if not pairs:
            raise Refused(
                f'{adding}cannot relate endpoints "{one}" and "{other}": '
                "no compatible endpoints found between applications"
            )
        named = [pair for pair in pairs if pair[0][1].name != "juju-info"]
        if len(named or pairs) > 1:
            raise Refused(f'{adding}cannot relate endpoints "{one}" and "{other}": ambiguous relation')
        pair = list((named or pairs)[0])
        there = self.relations_of(pair[0][0])
        if any(relation.ends in (pair, pair[::-1]) for relation in there):
            ends = f"{one} {other}"
            raise Refused(f'{adding}cannot add relation "{one}", "{other}": relation {ends}: already exists')
        return self._add_relation(pair)

    def consume(self, consumed: Consumed) -> None:
        """Add an application of another model. Nothing happens if it is there already."""
        there = self.consumed.get(consumed.name)
        if there is not None and there.offer is consumed.offer:
            return
        if there is not None or consumed.name in self.applications:
            raise Refused(f'application "{consumed.name}" already exists', "already exists")
        self.consumed[consumed.name] = consumed

    def remove_offer(self, offer: Offer) -> None:
        """Remove an offer, and other models' relations with it. Those who have consumed it see that it is gone."""
        del self.offers[offer.name]
        for connection in list(offer.connections.values()):
            connection.end()

    def remove_consumed(self, consumed: Consumed) -> None:
        """Remove an application of another model with its relations."""
        for relation in self.relations_of(consumed.name):
            self.remove_relation(relation)
        self.consumed.pop(consumed.name, None)

    def configure(self, application: Application, changes: Mapping[str, Any], unset: list[str]) -> None:
        """Set and unset options; an application's units are told of a difference."""
        before = application.config_hash
        application.config |= changes
        for name in unset:
            application.config.pop(name, None)
        if application.config_hash != before:
            self.topics.tell(("config", application.name), application.config_hash)

    def empty(self) -> None:
        """Remove everything from the model except its logged-in clients."""
        self.life = "dead"
        for consumed in list(self.consumed.values()):
            self.remove_consumed(consumed)
        for application in list(self.applications.values()):
            self.remove_application(application)
        self.machines.clear()

    def set_password(self, unit: Unit, password: str) -> None:
        """Set a unit's password. Raises Refused if another unit has the same: the hash's column is unique in Juju."""
        if self._passwords.get(password, unit) is not unit:
            raise Refused("setting password hash: UNIQUE constraint failed: unit.password_hash")
        self._passwords.pop(unit.password, None)
        self._passwords[password] = unit
        unit.password = password

    def relations_of(self, application: str) -> list[Relation]:
        """Return the relations of an application, with its peer relations."""
        return list(self._by_application.get(application, {}).values())

    def remove_relation(self, relation: Relation) -> None:
        """Remove a relation at once, even with units in its scope."""
        self.relations.pop(relation.id, None)
        for application, _ in relation.ends:
            if application in self.consumed:
                self.consumed[application].offer.connections.pop((self.uuid, relation.id), None)
            self._by_application.get(application, {}).pop(relation.id, None)
            self.topics.tell(("unit-relations", application), [relation.key])

    def enter(self, relation: Relation, unit: Unit, settings: dict[str, str]) -> None:
        """Add a unit to a relation's scope."""
        if unit.name not in relation.in_scope:
            bag = relation.in_scope[unit.name] = Databag()
            relation.left.pop(unit.name, None)
            if settings:
                bag.write(settings)
            self.topics.tell(("relation", str(relation.id)), [unit.name])

    def leave(self, relation: Relation, unit: str) -> None:
        """Remove a unit from a relation's scope."""
        bag = relation.in_scope.pop(unit, None)
        if bag is not None:
            if bag.settings:
                relation.left[unit] = bag.settings
            self.topics.tell(("relation", str(relation.id)), [unit])

    def write_settings(
        self, relation: Relation, unit: str, settings: dict[str, str], of_application: dict[str, str]
    ) -> None:
        """Write a unit's and its application's settings; the other side is told of new versions."""
        changed: list[str] = []
        if settings and relation.in_scope[unit].write(settings):
            changed.append(unit)
        application = unit.partition("/")[0]
        if of_application and relation.of_application(application).write(of_application):
            changed.append(application)
        if changed:
            self.topics.tell(("relation", str(relation.id)), changed)

    def matching(self, patterns: list[str]) -> tuple[list[Machine], list[tuple[Application, list[Unit]]]]:
        """Return the contents of a status filtered by patterns: applications and units by name, and their machines."""
        if not patterns:
            every = [(item, list(item.units.values())) for item in self.applications.values()]
            return list(self.machines.values()), every
        shown: list[tuple[Application, list[Unit]]] = []
        machines = {pattern for pattern in patterns if pattern in self.machines}
        for application in self.applications.values():
            whole = any(fnmatch.fnmatchcase(application.name, pattern) for pattern in patterns)
            units = [
                unit
                for unit in application.units.values()
                if whole or any(fnmatch.fnmatchcase(unit.name, pattern) for pattern in patterns)
            ]
            if whole or units:
                shown.append((application, units))
                machines |= {unit.machine for unit in units}
        return [machine for machine in self.machines.values() if machine.id in machines], shown

    def _ends(self, text: str, one: str, other: str) -> list[tuple[str, Endpoint]]:
        name, _, endpoint = text.partition(":")
        application, consumed = self.applications.get(name), self.consumed.get(name)
        every = application.charm.endpoints if application else consumed.endpoints if consumed else {}
        ends = [(name, end) for end in every.values() if end.name == endpoint or not endpoint]
        if not ends:
            raise Refused(
                f'adding relation between endpoints "{one}" and "{other}": cannot relate endpoints "{one}" and '
                f'"{other}": no candidates for {text}: relation endpoint not found'
            )
        return ends

    def _add_relation(self, ends: list[tuple[str, Endpoint]]) -> Relation:
        relation = Relation(self._next_relation, ends)
        self._next_relation += 1
        self.relations[relation.id] = relation
        for application, endpoint in ends:
            consumed = self.consumed.get(application)
            if consumed is not None:
                connection = Connection(
                    self.uuid,
                    relation.id,
                    consumed.user,
                    endpoint.name,
                    partial(self.remove_relation, relation),
                )
                consumed.offer.connections[self.uuid, relation.id] = connection
            self._by_application.setdefault(application, {})[relation.id] = relation
            self.topics.tell(("unit-relations", application), [relation.key])
        return relation
