"""Finds free TCP ports on loopback that stay free while a member is down and other tests and labs run."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import zlib
from pathlib import Path

from lab.control import LabError

_LOWEST = 10_000
_BLOCK = 50
"""The number of ports in a block. Each process reserves whole blocks."""
_asking = threading.Lock()
_blocks: list[socket.socket] = []
_unused: list[int] = []
_preferred: str | None = None


def prefer(name: str) -> None:
    """Have this process take the same ports whenever it is started with this name, as far as they are free."""
    global _preferred
    _preferred = name


def free_ports(count: int) -> list[int]:
    """Return ports without a listener, below the kernel's range for outgoing connections. None is returned twice.

    A port within that range could be given to a connection while its member is dead.
    """
    ports: list[int] = []
    with _asking:
        while len(ports) < count:
            if not _unused:
                _unused.extend(reversed(_block()))
            port = _unused.pop()
            with contextlib.suppress(OSError), socket.socket() as listener:
                # As servers do: connections of a lab that has just stopped (TIME_WAIT) do not take the port.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(("127.0.0.1", port))
                listener.listen()
                ports.append(port)
    return ports


def _block() -> range:
    """Reserve a block of ports for the life of this process.

    The lock is the name of an abstract socket, which needs no file. The kernel gives a name to one process only, and
    frees it when that process ends.
    """
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    highest = ephemeral - 1 if ephemeral > _LOWEST + 1000 else 65_535
    for first in _in_order(list(range(_LOWEST, highest + 2 - _BLOCK, _BLOCK))):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0tippingpoint-ports-{first}")
        except OSError:
            name.close()
            continue
        _blocks.append(name)
        return range(first, first + _BLOCK)
    raise LabError(f"ports {_LOWEST} to {highest}: all taken", "fewer tests and labs at a time")


def _in_order(firsts: list[int]) -> list[int]:
    """Return the blocks in the order to try: from the preferred name's own on, or at random, as tests should be."""
    if _preferred is None:
        random.shuffle(firsts)
        return firsts
    own = zlib.crc32(_preferred.encode()) % len(firsts)
    return firsts[own:] + firsts[:own]
