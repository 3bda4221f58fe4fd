"""A network namespace whose link to the host carries no more than so many bits a second of the answers of one TCP port.

    with ExitStack() as cleanup:
        link = ThinLink(cleanup, port=2379, bits_per_s=500_000)
        ...  # run the server with the command link.within before its own, on link.address

What does not fit waits in a short queue, and is dropped when that is full, as on a slow line. Requests, and traffic of
other ports, such as scrapes, have all of the link.
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack

from lab.network import BRIDGE, Switch, hold_namespace, run_network

_PORT = "port1"
QUEUED_BYTES = 8_000
"""The length of each queue: five full packets, as short as that of a slow modem without bloat."""


class ThinLink:
    """A namespace with a thin link. It is removed when the context ends."""

    def __init__(self, cleanup: ExitStack, port: int, bits_per_s: int) -> None:
        self._switch = Switch(_start, cleanup)
        self.pid = hold_namespace(_start, cleanup)
        """A process in the namespace."""
        self.within = ["nsenter", f"--net=/proc/{self.pid}/ns/net"]
        """A command that runs another one in the namespace."""
        self.address = self._switch.address(1)
        inside, switch = self.within, ["nsenter", f"--net={self._switch.path}"]
        link = ["type", "veth", "peer", "name", _PORT, "netns", self._switch.path]
        _run([*inside, "ip", "link", "add", "eth0", *link])
        _run([*inside, "ip", "addr", "add", self._switch.with_prefix(1), "dev", "eth0"])
        _run([*inside, "ip", "link", "set", "eth0", "up"])
        _run([*inside, "ip", "link", "set", "lo", "up"])
        _run([*switch, "ip", "link", "set", _PORT, "master", BRIDGE, "up"])
        # In the switch, for a sender's own queue would make it wait instead of losing what it sent.
        tc, device = [*switch, "tc"], ["dev", "host"]
        _run([*tc, "qdisc", "add", *device, "root", "handle", "1:", "htb"])
        _run(
            [
                *tc,
                "class",
                "add",
                *device,
                "parent",
                "1:",
                "classid",
                "1:10",
                "htb",
                "rate",
                f"{bits_per_s}bit",
            ]
        )
        _run([*tc, "qdisc", "add", *device, "parent", "1:10", "bfifo", "limit", str(QUEUED_BYTES)])
        which = ["u32", "match", "ip", "sport", str(port), "0xffff", "flowid", "1:10"]
        _run([*tc, "filter", "add", *device, "parent", "1:", "protocol", "ip", *which])


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


def _run(command: list[str]) -> None:
    run_network(command, "iproute2 and HTB, and to be allowed to use them (root)")
