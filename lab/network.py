"""A lab's network: a bridge in a separate network namespace, with one link to the host and a port per machine.

The namespace and its links live as long as the process that holds them, so nothing can be left behind.
"""

from __future__ import annotations

import ipaddress
import json
import os
import random
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack

from lab.control import LabError
from lab.patience import PATIENCE_S
from lab.tether import tethered

BRIDGE = "br0"
"""The bridge in the switch's network namespace."""
_BELOW = "10.87.{}.0/24"


class Switch:
    """The bridge and the host's link to it. Machine N has address N of a subnet that is unused on this host."""

    def __init__(
        self,
        start: Callable[[list[str]], subprocess.Popen[bytes]],
        cleanup: ExitStack,
        bridge: str = BRIDGE,
    ) -> None:
        """`start` starts a program that ends with the lab. The switch is removed when the context ends."""
        self.path = f"/proc/{hold_namespace(start, cleanup)}/ns/net"
        self.link, self._subnet = _link(self.path)
        cleanup.callback(subprocess.run, ["ip", "link", "del", self.link], capture_output=True, check=False)
        self._ip("link", "add", bridge, "type", "bridge")
        self._ip("link", "set", "host", "master", bridge, "up")
        self._ip("link", "set", bridge, "up")
        run_network(["ip", "addr", "add", f"{self.host}/{self._subnet.prefixlen}", "dev", self.link])
        run_network(["ip", "link", "set", self.link, "up"])

    @property
    def host(self) -> str:
        """The address of this host, at its end of the link."""
        return str(self._subnet[1])

    def address(self, number: int) -> str:
        """The address of machine `number`, from 1."""
        return str(self._subnet[10 + number])

    def with_prefix(self, number: int) -> str:
        """The address of machine `number` with its prefix length."""
        return f"{self.address(number)}/{self._subnet.prefixlen}"

    def unplug(self, port: str) -> None:
        """Take a machine's link down: packets from and to it are dropped silently."""
        self._ip("link", "set", port, "down")

    def plug(self, port: str) -> None:
        """Undo `unplug`."""
        self._ip("link", "set", port, "up")

    def remove(self, port: str) -> None:
        """Remove a machine's link, both ends; one that has gone already is no error."""
        command = ["nsenter", f"--net={self.path}", "ip", "link", "del", port]
        subprocess.run(command, capture_output=True, check=False)

    def _ip(self, *arguments: str) -> None:
        run_network(["nsenter", f"--net={self.path}", "ip", *arguments])


def _link(switch: str) -> tuple[str, ipaddress.IPv4Network]:
    """Make the host's link. Its name contains the subnet, so that two labs cannot use the same one."""
    used = _used()
    numbers = random.sample(range(256), 256)
    for number in numbers:
        subnet = ipaddress.IPv4Network(_BELOW.format(number))
        name = f"tp-lab-{number}"
        if any(subnet.overlaps(other) for other in used):
            continue
        add = ["ip", "link", "add", name, "type", "veth", "peer", "name", "host", "netns", switch]
        made = subprocess.run(add, capture_output=True, text=True, check=False)
        if made.returncode == 0:
            return name, subnet
        if "File exists" not in made.stderr:
            raise LabError(f"ip link add: {made.stderr}", "to be allowed to make network links (root)")
    raise LabError("subnet: none is free", f"one of {_BELOW.format('0..255')} that this host has no route to")


def _used() -> list[ipaddress.IPv4Network]:
    routes = json.loads(run_network(["ip", "-json", "-4", "route", "show", "table", "all"]) or "[]")
    return [ipaddress.IPv4Network(route["dst"]) for route in routes if route["dst"] != "default"]


def hold_namespace(start: Callable[[list[str]], subprocess.Popen[bytes]], cleanup: ExitStack) -> int:
    """Make a network namespace, which ends with the context; returns the process that holds it.

    `start` starts a program that ends with the lab. Raises LabError.
    """
    holder = start(tethered(["unshare", "--net", "sleep", "infinity"]))
    cleanup.callback(_end, holder)
    hosts = os.readlink("/proc/self/ns/net")
    deadline = time.monotonic() + PATIENCE_S
    while os.readlink(f"/proc/{holder.pid}/ns/net") == hosts:
        if holder.poll() is not None or time.monotonic() > deadline:
            raise LabError("unshare: no network namespace", "to be allowed to make one (root)")
        time.sleep(0.005)
    return holder.pid


def _end(holder: subprocess.Popen[bytes]) -> None:
    holder.kill()
    holder.wait(PATIENCE_S)


def run_network(command: list[str], needs: str = "iproute2, and to be allowed to use it (root)") -> str:
    """Run a command of iproute2; returns what it says. Raises LabError, which says what it `needs`."""
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise LabError(f"{' '.join(command)}: {ran.stderr}", needs)
    return ran.stdout
