"""Free TCP ports on loopback that stay free while a member is down, and whatever other tests and labs run beside."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from pathlib import Path

from lab.control import LabError

_LOWEST = 10_000
_BLOCK = 50
"""A process has ports of its own, in blocks of so many."""
_asking = threading.Lock()
_blocks: list[socket.socket] = []
_unused: list[int] = []


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, below the range the kernel gives to outgoing connections; none is told twice.

    A port out of that range would be at risk while its member is dead: a connection could be given it.
    """
    ports: list[int] = []
    with _asking:
        while len(ports) < count:
            if not _unused:
                _unused.extend(_block())
            port = _unused.pop()
            with contextlib.suppress(OSError), socket.socket() as listener:
                listener.bind(("127.0.0.1", port))
                ports.append(port)
    return ports


def _block() -> range:
    """Ports that no other process takes while this one lives: the kernel gives the name of a socket, abstract and so
    without a file, to one of them in all, and takes it back when that ends."""
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    highest = ephemeral - 1 if ephemeral > _LOWEST + 1000 else 65_535
    firsts = list(range(_LOWEST, highest + 2 - _BLOCK, _BLOCK))
    random.shuffle(firsts)
    for first in firsts:
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0tippingpoint-ports-{first}")
        except OSError:
            name.close()
            continue
        _blocks.append(name)
        return range(first, first + _BLOCK)
    raise LabError(f"ports {_LOWEST} to {highest}: all taken", "fewer tests and labs at a time")
