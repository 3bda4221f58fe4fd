"""Free TCP ports on loopback that stay free while a member is down."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

_LOWEST = 10_000


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, below the range the kernel gives to outgoing connections.

    A port out of that range would be at risk while its member is dead: a connection could be given it.
    """
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    highest = ephemeral - 1 if ephemeral > _LOWEST + 1000 else 65_535
    ports: list[int] = []
    with ExitStack() as held:
        while len(ports) < count:
            port = random.randint(_LOWEST, highest)
            listener = held.enter_context(socket.socket())
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
    return ports
