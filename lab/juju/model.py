"""One model in a simulated controller: charms, machines, applications, units and relations."""

from __future__ import annotations

import fnmatch
import io
import re
import secrets
import uuid
import zipfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import yaml

from lab.juju.leases import Leases
from lab.juju.watchers import Topics

_APPLICATION = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]*[a-z][a-z0-9]*)*")
"""Matches valid application names: every part after a dash has a letter (names.IsValidApplication)."""


class Refused(Exception):
    """The refusal of a request: a message and a code, which may be empty."""

    def __init__(self, message: str, code: str = "", info: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.info = info

    def as_dict(self) -> dict[str, Any]:
        """Return it in the form of bulk results; a reply itself has other keys."""
        return {"message": self.message, "code": self.code}


def permission_denied() -> Refused:
    """Return a stock controller's refusal for lack of permission."""
    return Refused("permission denied", "unauthorized access")


def not_found(what: str) -> Refused:
    """Return a controller's refusal for a missing thing."""
    return Refused(f"{what} not found", "not found")


def now() -> str:
    """Return the present time in the API's form."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


@dataclass(slots=True)
class Status:
    """A status with its message, set by an agent."""

    status: str
    info: str = ""
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    since: str = field(default_factory=now)

    def detailed(self, life: str = "", data: bool = True) -> dict[str, Any]:
        """Return it in the form of full status, which has a life for some things, and no data for others."""
        return {
            "status": self.status,
            "info": self.info,
            "data": self.data if data else None,
            "since": self.since,
            "kind": "",
            "version": "",
            "life": life,
        }


@dataclass(slots=True)
class Endpoint:
    """One end of a charm's relation."""

    name: str
    role: str
    interface: str
    scope: str = "global"
    optional: bool = False
    limit: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return it in the form of the API."""
        return {
            "name": self.name,
            "role": self.role,
            "interface": self.interface,
            "optional": self.optional,
            "limit": self.limit,
            "scope": self.scope,
        }


@dataclass(slots=True)
class Charm:
    """An uploaded local charm. Its architecture is amd64, the only one simulated."""

    name: str
    revision: int
    sha256: str
    config: dict[str, dict[str, Any]]
    endpoints: dict[str, Endpoint]
    instance_key: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def url(self) -> str:
        return f"local:{self.name}-{self.revision}"

    def origin(self, base: dict[str, str]) -> dict[str, Any]:
        """Return the charm's origin in the form of GetCharmURLOrigin."""
        return {
            "source": "local",
            "type": "",
            "id": "",
            "hash": self.sha256,
            "revision": self.revision,
            "architecture": "amd64",
            "base": base,
            "instance-key": self.instance_key,
        }


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
    state: str = ""
    agent: Status | None = None
    workload: Status | None = None

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


@dataclass(slots=True)
class Relation:
    """A relation between two applications' endpoints, with the units in its scope."""

    id: int
    ends: list[tuple[str, Endpoint]]
    in_scope: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    status: Status | None = None

    @property
    def key(self) -> str:
        """Juju's key: requirer first, then provider; a peer alone."""
        order = {"requirer": 0, "provider": 1, "peer": 2}
        ends = sorted(self.ends, key=lambda end: order[end[1].role])
        return " ".join(f"{application}:{endpoint.name}" for application, endpoint in ends)


class Model:
    """One model with its watchers."""

    def __init__(self, name: str, owner: str, leases: Leases) -> None:
        self.uuid = str(uuid.uuid4())
        self.name = name
        self.owner = owner
        self.life = "alive"
        self.last_connection: str | None = None
        self.leases = leases
        self.topics = Topics()
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
        try:
            with zipfile.ZipFile(io.BytesIO(archive)) as files:
                metadata = _yaml(files, "metadata.yaml")
                config = _yaml(files, "config.yaml")
        except (zipfile.BadZipFile, yaml.YAMLError) as problem:
            raise Refused(f"reading charm archive: {problem}", "bad request") from None
        if not metadata:
            raise Refused('reading charm archive: archive file "metadata.yaml" not found', "bad request")
        revision = sum(charm.name == name for charm in self.charms.values())
        charm = Charm(name, revision, sha256, config.get("options") or {}, _endpoints(metadata))
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
        if name in self.applications:
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
        self.topics.tell(("unit", unit.name), {})

    def remove_application(self, application: Application) -> None:
        """Remove an application with its units and relations."""
        for unit in list(application.units.values()):
            self.remove_unit(unit)
        for relation in self.relations_of(application.name):
            self.remove_relation(relation)
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

    def empty(self) -> None:
        """Remove everything from the model except its logged-in clients."""
        self.life = "dead"
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
            self._by_application.get(application, {}).pop(relation.id, None)
            self.topics.tell(("unit-relations", application), [relation.key])

    def enter(self, relation: Relation, unit: Unit, settings: dict[str, str]) -> None:
        """Add a unit to a relation's scope."""
        if unit.name not in relation.in_scope:
            relation.in_scope[unit.name] = settings
            self.topics.tell(("relation", str(relation.id)), ("entered", unit.name))

    def leave(self, relation: Relation, unit: str) -> None:
        """Remove a unit from a relation's scope."""
        if relation.in_scope.pop(unit, None) is not None:
            self.topics.tell(("relation", str(relation.id)), ("left", unit))

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
        application = self.applications.get(name)
        every = application.charm.endpoints if application else {}
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
        for application, _ in ends:
            self._by_application.setdefault(application, {})[relation.id] = relation
            self.topics.tell(("unit-relations", application), [relation.key])
        return relation


def _yaml(files: zipfile.ZipFile, name: str) -> dict[str, Any]:
    try:
        content = yaml.safe_load(files.read(name))
    except KeyError:
        return {}
    return cast(dict[str, Any], content) if isinstance(content, dict) else {}


def _endpoints(metadata: dict[str, Any]) -> dict[str, Endpoint]:
    roles = {"peers": "peer", "provides": "provider", "requires": "requirer"}
    found = {"juju-info": Endpoint("juju-info", "provider", "juju-info")}
    for section, role in roles.items():
        of_role: dict[str, Any] = metadata.get(section) or {}
        for name, described in of_role.items():
            fields: dict[str, Any] = (
                cast(dict[str, Any], described) if isinstance(described, dict) else {"interface": described}
            )
            found[name] = Endpoint(
                name,
                role,
                str(fields.get("interface", "")),
                str(fields.get("scope", "global")),
                bool(fields.get("optional", False)),
                int(fields.get("limit", 0)),
            )
    return found
