"""A program for the distribution's Python: carries out on libvirt what lines of JSON on its standard input request.

`/usr/bin/python3 -I program.py`. The binding of libvirt (python3-libvirt) is made for that Python only, so this file
imports nothing from the suite, and runs on Python 3.11 and later. Each line is `{"id": 1, "do": "facts", "uri": ...}`,
answered by `{"id": 1, "done": ...}` or `{"id": 1, "problem": TEXT, "code": N}`, where N is one of libvirt's VIR_ERR_*,
or 0. Answers come in any order. A first line says that the program is ready. It ends with its input.

Nothing is removed by its name alone: the run's domains have its mark as their description, and its pool has its UUID.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from array import array
from base64 import b64decode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

_CALLS = 5
"""Concurrent requests: libvirtd serves as many of one client (max_client_requests of libvirtd.conf)."""
_NO_BRIDGE = 2
"""The exit code of `ovs-vsctl br-exists` for a bridge that does not exist."""
_ETHTOOL, _GET_DRIVER, _DRIVER_INFO = 0x8946, 3, 196
"""SIOCETHTOOL (linux/sockios.h), ETHTOOL_GDRVINFO and the size of struct ethtool_drvinfo (linux/ethtool.h)."""
_LOOK_EVERY = 0.1
"""Seconds between two looks at a machine that is being tried out."""


class Refused(Exception):
    """A request that this program itself refuses."""


def _binding() -> Any:
    try:
        return importlib.import_module("libvirt")
    except ImportError:
        return None


libvirt = _binding()


class Server:
    """A libvirt, which is reached again when the connection has ended."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._lock = threading.Lock()
        self._connection: Any = None

    def reached(self) -> Any:
        """Return a connection that has not ended as far as is known."""
        with self._lock:
            if self._connection is None or self._connection.isAlive() != 1:
                self._connection = None
                self._connection = libvirt.open(self._uri)
            return self._connection

    def facts(self) -> dict[str, Any]:
        """Return the server's name, version and processors, and by architecture the types of domains it advertises."""
        server = self.reached()
        capabilities = ET.fromstring(server.getCapabilities())
        types = {
            arch.get("name", ""): [domain.get("type") for domain in arch.findall("domain")]
            for guest in capabilities.findall("guest")
            if guest.findtext("os_type") == "hvm"
            for arch in guest.findall("arch")
        }
        return {
            "host": server.getHostname(),
            "version": server.getLibVersion(),
            "arch": capabilities.findtext("host/cpu/arch"),
            "types": types,
        }

    def networks(self, names: list[str]) -> dict[str, str]:
        """Return what each name is: "network" (libvirt's), "bridge", "openvswitch", or "" if it is none of them."""
        server = self.reached()
        networks = {network.name() for network in server.listAllNetworks()}
        return {name: "network" if name in networks else _bridge(server, name) for name in names}

    def room(self, pool: str, directory: str) -> dict[str, Any]:
        """Return the free memory and disk in bytes; disk is None if libvirt has no pool that shows it.

        The disk is that of the run's pool, of a pool in the directory, or of a directory of this machine.
        """
        server = self.reached()
        memory = server.getMemoryStats(libvirt.VIR_NODE_MEMORY_STATS_ALL_CELLS)
        free = sum(memory.get(part, 0) for part in ("free", "buffers", "cached")) << 10
        return {"memory": free, "disk": _free_disk(server, pool, directory)}

    def make_pool(self, name: str, uuid: str, xml: str) -> None:
        """Define a storage pool and build its directory, unless it exists, and activate it."""
        server = self.reached()
        if _pool(server, name, uuid) is None:
            server.storagePoolDefineXML(xml)
        _active(server, name, uuid)

    def make(self, pool: str, uuid: str, volumes: list[str], domain: str, mark: str, xml: str) -> None:
        """Make a machine's volumes and define it, unless they exist. It is off."""
        server = self.reached()
        _domain(server, domain, mark)
        place = _active(server, pool, uuid)
        for volume in volumes:
            _unless(libvirt.VIR_ERR_STORAGE_VOL_EXIST, lambda volume=volume: place.createXML(volume))
        server.defineXML(xml)

    def unmake(self, pool: str, uuid: str, domain: str, mark: str, volumes: str) -> bool:
        """Remove a machine, running or not, and the pool's volumes whose names begin with `volumes`.

        Returns whether any of it existed.
        """
        server = self.reached()
        found = _domain(server, domain, mark)
        if found is not None:
            _remove_domain(found)
        if _pool(server, pool, uuid) is None:
            return found is not None
        return bool(_remove_volumes(_active(server, pool, uuid), volumes)) or found is not None

    def domains(self, prefix: str, mark: str) -> list[str]:
        """Return the names of the run's machines."""
        found = self.reached().listAllDomains()
        return [one.name() for one in found if one.name().startswith(prefix) and _mark(one) == mark]

    def remove_pool(self, name: str, uuid: str, volumes: str) -> bool:
        """Remove the run's pool with its directory; returns whether it existed.

        Volumes whose names do not begin with `volumes` are somebody else's: they stay, and so does the pool.
        """
        server = self.reached()
        if _pool(server, name, uuid) is None:
            return False
        pool = _active(server, name, uuid)
        pool.refresh()
        _remove_volumes(pool, volumes)
        others = sorted(volume.name() for volume in pool.listAllVolumes())
        if others:
            raise Refused(f"storage pool {name}: has {others[0]}, which is not the run's")
        pool.destroy()
        pool.delete()
        pool.undefine()
        return True

    def try_out(
        self, pool: str, uuid: str, volume: str, content: str, xml: str, within: float, cpu: float
    ) -> dict[str, Any]:
        """Boot a machine from a volume with this content (base64), and see whether it ends by itself.

        It is stopped after `within` seconds, or `cpu` seconds of processor time. Returns `ended`, and in `said` why it
        did not start.
        """
        server = self.reached()
        place, data = _active(server, pool, uuid), b64decode(content)
        disk = _unless(libvirt.VIR_ERR_STORAGE_VOL_EXIST, lambda: place.createXML(volume))
        disk = disk or place.storageVolLookupByName(ET.fromstring(volume).findtext("name"))
        try:
            stream = server.newStream()
            disk.upload(stream, 0, len(data))
            stream.send(data)
            stream.finish()
            try:
                return {"ended": _ends(server.createXML(xml), within, cpu), "said": ""}
            except libvirt.libvirtError as problem:
                if server.isAlive() != 1:
                    raise
                return {"ended": False, "said": str(problem)}
        finally:
            disk.delete()


