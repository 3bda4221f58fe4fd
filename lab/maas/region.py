"""The simulated region: its machines, what becomes of them over time, and what fails on demand.

Texts and statuses of what is refused, and the events, are those of MAAS 3.3.11: src/maasserver/api/machines.py and
nodes.py, models/node.py and node_status.py, and src/provisioningserver/rpc/power.py.

Nothing boots. A machine that is commissioned, deployed or released has its next status after the time that the lab's
options say, unless a fault is in the way: then it fails as a region's own watch over statuses has it fail.

A lab with libvirt has real machines besides, those with power by virsh. They boot, and only their phone call ends their
commissioning or deployment.
"""

from __future__ import annotations

import asyncio
import random
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.maas import machine as states
from lab.maas.controllers import Controllers
from lab.maas.events import Events
from lab.maas.hosts import VmHost
from lab.maas.machine import FAILURES, Machine
from lab.maas.power import PowerProblem, PowerTimedOut, check_power
from lab.maas.refusal import Refused, invalid, no_choice, not_found, unconnected
from lab.maas.virsh import Virsh

REGION = "region"
"""The name of the region controller."""
ARCHITECTURES = ("amd64/generic", "arm64/generic", "i386/generic")
_MAC = re.compile(r"(?:[0-9a-f]{2}:){5}[0-9a-f]{2}")
_HOSTNAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_RELEASABLE = {
    states.ALLOCATED,
    states.DEPLOYING,
    states.DEPLOYED,
    states.FAILED_DEPLOYMENT,
    states.FAILED_RELEASING,
    states.BROKEN,
}
_COMMISSIONABLE = {states.NEW, states.READY, states.FAILED_COMMISSIONING, states.BROKEN}
_DEPLOYABLE = {states.READY, states.ALLOCATED}
_ABORTED = {states.COMMISSIONING: states.NEW, states.DEPLOYING: states.ALLOCATED}
_ABORTING = {
    states.COMMISSIONING: ("User aborting node commissioning", "Aborted commissioning"),
    states.DEPLOYING: ("User aborting deployment", "Aborted deployment"),
}
"""The events of what was asked for, and of what came of it."""
_SERIES = "jammy"
"""The release of Ubuntu that boots for commissioning, and is deployed where none is named (MAAS 3.3)."""


@dataclass(frozen=True)
class Timings:
    """How long things take, in seconds. `timeout_s` is how long a region waits for a machine that never comes."""

    commissioning_s: float = 2.0
    deploying_s: float = 3.0
    releasing_s: float = 1.0
    power_timeout_s: float = 1.0
    timeout_s: float = 30.0


@dataclass(frozen=True)
class Found:
    """What commissioning finds in a machine."""

    cores: int
    memory_mib: int
    disks_gb: list[float]


@dataclass
class Faults:
    """What is broken now. `lost_boots` is the share of machines that never boot."""

    lost_boots: float = 0.0
    slow_s: float = 0.0
    down: bool = False
    dead_racks: set[str] = field(default_factory=set[str])
    chance: random.Random = field(default_factory=lambda: random.Random(20))


