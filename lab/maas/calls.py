"""The calls of the API that do something, each by its resource and name in the description.

What only lies there is in shelves.py. A call that is described and neither here nor there is refused with 501, so
that nobody takes it for MAAS's own answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from lab.maas import machine as states
from lab.maas.description import Description
from lab.maas.hosts import VmHost, disks_in
from lab.maas.machine import Machine
from lab.maas.oauth import Keys
from lab.maas.parts import API
from lab.maas.power import check_power, described_power_types, parameters_in
from lab.maas.racks import SIMULATED, rack_controller, region_controller
from lab.maas.refusal import Refused, invalid, missing, not_found
from lab.maas.region import REGION, Region
from lab.maas.shelves import Shelves

CAPABILITIES = [
    "networks-management",
    "static-ipaddresses",
    "ipv6-deployment-ubuntu",
    "devices-management",
    "storage-deployment-ubuntu",
    "network-deployment-ubuntu",
    "bridging-interface-ubuntu",
    "bridging-automatic-ubuntu",
    "authenticate-api",
]
_PLACES = {"zone": "zones", "pool": "resourcepools"}
_TRUE = ("1", "true", "yes", "on", "t", "y")
_NOT_ENLISTED = (states.NEW, states.COMMISSIONING)


@dataclass(frozen=True)
class Asked:
    """A request. `places` are of the path; `query` and `form` may repeat a name. `path` has no query."""

    path: str
    places: dict[str, str]
    query: list[tuple[str, str]]
    form: list[tuple[str, str]]
    user: str

    def one(self, name: str, default: str = "") -> str:
        """Return the first value of a field of the form."""
        return next((value for key, value in self.form if key == name), default)

    def several(self, name: str) -> list[str]:
        """Return all values of a field of the form."""
        return [value for key, value in self.form if key == name and value]

    def listed(self, name: str) -> set[str]:
        """Return the values of a field of the form that has several by commas."""
        return {part for value in self.several(name) for part in re.split(r"[\s,]+", value) if part}

    def filters(self, name: str) -> set[str]:
        """Return all values of a parameter of the query."""
        return {value for key, value in self.query if key == name}

    def true(self, name: str, default: bool = False) -> bool:
        """Return a field of the form that is true or false."""
        return self.one(name, str(default)).lower() in _TRUE

    def number(self, name: str, default: int) -> int:
        """Return a field of the form that is a whole number."""
        text = self.one(name)
        if text and not text.isdigit():
            raise invalid(name, "Enter a whole number.")
        return int(text) if text else default


_TIMEOUT = "node_timeout"
"""The setting of how many minutes a region waits for a machine that never comes."""
Answer = bytes | None
"""JSON; None for 204, with nothing."""


class Calls:
    """Carries out calls on a region."""

    def __init__(self, description: Description, region: Region, keys: Keys, config: dict[str, Any]) -> None:
        self.shelves = Shelves(description, API)
        self._description = description
        self._region = region
        self._keys = keys
        self._config = config
        self._acts: dict[tuple[str, str], Callable[[Asked], Any]] = {
            ("Version", "read"): self._version,
            ("Machines", "read"): self._machines,
            ("Machines", "create"): self._create,
            ("Machines", "accept"): self._accept,
            ("Machines", "accept_all"): self._accept_all,
            ("Machines", "allocate"): self._allocate,
            ("Machines", "release"): self._release_many,
            ("Machines", "list_allocated"): self._list_allocated,
            ("Machines", "power_parameters"): self._power_parameters_of_all,
            ("Machines", "is_registered"): self._is_registered,
            ("Machines", "set_zone"): self._set_zone,
            ("Nodes", "read"): self._machines,
            ("Nodes", "is_registered"): self._is_registered,
            ("Node", "read"): self._machine,
            ("Node", "power_parameters"): self._power_parameters,
            ("Interfaces", "read"): self._interfaces,
            ("BlockDevices", "read"): self._block_devices,
            ("Machine", "read"): self._machine,
            ("Machine", "update"): self._update,
            ("Machine", "delete"): self._delete,
            ("Machine", "commission"): self._commission,
            ("Machine", "deploy"): self._deploy,
            ("Machine", "release"): self._release,
            ("Machine", "abort"): self._abort,
            ("Machine", "lock"): self._lock,
            ("Machine", "unlock"): self._unlock,
            ("Machine", "mark_broken"): self._mark_broken,
            ("Machine", "mark_fixed"): self._mark_fixed,
            ("Machine", "power_on"): self._power_on,
            ("Machine", "power_off"): self._power_off,
            ("Machine", "power_parameters"): self._power_parameters,
            ("Machine", "set_owner_data"): self._set_owner_data,
            ("Machine", "set_workload_annotations"): self._set_owner_data,
            ("Events", "query"): self._events,
            ("Tag", "machines"): self._tagged,
            ("Tag", "nodes"): self._tagged,
            ("Tag", "update_nodes"): self._update_nodes,
            ("RackControllers", "read"): self._racks,
            ("RackControllers", "describe_power_types"): lambda _: described_power_types(),
            ("RackController", "read"): self._rack,
            ("RegionControllers", "read"): lambda _: [region_controller(REGION)],
            ("RegionController", "read"): self._region_controller,
            ("Tag", "devices"): self._no_others,
            ("Tag", "rack_controllers"): self._no_others,
            ("Tag", "region_controllers"): self._no_others,
            ("Discoveries", "read"): lambda _: [],
            ("Users", "whoami"): self._whoami,
            ("Account", "create_authorisation_token"): self._create_token,
            ("Account", "delete_authorisation_token"): self._delete_token,
            ("Account", "list_authorisation_tokens"): self._list_tokens,
            ("Maas", "get_config"): self._get_config,
            ("Maas", "set_config"): self._set_config,
        }
        for one, several in (("VmHost", "VmHosts"), ("Pod", "Pods")):
            self._acts |= {
                (several, "read"): self._hosts,
                (several, "create"): self._create_host,
                (one, "read"): self._host,
                (one, "refresh"): self._host,
                (one, "delete"): self._delete_host,
                (one, "parameters"): self._host_parameters,
                (one, "compose"): self._compose,
                (one, "add_tag"): self._tag_host,
                (one, "remove_tag"): self._untag_host,
            }

    @property
    def publishes(self) -> bool:
        """Whether /MAAS/metrics is there, by the setting prometheus_enabled."""
        return str(self._config["prometheus_enabled"]).lower() in _TRUE

    async def answer(self, resource: str, name: str, asked: Asked) -> Answer:
        """Carry out a call that the description has. Raises Refused."""
        if (resource, name) == ("Machine", "query_power_state"):
            machine = self._region.machine(asked.places["system_id"])
            return orjson.dumps({"state": await self._region.query_power(machine)})
        if act := self._acts.get((resource, name)):
            found = act(asked)
            return found if isinstance(found, bytes) or found is None else orjson.dumps(found)
        return self._lying(resource, name, asked)

    # Things that only lie there

    def _lying(self, resource: str, name: str, asked: Asked) -> Answer:
        if "system_id" in asked.places:
            self._given(asked)
        if "fabric_id" in asked.places:
            self.shelves.get(f"{API}/fabrics/", asked.places["fabric_id"])
        found = self._description.find(asked.path)
        assert found is not None
        if self.shelves.holds(found[0]) and name in ("read", "create"):
            if name == "read":
                return orjson.dumps(self.shelves.all(asked.path))
            return orjson.dumps(self.shelves.create(found[0], asked.path, dict(reversed(asked.form))))
        where = self.shelves.collection(self._description, asked.path)
        if where is None or name not in ("read", "update", "delete"):
            raise Refused(501, f"{resource}.{name}: not simulated by this lab.")
        if name == "read":
            return orjson.dumps(self.shelves.get(*where))
        if name == "update":
            before = str(self.shelves.get(*where).get("name", ""))
            thing = self.shelves.update(*where, dict(reversed(asked.form)))
            self._rename_on_machines(resource, before, str(thing.get("name", "")))
            return orjson.dumps(thing)
        self._check_empty(resource, *where)
        gone = str(self.shelves.get(*where).get("name", ""))
        self.shelves.delete(*where)
        self._rename_on_machines(resource, gone, "default" if resource == "Zone" else "")
        return None

    def _check_empty(self, resource: str, path: str, key: str) -> None:
        """Raise Refused for a pool that has machines."""
        if resource == "ResourcePool":
            pool = self.shelves.get(path, key)["name"]
            if any(machine.pool == pool for machine in self._region.machines.values()):
                raise Refused(400, "Pool has machines in it, it cannot be deleted.")

    def _rename_on_machines(self, resource: str, before: str, after: str) -> None:
        """Give the machines of a zone, pool or tag its new name; no name takes a tag from them."""
        if before == after:
            return
        for machine in self._region.machines.values():
            if resource == "Tag" and before in machine.tags:
                machine.tags = machine.tags - {before} | ({after} - {""})
            elif resource == "Zone" and machine.zone == before:
                machine.zone = after
            elif resource == "ResourcePool" and machine.pool == before:
                machine.pool = after
            else:
                continue
            machine.changed()

    # The region

    def _version(self, _: Asked) -> dict[str, Any]:
        version = self._description.version
        return {"version": version, "subversion": SIMULATED, "capabilities": CAPABILITIES}

    def _get_config(self, asked: Asked) -> Any:
        name = next(iter(asked.filters("name")), "")
        if name not in self._config:
            raise invalid(
                name or "name", f"{name} is not a valid config setting (valid settings are: simulated)."
            )
        return self._config[name]

    def _set_config(self, asked: Asked) -> bytes:
        name = asked.one("name")
        if name not in self._config:
            raise invalid(
                name or "name", f"{name} is not a valid config setting (valid settings are: simulated)."
            )
        if name == _TIMEOUT:
            self._region.timeout_s = _minutes(asked.one("value")) * 60
        self._config[name] = asked.one("value")
        return b'"OK"'

    def _racks(self, asked: Asked) -> list[dict[str, Any]]:
        ids = asked.filters("id")
        return [self._described_rack(rack) for rack in self._region.racks if not ids or rack in ids]

    def _rack(self, asked: Asked) -> dict[str, Any]:
        rack = asked.places["system_id"]
        if rack not in self._region.racks:
            raise not_found("RackController")
        return self._described_rack(rack)

    def _described_rack(self, rack: str) -> dict[str, Any]:
        return rack_controller(rack, rack in self._region.racks_up)

    def _region_controller(self, asked: Asked) -> dict[str, Any]:
        if asked.places["system_id"] != REGION:
            raise not_found("RegionController")
        return region_controller(REGION)

    def _whoami(self, asked: Asked) -> dict[str, Any]:
        return self.shelves.get(f"{API}/users/", asked.user)

    def _create_token(self, asked: Asked) -> dict[str, str]:
        return self._keys.make(asked.user, asked.one("name", "MAAS consumer")).described()

    def _delete_token(self, asked: Asked) -> None:
        self._keys.delete(asked.one("token_key"))

    def _list_tokens(self, asked: Asked) -> list[dict[str, str]]:
        return [{"name": token.name, "token": token.text} for token in self._keys.of(asked.user)]

    # Lists

    def _machines(self, asked: Asked) -> bytes:
        return _joined(self._found(asked))

    def _found(self, asked: Asked) -> Iterable[Machine]:
        found: Iterable[Machine] = self._region.machines.values()
        if ids := asked.filters("id"):
            found = [self._region.machines[one] for one in ids if one in self._region.machines]
            found.sort(key=lambda machine: machine.number)
        for name in ("zone", "pool"):
            if unknown := sorted(asked.filters(name) - set(self.shelves.names(_PLACES[name]))):
                raise invalid(name, f"No such {name}(s): {', '.join(unknown)}.")
        if macs := asked.filters("mac_address"):
            found = [machine for machine in found if not macs.isdisjoint(machine.macs)]
        if wanted := {name.removeprefix("=").lower() for name in asked.filters("status")}:
            if unknown := sorted(wanted - states.SHORT_NAMES.keys()):
                raise invalid("status", _no_status(unknown[0]))
            numbers = {states.SHORT_NAMES[name] for name in wanted}
            found = [machine for machine in found if machine.status in numbers]
        for name in ("hostname", "domain", "zone", "pool", "agent_name", "owner", "power_state"):
            if values := asked.filters(name):
                found = [machine for machine in found if getattr(machine, name) in values]
        if tags := asked.filters("tags"):
            found = [machine for machine in found if tags <= machine.tags]
        if hosts := asked.filters("pod"):
            numbers = {host.number for host in self._region.hosts.values() if host.name in hosts}
            found = [machine for machine in found if machine.host in numbers]
        for name, attribute in (("cpu_count", "cores"), ("mem", "memory_mib")):
            for value in asked.filters(name):
                least = float(value) if value.replace(".", "", 1).isdigit() else 0.0
                found = [machine for machine in found if getattr(machine, attribute) >= least]
        return found

    def _list_allocated(self, asked: Asked) -> bytes:
        return _joined(machine for machine in self._found(asked) if machine.owner == asked.user)

    def _events(self, asked: Asked) -> dict[str, Any]:
        by = ("id", "hostname", "mac_address", "zone", "domain", "agent_name", "pool")
        narrowed = any(asked.filters(name) for name in by)
        ids = {machine.system_id for machine in self._found(asked)} if narrowed else None
        return self._region.events.query(ids, dict(reversed(asked.query)))

    def _is_registered(self, asked: Asked) -> bool:
        macs = [value for name, value in asked.query if name == "mac_address"]
        if not macs:
            raise Refused(400, "No provided mac_address!")
        machine = self._region.with_mac(macs[0])
        # To a machine that asks for itself, one that is not commissioned yet counts as unknown: it has to enlist.
        return machine is not None and (bool(asked.user) or machine.status not in _NOT_ENLISTED)

    # One machine

    def _given(self, asked: Asked) -> Machine:
        return self._region.machine(asked.places["system_id"])

    def _editable(self, asked: Asked) -> Machine:
        """Return the machine of a change. Raises Refused for one that is locked (get_node_or_404 of models/node.py)."""
        machine = self._given(asked)
        if machine.locked:
            raise Refused(403, "")
        return machine

    def _machine(self, asked: Asked) -> bytes:
        return self._given(asked).json()

    def _interfaces(self, asked: Asked) -> list[dict[str, Any]]:
        return self._given(asked).interfaces()

    def _block_devices(self, asked: Asked) -> Any:
        return self._given(asked).described()["blockdevice_set"]

    def _create(self, asked: Asked) -> bytes:
        fields = dict(reversed(asked.form))
        macs = asked.several("mac_addresses")
        power_type = asked.one("power_type", "manual")
        if power_type != "ipmi" or asked.one("architecture"):
            given = {"architecture": asked.one("architecture"), "mac_addresses": macs}
            if lacking := [name for name, value in given.items() if not value]:
                raise missing(lacking)
        self._check_places(asked)
        machine = self._region.create(
            macs,
            asked.one("architecture", "amd64/generic"),
            power_type,
            parameters_in(fields),
            asked.one("hostname"),
        )
        self._place(machine, asked)
        if asked.true("deployed"):
            machine.status, machine.owner, machine.power_state = states.DEPLOYED, asked.user, "on"
            self._region.controllers.settle(machine.system_id, on=True)
        elif asked.user and asked.true("commission", default=True):
            self._region.commission_new(machine, asked.user)
        machine.changed()
        return machine.json()

    def _update(self, asked: Asked) -> bytes:
        machine = self._editable(asked)
        fields = dict(reversed(asked.form))
        self._check_places(asked)
        changes = parameters_in(fields)
        power_type = asked.one("power_type", machine.power_type)
        parameters = (machine.power_parameters if power_type == machine.power_type else {}) | changes
        check_power(power_type, parameters)
        if name := asked.one("hostname"):
            self._region.rename(machine, name)
        machine.power_type, machine.power_parameters = power_type, parameters
        self._place(machine, asked)
        machine.changed()
        return machine.json()

    def _check_places(self, asked: Asked) -> None:
        for field, path in (("zone", "zones"), ("pool", "resourcepools"), ("domain", "domains")):
            name = asked.one(field)
            if name and name not in self.shelves.names(path):
                raise invalid(
                    field, "Select a valid choice. That choice is not one of the available choices."
                )

    def _place(self, machine: Machine, asked: Asked) -> None:
        for field in ("zone", "pool", "domain", "description"):
            setattr(machine, field, asked.one(field, getattr(machine, field)))

    def _delete(self, asked: Asked) -> None:
        self._region.remove(self._editable(asked))

    def _commission(self, asked: Asked) -> bytes:
        machine = self._editable(asked)
        self._region.commission(machine, asked.user)
        return machine.json()

    def _deploy(self, asked: Asked) -> bytes:
        machine = self._editable(asked)
        self._region.deploy(machine, asked.user, asked.one("distro_series"))
        return machine.json()

    def _release(self, asked: Asked) -> bytes:
        machine = self._editable(asked)
        self._region.release(machine, asked.user)
        return machine.json()

    def _abort(self, asked: Asked) -> bytes:
        machine = self._editable(asked)
        self._region.abort(machine, asked.user)
        return machine.json()

    def _lock(self, asked: Asked) -> bytes:
        machine = self._given(asked)
        self._region.lock(machine, True)
        return machine.json()

    def _unlock(self, asked: Asked) -> bytes:
        machine = self._given(asked)
        self._region.lock(machine, False)
        return machine.json()

    def _mark_broken(self, asked: Asked) -> bytes:
        machine = self._editable(asked)
        self._region.mark(machine, states.BROKEN, asked.one("comment"), asked.user)
        return machine.json()

    def _mark_fixed(self, asked: Asked) -> bytes:
        machine = self._editable(asked)
        self._region.mark(machine, states.READY, "", asked.user)
        return machine.json()

    def _power_on(self, asked: Asked) -> bytes:
        machine = self._editable(asked)
        self._region.switch(machine, "on", asked.user)
        return machine.json()

    def _power_off(self, asked: Asked) -> bytes:
        machine = self._editable(asked)
        self._region.switch(machine, "off", asked.user)
        return machine.json()

    def _power_parameters(self, asked: Asked) -> dict[str, Any]:
        return self._given(asked).power_parameters

    def _set_owner_data(self, asked: Asked) -> bytes:
        machine = self._given(asked)
        for name, value in asked.form:
            if value:
                machine.owner_data[name] = value
            else:
                machine.owner_data.pop(name, None)
        machine.changed()
        return machine.json()

    # Many machines

    def _accept(self, asked: Asked) -> bytes:
        if not asked.user:
            raise Refused(401, "You must be logged in to accept machines.")
        return self._accepted(self._named(asked), asked.user)

    def _named(self, asked: Asked) -> list[Machine]:
        """Return the machines that a form names."""
        ids = asked.several("machines")
        if unknown := [one for one in ids if one not in self._region.machines]:
            raise Refused(400, f"Unknown machine(s): {', '.join(unknown)}.")
        return [self._region.machines[one] for one in ids]

    def _accept_all(self, asked: Asked) -> bytes:
        new = [machine for machine in self._region.machines.values() if machine.status == states.NEW]
        return self._accepted(new, asked.user)

    def _accepted(self, machines: list[Machine], user: str) -> bytes:
        for machine in machines:
            if machine.status in (states.READY, states.COMMISSIONING):
                continue  # somebody else was faster
            if machine.status != states.NEW:
                raise Refused(
                    409,
                    f"Cannot accept node enlistment: node {machine.system_id} is in state {machine.status_name}.",
                )
            self._region.commission(machine, user)
        return _joined(machines)

    def _allocate(self, asked: Asked) -> bytes:
        names, tags = asked.several("name"), asked.listed("tags")
        for machine in self._region.machines.values():
            if (
                machine.status == states.READY
                and asked.one("system_id", machine.system_id) == machine.system_id
                and (
                    not names or machine.hostname in names or f"{machine.hostname}.{machine.domain}" in names
                )
                and tags <= machine.tags
                and asked.one("zone", machine.zone) == machine.zone
                and asked.one("pool", machine.pool) == machine.pool
                and machine.cores >= asked.number("cpu_count", 0)
                and machine.memory_mib >= asked.number("mem", 0)
            ):
                self._region.allocate(machine, asked.user, asked.one("agent_name"))
                return orjson.dumps(machine.described() | {"constraints_by_type": {}})
        constraints = " ".join(f"{name}={value}" for name, value in asked.form)
        if wanted := asked.one("system_id"):
            raise Refused(409, f"No machine with system ID {wanted} available.")
        if constraints:
            raise Refused(409, f"No available machine matches constraints: {constraints}")
        raise Refused(409, "No machine available.")

    def _release_many(self, asked: Asked) -> list[str]:
        machines = self._named(asked)
        released: list[str] = []
        failed: list[str] = []
        for machine in machines:
            try:
                self._region.release(machine, asked.user)
                released.append(machine.system_id)
            except Refused:
                failed.append(f"{machine.system_id} ('{machine.status_name}')")
        if failed:
            what = ", ".join(failed)
            raise Refused(409, f"Machine(s) cannot be released in their current state: {what}.")
        return released

    def _power_parameters_of_all(self, asked: Asked) -> dict[str, Any]:
        ids = asked.filters("id")
        return {
            machine.system_id: machine.power_parameters
            for machine in self._region.machines.values()
            if not ids or machine.system_id in ids
        }

    def _set_zone(self, asked: Asked) -> None:
        self._check_places(asked)
        for one in asked.several("nodes"):
            machine = self._region.machine(one)
            machine.zone = asked.one("zone")
            machine.changed()

    # Tags

    def _tag(self, asked: Asked) -> str:
        name = asked.places["name"]
        self.shelves.get(f"{API}/tags/", name)
        return name

    def _tagged(self, asked: Asked) -> bytes:
        name = self._tag(asked)
        return _joined(machine for machine in self._region.machines.values() if name in machine.tags)

    def _no_others(self, asked: Asked) -> list[Any]:
        """Return what has a tag beside machines: nothing, as devices and controllers get none here."""
        self._tag(asked)
        return []

    def _update_nodes(self, asked: Asked) -> dict[str, int]:
        name = self._tag(asked)
        counts: dict[str, int] = {}
        for field, counted in (("add", "added"), ("remove", "removed")):
            machines = [self._region.machines.get(one) for one in asked.several(field)]
            there = [machine for machine in machines if machine is not None]
            counts[counted] = len(there)
            for machine in there:
                (machine.tags.add if field == "add" else machine.tags.discard)(name)
                machine.changed()
        return counts

    # VM hosts

    def _hosts(self, _: Asked) -> list[dict[str, Any]]:
        return [self._described(host) for host in self._region.hosts.values()]

    def _described(self, host: VmHost) -> dict[str, Any]:
        return host.described(self._region.composed(host))

    def _host_of(self, asked: Asked) -> VmHost:
        return self._region.host(asked.places["id"])

    def _host(self, asked: Asked) -> dict[str, Any]:
        return self._described(self._host_of(asked))

    def _create_host(self, asked: Asked) -> dict[str, Any]:
        if lacking := [name for name in ("type", "power_address") if not asked.one(name)]:
            raise missing(lacking)
        self._check_places(asked)
        secret = {
            name: value for name, value in asked.form if name in ("power_user", "power_pass", "project")
        }
        host = self._region.add_host(
            asked.one("type"),
            asked.one("power_address"),
            asked.one("name"),
            asked.one("zone", "default"),
            asked.one("pool", "default"),
            secret,
        )
        host.tags = asked.listed("tags")
        return self._described(host)

    def _tag_host(self, asked: Asked) -> dict[str, Any]:
        self._host_of(asked).tags.add(asked.one("tag"))
        return self._host(asked)

    def _untag_host(self, asked: Asked) -> dict[str, Any]:
        self._host_of(asked).tags.discard(asked.one("tag"))
        return self._host(asked)

    def _delete_host(self, asked: Asked) -> None:
        host = self._host_of(asked)
        composed = self._region.composed(host)
        decompose = {value.lower() for value in asked.filters("decompose")} & {"1", "true"}
        for machine in composed:
            if decompose:
                self._region.remove(machine)
            else:
                machine.host = None
                machine.changed()
        del self._region.hosts[host.number]

    def _host_parameters(self, asked: Asked) -> dict[str, str]:
        host = self._host_of(asked)
        return {"power_address": host.address} | host.secret

    def _compose(self, asked: Asked) -> dict[str, str]:
        machine = self._region.compose(
            self._host_of(asked),
            asked.number("cores", 1),
            asked.number("memory", 2048),
            disks_in(asked.one("storage", "root:8")),
            asked.one("hostname"),
            asked.user,
        )
        return {"system_id": machine.system_id, "resource_uri": machine.uri}


def _no_status(name: str) -> str:
    """Return what a form says of a status that there is not (ConstrainedMultipleChoiceField of a region's filters)."""
    return f"Select a valid choice. {name} is not one of the available choices."


def _minutes(text: str) -> float:
    """Return how long a region waits for a machine. A lab's are fractions of a minute, too."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < math.inf:
        raise invalid(_TIMEOUT, "Enter a whole number.")
    return minutes


def _joined(machines: Iterable[Machine]) -> bytes:
    return b"[" + b",".join(machine.json() for machine in machines) + b"]"