def _ends(domain: Any, within: float, cpu: float) -> bool:
    """Whether a machine that has just started ends in time; it is gone afterwards."""
    until = time.monotonic() + within
    try:
        while time.monotonic() < until:
            state, _, _, _, used = domain.info()
            if state in (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_CRASHED):
                return True
            if used > cpu * 1e9:
                break
            time.sleep(_LOOK_EVERY)
        domain.destroy()
    except libvirt.libvirtError as problem:
        if problem.get_error_code() != libvirt.VIR_ERR_NO_DOMAIN:
            raise
        return True
    return False


def _unless(code: int, do: Callable[[], Any]) -> Any:
    """Return what a call of libvirt's returns, or None if it fails with this error."""
    try:
        return do()
    except libvirt.libvirtError as problem:
        if problem.get_error_code() != code:
            raise
        return None


def _bridge(server: Any, name: str) -> str:
    """Return what a network interface of the server is: "bridge", "openvswitch" or neither.

    If libvirt does not know, the interfaces of this machine count.
    """
    try:
        shown = ET.fromstring(server.interfaceLookupByName(name).XMLDesc())
        if shown.get("type") == "bridge":
            return "bridge"
    except libvirt.libvirtError as problem:
        if problem.get_error_code() == libvirt.VIR_ERR_NO_SUPPORT:
            if os.path.isdir(f"/sys/class/net/{name}/bridge"):
                return "bridge"
        elif problem.get_error_code() != libvirt.VIR_ERR_NO_INTERFACE:
            raise
    return "openvswitch" if _is_open_vswitch(name) else ""  # libvirt lists it as an ordinary interface