class Region:
    """The state behind the API. Every method belongs to the event loop's thread, and may raise Refused."""

    def __init__(
        self,
        timings: Timings,
        racks: Sequence[str],
        loop: asyncio.AbstractEventLoop,
        virsh: Virsh | None = None,
    ) -> None:
        """`virsh` is there in a lab with libvirt: power by virsh is then real."""
        self.timings = timings
        self.timeout_s = timings.timeout_s
        self.racks = list(racks)
        self.faults = Faults()
        self.events = Events()
        self.controllers = Controllers(timings.power_timeout_s, virsh)
        self.machines: dict[str, Machine] = {}
        self.hosts: dict[int, VmHost] = {}
        self._by_mac: dict[str, Machine] = {}
        self._by_name: dict[str, Machine] = {}
        self._number = 0
        self._host_number = 0
        self._loop = loop
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: list[tuple[Machine, Callable[[Machine], None]]] = []

    # Machines

    def machine(self, system_id: str) -> Machine:
        """Return a machine of the region."""
        if system_id not in self.machines:
            raise not_found("Machine")
        return self.machines[system_id]

    def with_mac(self, mac: str) -> Machine | None:
        """Return the machine that has a MAC address."""
        return self._by_mac.get(mac.lower())

    def create(
        self,
        macs: Iterable[str],
        architecture: str,
        power_type: str,
        power_parameters: dict[str, Any],
        hostname: str = "",
    ) -> Machine:
        """Add a machine, which is New and off."""
        if "/" not in architecture:
            architecture += "/generic"
        if architecture not in ARCHITECTURES:
            raise no_choice("architecture", architecture, "architecture", ARCHITECTURES)
        check_power(power_type, power_parameters)
        wanted = list(dict.fromkeys(mac.lower() for mac in macs))
        for mac in wanted:
            if not _MAC.fullmatch(mac):
                raise invalid("mac_addresses", f"'{mac}' is not a valid MAC address.")
            if other := self._by_mac.get(mac):
                raise invalid("mac_addresses", _in_use(mac, other, len(wanted)))
        system_id = self._new_id()
        name = hostname or f"simulated-{system_id}"
        self.check_hostname(name)
        self._number += 1
        made = Machine(self._number, system_id, name, architecture, wanted, power_type, power_parameters)
        self.machines[made.system_id] = self._by_name[name] = made
        self._by_mac.update(dict.fromkeys(wanted, made))
        return made

    def check_hostname(self, name: str, own: Machine | None = None) -> None:
        """Raise Refused for a hostname that is malformed, or another machine's."""
        if not _HOSTNAME.fullmatch(name):
            raise invalid("hostname", f"Invalid hostname: {name!r}.")
        if self._by_name.get(name, own) is not own:
            raise invalid("hostname", "Node with this Hostname already exists.")

    def rename(self, machine: Machine, name: str) -> None:
        """Change a hostname."""
        self.check_hostname(name, machine)
        del self._by_name[machine.hostname]
        machine.hostname = name
        self._by_name[name] = machine
        machine.changed()

    def remove(self, machine: Machine) -> None:
        """Remove a machine, in whatever status it is, with its events; a composed one leaves its host."""
        self._cancel(machine)
        del self.machines[machine.system_id], self._by_name[machine.hostname]
        for mac in machine.macs:
            del self._by_mac[mac]
        self.events.forget({machine.system_id})
        self.controllers.settle(machine.system_id, on=False)

    # What users do to machines

    def commission(self, machine: Machine, user: str) -> None:
        """Begin commissioning, at whose end a machine is Ready."""
        if machine.status not in _COMMISSIONABLE:
            raise invalid("__all__", "Commission is not available because of the current state of the node.")
        self._need_images("Ephemeral", _SERIES)
        self.events.add(machine, "DEBUG", "User starting node commissioning", f"({user})", user)
        machine.owner = user
        self._boot(
            machine, states.COMMISSIONING, "Commissioning", self.timings.commissioning_s, self._commissioned
        )

    def commission_new(self, machine: Machine, user: str) -> None:
        """Commission a machine that this request made, which is not there if that is refused."""
        try:
            self.commission(machine, user)
        except Refused:
            self.remove(machine)
            raise

    def allocate(self, machine: Machine, user: str, agent_name: str = "") -> None:
        """Give a Ready machine to a user."""
        if machine.status != states.READY:
            raise Refused(409, f"No machine with system ID {machine.system_id} available.")
        machine.owner, machine.agent_name = user, agent_name
        self.events.add(machine, "DEBUG", "User acquiring node", f"({user})", user)
        self._become(machine, states.ALLOCATED)

    def deploy(self, machine: Machine, user: str, series: str) -> None:
        """Begin the deployment of a machine that is Ready or Allocated."""
        if machine.status not in _DEPLOYABLE:
            raise Refused(409, f"Can't deploy a machine that is in the '{machine.status_name}' state")
        series = series or _SERIES
        self._need_images("Deployment", series)
        if machine.status == states.READY:
            self.allocate(machine, user)
        machine.series = series
        self.events.add(machine, "DEBUG", "User starting deployment", f"({user})", user)
        self._boot(machine, states.DEPLOYING, "Deploying", self.timings.deploying_s, self._deployed)

    def release(self, machine: Machine, user: str) -> None:
        """Begin the release of a machine; one that is Ready or Releasing stays as it is.

        A machine that is off, or whose power nobody can ask, has been released when the call is answered.
        """
        if machine.status in (states.READY, states.RELEASING):
            return
        if machine.status not in _RELEASABLE:
            name = machine.status_name
            raise Refused(409, f"Machine cannot be released in its current state ('{name}').")
        at_once = machine.power_type == "manual" or machine.power_state == "off"
        if not at_once:
            self._need_rack(machine)
        self.events.add(machine, "DEBUG", "User releasing node", f"({user})", user, "release")
        self._become(machine, states.RELEASING)
        machine.series = machine.agent_name = ""
        self.events.add(machine, "INFO", "Releasing")
        if at_once:
            self._finish(machine, self._released)
        else:
            self._switch_then(machine, "off", self._releasing)

    def abort(self, machine: Machine, user: str) -> None:
        """End what a machine is about."""
        if machine.status not in _ABORTED:
            raise Refused(
                409,
                f"Cannot abort in current state: node {machine.system_id} is in state {machine.status_name}.",
            )
        asked, done = _ABORTING[machine.status]
        self.events.add(machine, "DEBUG", asked, f"({user})", user)
        if machine.status == states.COMMISSIONING:
            machine.owner = ""
        self._switch_off_itself(machine)
        self._become(machine, _ABORTED[machine.status])
        self.events.add(machine, "INFO", done)

    def mark(self, machine: Machine, status: int, error: str, user: str) -> None:
        """Mark a machine as broken, or as fixed (Ready)."""
        if status == states.READY and machine.status != states.BROKEN:
            raise Refused(409, "Can't mark a non-broken node as 'Ready'.")
        kind = "User marking node broken" if status == states.BROKEN else "User marking node fixed"
        said = f"({user}) - {error}" if error else f"({user})"
        self.events.add(machine, "DEBUG", kind, said, user)
        if status == states.BROKEN:
            machine.owner = ""
        self._become(machine, status)

    def lock(self, machine: Machine, locked: bool) -> None:
        """Lock a deployed machine against its release, or unlock it."""
        if machine.locked == locked:
            raise Refused(409, "Machine is already locked" if locked else "Machine is not locked")
        if locked and machine.status not in (states.DEPLOYED, states.DEPLOYING):
            raise Refused(409, "Can't lock, node is not deployed or deploying")
        machine.locked = locked
        machine.changed()

    def switch(self, machine: Machine, state: str, user: str) -> None:
        """Switch a machine on or off."""
        if state == "on" and not machine.owner:
            raise Refused(409, "Can't start node: it hasn't been allocated.")
        if machine.power_type != "manual":
            self._need_rack(machine)
        kind = "User powering up node" if state == "on" else "User powering down node"
        self.events.add(machine, "DEBUG", kind, f"({user})", user)
        if machine.power_type != "manual":
            self._switch_later(machine, state)

    async def query_power(self, machine: Machine) -> str:
        """Ask a machine's power controller: on, off, unknown or error. One that is silent costs the time-out."""
        self._need_rack(machine)
        if machine.power_type == "manual":
            return "unknown"
        try:
            machine.power_state = await self.controllers.query(machine)
        except PowerProblem as problem:
            self.events.add(machine, "WARNING", "Failed to query node's BMC", str(problem))
            machine.power_state = "error"
        machine.changed()
        return machine.power_state

    # Virtual machines' hosts

    def add_host(
        self, kind: str, address: str, name: str, zone: str, pool: str, secret: dict[str, str]
    ) -> VmHost:
        """Add a VM host."""
        if not self.racks_up:
            raise invalid("type", "No rack controllers are connected, unable to validate.")
        if kind not in ("lxd", "virsh"):
            raise no_choice("type", kind, "type", ("lxd", "virsh"))
        for other in self.hosts.values():
            if other.kind == kind and other.address == address:
                raise invalid("__all__", f"Pod {other.name} with type and parameters already exist.")
            if name and other.name == name:
                raise invalid("name", "BMC with this Name already exists.")
        self._host_number += 1
        number = self._host_number
        host = VmHost(number, name or f"simulated-host-{number}", kind, address, zone, pool, secret)
        self.hosts[number] = host
        return host

    def host(self, number: str) -> VmHost:
        """Return a VM host by its id."""
        if not number.isdigit() or int(number) not in self.hosts:
            raise not_found("Pod")
        return self.hosts[int(number)]

    def composed(self, host: VmHost) -> list[Machine]:
        """Return the machines that were composed on a host."""
        return [machine for machine in self.machines.values() if machine.host == host.number]

    def compose(
        self, host: VmHost, cores: int, memory_mib: int, disks_gb: list[float], hostname: str, user: str
    ) -> Machine:
        """Make a machine on a VM host and commission it, as a region does."""
        if not self.racks_up:
            raise unconnected([])
        host.check_room(self.composed(host), cores, memory_mib, sum(disks_gb))
        if hostname and hostname in self._by_name:
            raise invalid("hostname", f'Node with hostname "{hostname}" already exists')
        key = "power_id" if host.kind == "virsh" else "instance_name"
        mac = ":".join(f"{byte:02x}" for byte in (0x52, 0x54, 0x00, *secrets.token_bytes(3)))
        name = hostname or f"{host.name}-{self._number + 1}"
        made = self.create(
            [mac], "amd64/generic", host.kind, {"power_address": host.address, key: name}, name
        )
        made.cores, made.memory_mib, made.disks_gb = cores, memory_mib, disks_gb
        made.host, made.zone, made.pool = host.number, host.zone, host.pool
        self.commission_new(made, user)
        return made

    # Real machines

    def boots(self, mac: str) -> bool | None:
        """Tell whether a machine that asks for a boot by PXE gets one; None for one that the region does not know."""
        machine = self.with_mac(mac)
        if machine is not None and not machine.lost:
            self.events.add(machine, "INFO", "Performing PXE boot")
        return None if machine is None else not machine.lost

    def phoned(self, mac: str, found: Found) -> None:
        """Note a machine's call, which ends its commissioning or deployment."""
        machine = self.with_mac(mac)
        if machine is None or machine.lost or not self.controllers.is_real(machine):
            return
        if machine.status == states.COMMISSIONING:
            self._cancel(machine)
            machine.timer = self._loop.create_task(self._look_done(machine, found))
        elif machine.status == states.DEPLOYING:
            self._cancel(machine)
            self._finish(machine, self._deployed)

    async def _look_done(self, machine: Machine, found: Found) -> None:
        """Switch a machine off whose commissioning is done. It is Ready even where that fails."""
        if problem := await self._switched(machine, "off"):
            self.events.add(machine, "ERROR", "Failed to power off node", problem)

        def done(it: Machine) -> None:
            it.cores, it.memory_mib, it.disks_gb = found.cores, found.memory_mib, found.disks_gb
            self._commissioned(it)

        self._due(machine, lambda it: self._finish(it, done))

    # Faults

    @property
    def racks_up(self) -> list[str]:
        """The rack controllers that are connected."""
        return [rack for rack in self.racks if rack not in self.faults.dead_racks]

    def wake(self) -> None:
        """Let happen what was due while the region was down."""
        waiting, self._waiting = self._waiting, []
        for machine, act in waiting:
            if self.machines.get(machine.system_id) is machine:
                act(machine)

    def _need_rack(self, machine: Machine) -> None:
        """Raise Refused if no rack controller can ask the machine's power controller."""
        if not self.racks_up:
            self.events.add(machine, "WARNING", "Failed to query node's BMC")
            raise unconnected(self.racks[:2])  # the primary and the secondary of its VLAN

    def _need_images(self, purpose: str, series: str) -> None:
        """Raise Refused without a rack controller: only what all connected ones have can boot."""
        if not self.racks_up:
            raise Refused(400, f"{purpose} operating system ubuntu {series} is unavailable.")

    # What happens by itself

    def _boot(
        self, machine: Machine, status: int, event: str, seconds: float, done: Callable[[Machine], None]
    ) -> None:
        """Have a machine boot into a status, whose end comes after some seconds, or never."""
        self._become(machine, status)
        self.events.add(machine, "INFO", event)
        machine.lost = self.faults.chance.random() < self.faults.lost_boots
        self._switch_then(machine, "on", lambda it: self._booting(it, seconds, done), anew=True)

    def _booting(self, machine: Machine, seconds: float, done: Callable[[Machine], None]) -> None:
        if machine.lost or self.controllers.is_real(machine):
            self._later(machine, self.timeout_s, self._time_out)
        else:
            self.events.add(machine, "INFO", "Performing PXE boot")
            self._later(machine, seconds, lambda it: self._boot_end(it, done))

    def _boot_end(self, machine: Machine, done: Callable[[Machine], None]) -> None:
        if self.racks_up:
            self._finish(machine, done)
        else:  # without a rack controller it got no address and no image
            self._later(machine, self.timeout_s, self._time_out)

    def _releasing(self, machine: Machine) -> None:
        self._later(machine, self.timings.releasing_s, lambda it: self._finish(it, self._released))

    def _finish(self, machine: Machine, done: Callable[[Machine], None]) -> None:
        before = machine.status
        done(machine)
        if machine.status in (states.NEW, states.READY) and not self.controllers.is_real(machine):
            self._switch_off_itself(machine)
        machine.changed()
        if before != machine.status:
            self._tell(machine, before)

    def _switch_then(
        self, machine: Machine, state: str, then: Callable[[Machine], None], anew: bool = False
    ) -> None:
        """Switch a machine for its next status, and go on; without an answer of its controller it has failed."""
        if machine.power_type == "manual":  # whoever stands beside it does that
            then(machine)
            return

        async def switch() -> None:
            if problem := await self._switched(machine, state, anew):
                self._due(machine, lambda it: self._power_failed(it, state, problem))
            else:
                self._due(machine, then)

        machine.timer = self._loop.create_task(switch())

    def _switch_later(self, machine: Machine, state: str) -> None:
        task = self._loop.create_task(self._switch_only(machine, state))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _switched(self, machine: Machine, state: str, anew: bool = False) -> str:
        """Switch a machine, and return what was wrong with that, or nothing. With `anew` one that is on boots again."""
        self.events.add(machine, "INFO", f"Powering {state}")
        try:
            await self.controllers.switch(machine, state, anew)
        except PowerProblem as problem:
            machine.power_state = "error"
            machine.changed()
            late = isinstance(problem, PowerTimedOut)
            return str(problem) if late else f"Power {state} for the node failed: {problem}"
        self.events.add(machine, "DEBUG", f"Node powered {state}")
        machine.power_state = state
        machine.changed()
        return ""

    async def _switch_only(self, machine: Machine, state: str) -> None:
        if problem := await self._switched(machine, state):
            self._power_failed(machine, state, problem)

    def _power_failed(self, machine: Machine, state: str, why: str) -> None:
        """Log what is wrong with a machine's power, which ends what it was about."""
        if machine.status in FAILURES:
            self._fail(machine, why)
        self.events.add(machine, "ERROR", f"Failed to power {state} node", why)

    def _switch_off_itself(self, machine: Machine) -> None:
        """Note that a machine has shut down, as at the end of its commissioning. A real one is switched off."""
        if self.controllers.is_real(machine):
            self._switch_later(machine, "off")
            return
        self.controllers.settle(machine.system_id, on=False)
        machine.power_state = "off"
        machine.changed()

    def _time_out(self, machine: Machine) -> None:
        minutes = f"{self.timeout_s / 60:g}"
        self._fail(machine, f"Node operation '{machine.status_name}' timed out after {minutes} minutes.")

    def _fail(self, machine: Machine, why: str) -> None:
        self.events.add(machine, "ERROR", "Marking node failed", why, action="mark_failed")
        self._become(machine, FAILURES[machine.status])

    def _become(self, machine: Machine, status: int) -> None:
        self._cancel(machine)
        before, machine.status = machine.status, status
        machine.changed()
        self._tell(machine, before)

    def _tell(self, machine: Machine, before: int) -> None:
        change = f"From '{states.STATUSES[before]}' to '{machine.status_name}'"
        self.events.add(machine, "DEBUG", "Node changed status", change)

    def _later(self, machine: Machine, seconds: float, act: Callable[[Machine], None]) -> None:
        self._cancel(machine)
        machine.timer = self._loop.call_later(seconds, self._due, machine, act)

    def _due(self, machine: Machine, act: Callable[[Machine], None]) -> None:
        if self.faults.down:
            self._waiting.append((machine, act))
        else:
            act(machine)

    def _cancel(self, machine: Machine) -> None:
        if machine.timer is not None:
            machine.timer.cancel()
            machine.timer = None
        self._waiting = [waiting for waiting in self._waiting if waiting[0] is not machine]

    def _new_id(self) -> str:
        """Return a system_id: six letters and digits that have no double."""
        while True:
            found = "".join(secrets.choice("abcdefghkmnpqrstwxy34678") for _ in range(6))
            if found not in self.machines:
                return found

    # What a machine has come to

    def _commissioned(self, machine: Machine) -> None:
        """Note what commissioning found; what users said of it stays."""
        machine.status, machine.commissioned = states.READY, True
        machine.cores = machine.cores or 4
        machine.memory_mib = machine.memory_mib or 4096
        machine.disks_gb = machine.disks_gb or [20.0]
        self.events.add(machine, "INFO", "Ready")

    def _deployed(self, machine: Machine) -> None:
        machine.status = states.DEPLOYED
        self.events.add(machine, "INFO", "Deployed")

    def _released(self, machine: Machine) -> None:
        machine.status = states.READY if machine.commissioned else states.NEW
        machine.owner = ""
        machine.owner_data = {}
        self.events.add(machine, "INFO", "Released")


def _in_use(mac: str, other: Machine, count: int) -> str:
    """Return what a form says of a MAC address that is another machine's (WithMACAddressesMixin in forms)."""
    said = f"MAC address {mac} already in use on {other.hostname}."
    return said if count == 1 else f"One or more MAC addresses is invalid. ({said})"
