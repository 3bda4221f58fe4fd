"""The region's control socket: a lab's requests (see lab/control.py), and what only this lab can do.

The members are `region` and the rack controllers `rack-1`, `rack-2`, ... Killing the region closes its port;
killing the last rack controller leaves no power, no boots and no VM hosts. Also:

    {"do": "slow", "member": "region", "seconds": 2}                    its database is slow: every answer is late
    {"do": "count"}  ->  {"counts": {"machines": 0, "tags": 0, ...}}    what is in its database
    {"do": "boots", "lost": 0.5}                                        that share never boots by PXE; 0: all boot
    {"do": "power", "state": "silent"}                                  power controllers: normal, silent or failing
    {"do": "vm-host", "name": "host-1", "state": "full"}                normal, full or unreachable
    {"do": "revoke-keys"}, {"do": "restore-keys"}                       every API key that there is
    {"do": "machines", "count": 1000}                                   that many more, Ready, with power of their own
    {"do": "facts"}  ->  {"simulated": true, "version": "3.3.11"}

A lab with libvirt has one more member, `libvirtd`: its virtual machines outlive it. The facts then have `libvirt`, with
its version and whether machines run under KVM or in emulation.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from lab.control import LabError, Member
from lab.maas import machine as states
from lab.maas.calls import Calls
from lab.maas.libvirt_daemon import NAME as LIBVIRTD
from lab.maas.libvirt_daemon import Libvirtd
from lab.maas.oauth import Keys
from lab.maas.refusal import Refused
from lab.maas.region import REGION, Region
from lab.maas.server import Server
from lab.patience import PATIENCE_S
from lab.places import Places

T = TypeVar("T")
_POWER = ("normal", "silent", "failing")
_HOST = ("normal", "full", "unreachable")
MOST_MACHINES = 100_000
MOST_HOSTS = 1000
_COUNTED = {
    "tags": "tags",
    "zones": "zones",
    "pools": "resourcepools",
    "fabrics": "fabrics",
    "ssh-keys": "account/prefs/sshkeys",
}


class Control:
    """The lab's actions, which the socket's threads have the event loop carry out."""

    def __init__(
        self,
        region: Region,
        server: Server,
        keys: Keys,
        calls: Calls,
        version: str,
        loop: asyncio.AbstractEventLoop,
        places: Places,
        libvirt: Mapping[str, Any] | None = None,
    ) -> None:
        """`libvirt` is what describes the host of real machines, and says where its daemon is."""
        self.places = places
        self._region = region
        self._server = server
        self._keys = keys
        self._calls = calls
        self._loop = loop
        self._facts: dict[str, Any] = {"simulated": True, "version": version}
        self._libvirtd: Libvirtd | None = None
        if libvirt:
            self._libvirtd = Libvirtd(libvirt["host"], Path(libvirt["directory"]))
            self._facts["libvirt"] = {name: libvirt[name] for name in ("version", "virtualization")}

    @property
    def names(self) -> list[str]:
        """The members."""
        return [REGION, *self._region.racks] + [LIBVIRTD] * (self._libvirtd is not None)

    def members(self) -> list[Member]:
        """Return every member's state. All but libvirtd share one process."""

        def look() -> list[Member]:
            up = {REGION} if self._server.serves else set[str]()
            up |= set(self._region.racks_up)
            running = up - ({REGION} if self._server.frozen else set[str]())
            return [
                Member(
                    name=name, pid=os.getpid() if name in up else None, running=name in running, leader=False
                )
                for name in self.names
                if name != LIBVIRTD
            ]

        members = self._on_loop(look)
        if (daemon := self._libvirtd) is not None:
            pid = daemon.pid
            running = pid is not None and not daemon.stopped
            members.append(Member(name=LIBVIRTD, pid=pid, running=running, leader=False))
        return members

    def kill(self, name: str) -> None:
        """Kill a member."""
        if name == LIBVIRTD and self._libvirtd is not None:
            self._libvirtd.kill()
        elif name == REGION:
            self._wait(self._server.close())
        else:
            self._on_loop(lambda: self._region.faults.dead_racks.add(name))

    def start(self, name: str) -> None:
        """Undo `kill`."""
        if name == LIBVIRTD and self._libvirtd is not None:
            self._libvirtd.start()
        elif name != REGION:
            self._on_loop(lambda: self._region.faults.dead_racks.discard(name))
        elif self._server.serves:
            raise LabError(f"{name}: is running", "a member that is dead")
        else:
            self._wait(self._server.start())

    def stop(self, name: str) -> None:
        """Freeze the region; a rack controller that is frozen is as good as gone."""
        if name == LIBVIRTD and self._libvirtd is not None:
            self._libvirtd.stop()
        elif name == REGION:
            self._on_loop(self._server.freeze)
        else:
            self.kill(name)

    def resume(self, name: str) -> None:
        """Undo `stop`."""
        if name == LIBVIRTD and self._libvirtd is not None:
            self._libvirtd.resume()
        elif name == REGION:
            self._on_loop(self._server.thaw)
        else:
            self.start(name)

    def slow(self, name: str, seconds: float) -> None:
        """Delay the region's answers."""
        if name != REGION:
            raise LabError(f"{name}: cannot be made slow", REGION)
        self._on_loop(lambda: setattr(self._region.faults, "slow_s", seconds))

    def counts(self) -> dict[str, int]:
        """Return what is in the region's database."""

        def count() -> dict[str, int]:
            found = {"machines": len(self._region.machines), "vm-hosts": len(self._region.hosts)}
            return found | {name: self._calls.shelves.count(path) for name, path in _COUNTED.items()}

        return self._on_loop(count)

    def verbs(self) -> Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """Return what only this lab knows."""
        return {
            "boots": self._boots,
            "power": self._power,
            "vm-host": self._vm_host,
            "revoke-keys": lambda _: self._done(self._keys.revoke),
            "restore-keys": lambda _: self._done(self._keys.restore),
            "machines": self._machines,
            "facts": lambda _: self._facts,
        }

    def _boots(self, fields: dict[str, Any]) -> dict[str, Any]:
        lost = fields.get("lost")
        if not isinstance(lost, int | float) or not 0 <= lost <= 1:
            raise LabError(f"lost: {lost!r}", "a share, from 0 to 1")
        return self._done(lambda: setattr(self._region.faults, "lost_boots", float(lost)))

    def _power(self, fields: dict[str, Any]) -> dict[str, Any]:
        state = fields.get("state")
        if state not in _POWER:
            raise LabError(f"state: {state!r}", f"one of {', '.join(_POWER)}")
        return self._done(lambda: setattr(self._region.controllers, "fault", state))

    def _vm_host(self, fields: dict[str, Any]) -> dict[str, Any]:
        state, name = fields.get("state"), fields.get("name")
        if state not in _HOST:
            raise LabError(f"state: {state!r}", f"one of {', '.join(_HOST)}")

        def change() -> None:
            hosts = {host.name: host for host in self._region.hosts.values()}
            if name not in hosts:
                raise LabError(f"name: {name!r}", f"one of {', '.join(hosts) or 'no VM host'}")
            hosts[name].state = str(state)

        return self._done(change)

    def _machines(self, fields: dict[str, Any]) -> dict[str, Any]:
        count = fields.get("count")
        if not isinstance(count, int) or not 0 < count <= MOST_MACHINES:
            raise LabError(f"count: {count!r}", f"a number, at most {MOST_MACHINES}")
        return self._done(lambda: add_machines(self._region, count))

    def _done(self, act: Callable[[], object]) -> dict[str, Any]:
        self._on_loop(act)
        return {"ok": True}

    def _on_loop(self, act: Callable[[], T]) -> T:
        async def run() -> T:
            return act()

        return self._wait(run())

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)


def add_machines(region: Region, count: int) -> None:
    """Add machines that are Ready, as if somebody had enlisted and commissioned them long ago."""
    first = len(region.machines)
    for number in range(first, first + count):
        mac = "02:" + ":".join(f"{byte:02x}" for byte in number.to_bytes(5, "big"))
        name = f"machine-{number + 1}"
        parameters = {"power_address": "redfish.simulated", "power_user": "lab", "power_pass": "lab"}
        try:
            made = region.create([mac], "amd64/generic", "redfish", parameters, name)
        except Refused as refusal:
            raise LabError(f"{name}: {refusal.text}", "no machine of this name or MAC address") from None
        made.cores, made.memory_mib, made.disks_gb = 8, 16_384, [480.0]
        made.status, made.commissioned = states.READY, True
        made.changed()


def add_hosts(region: Region, count: int) -> None:
    """Add VM hosts, as if somebody had added them long ago."""
    for number in range(1, count + 1):
        name = f"host-{number}"
        region.add_host("virsh", f"qemu+ssh://{name}/system", name, "default", "default", {})