def _is_open_vswitch(name: str) -> bool:
    """Whether Open vSwitch has such a bridge. It answers only root; for everybody else, its driver is a sign."""
    try:
        found = subprocess.run(
            ["ovs-vsctl", "--timeout=5", "--", "br-exists", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return False
    if found.returncode in (0, _NO_BRIDGE):
        return found.returncode == 0
    driver = array("B", struct.pack("I", _GET_DRIVER).ljust(_DRIVER_INFO, b"\0"))
    request = struct.pack("16sP16x", name.encode()[:15], driver.buffer_info()[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _ETHTOOL, request)
    except OSError:
        return False
    return driver.tobytes()[4:36].rstrip(b"\0") == b"openvswitch"


def _free_disk(server: Any, pool: str, directory: str) -> int | None:
    for look in (
        lambda: server.storagePoolLookupByName(pool),
        lambda: server.storagePoolLookupByTargetPath(directory),
    ):
        found = _unless(libvirt.VIR_ERR_NO_STORAGE_POOL, look)
        if found is not None and found.isActive():
            found.refresh()
            return found.info()[3]
    if not server.getURI().startswith("qemu:///"):
        return None
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    system = os.statvfs(directory)
    return system.f_bavail * system.f_frsize


def _pool(server: Any, name: str, uuid: str) -> Any:
    """Return the run's pool, or None. One with its name that is not the run's is refused."""
    found = _unless(libvirt.VIR_ERR_NO_STORAGE_POOL, lambda: server.storagePoolLookupByName(name))
    if found is not None and found.UUIDString() != uuid:
        raise Refused(f"storage pool {name}: exists, and is not the run's")
    return found


def _active(server: Any, name: str, uuid: str) -> Any:
    """Return the run's pool, activated: it is inactive after a restart of the server."""
    found = _pool(server, name, uuid)
    if found is None:
        raise Refused(f"storage pool {name}: does not exist")
    if not found.isActive():
        found.build()
        found.create()
    return found


def _domain(server: Any, name: str, mark: str) -> Any:
    """Return the run's machine, or None. One with its name that is not the run's is refused."""
    found = _unless(libvirt.VIR_ERR_NO_DOMAIN, lambda: server.lookupByName(name))
    if found is not None and _mark(found) != mark:
        raise Refused(f"domain {name}: exists, and is not the run's")
    return found


def _mark(domain: Any) -> str:
    """Return a machine's description; empty for none, and for a machine that has gone."""
    try:
        return domain.metadata(libvirt.VIR_DOMAIN_METADATA_DESCRIPTION, None)
    except libvirt.libvirtError as problem:
        if problem.get_error_code() not in (libvirt.VIR_ERR_NO_DOMAIN, libvirt.VIR_ERR_NO_DOMAIN_METADATA):
            raise
        return ""


def _remove_domain(domain: Any) -> None:
    """Stop a machine at once, and remove its definition with everything that libvirt keeps for it."""
    if domain.isActive():
        _unless(libvirt.VIR_ERR_OPERATION_INVALID, domain.destroy)  # it may just have ended
    kept = (
        libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
        | libvirt.VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA
        | libvirt.VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA
        | libvirt.VIR_DOMAIN_UNDEFINE_NVRAM
    )
    _unless(libvirt.VIR_ERR_NO_DOMAIN, lambda: domain.undefineFlags(kept))  # it was transient


def _remove_volumes(pool: Any, prefix: str) -> int:
    ours = [volume for volume in pool.listAllVolumes() if volume.name().startswith(prefix)]
    for volume in ours:
        _unless(libvirt.VIR_ERR_NO_STORAGE_VOL, volume.delete)
    return len(ours)


def _silent(_context: Any, _error: Any) -> None:
    """Print nothing about an error, which is raised as well."""


class Program:
    """Answers requests with threads, because libvirt's calls block."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._output = threading.Lock()

    def run(self) -> None:
        """Answer lines of the standard input until it ends."""
        libvirt.registerErrorHandler(_silent, None)
        self.say({"ready": True})
        with ThreadPoolExecutor(_CALLS) as threads:
            for line in sys.stdin:
                request: dict[str, Any] = json.loads(line)
                if self._server is None:
                    self._server = Server(request["uri"])
                threads.submit(self._answer, self._server, request)
            threads.shutdown(cancel_futures=True)

    def _answer(self, server: Server, request: dict[str, Any]) -> None:
        answer: dict[str, Any] = {"id": request["id"]}
        try:
            answer["done"] = getattr(server, request["do"])(**request["with"])
        except libvirt.libvirtError as problem:
            answer |= {"problem": str(problem), "code": problem.get_error_code() or 0}
        except Refused as problem:
            answer |= {"problem": str(problem), "code": 0, "refused": True}
        except Exception as problem:
            answer |= {"problem": f"unexpected {type(problem).__name__}: {problem}", "code": 0}
        self.say(answer)

    def say(self, message: dict[str, Any]) -> None:
        """Write a line, unless nobody reads any more."""
        with self._output:
            try:
                print(json.dumps(message), flush=True)
            except BrokenPipeError:
                os._exit(0)


def main() -> int:
    """Run the program and return its exit code: 3 without libvirt's binding."""
    if libvirt is None:
        return 3
    Program().run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
