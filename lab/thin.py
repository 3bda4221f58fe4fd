"""A network namespace whose link to the host carries no more than so many bits a second of the answers of one TCP port.

    with ExitStack() as cleanup:
        link = ThinLink(cleanup, port=2379, bits_per_s=500_000)
        ...  # run the server with the command link.within before its own, on link.address

The thin place is a line beyond the server's machine, or the server's own network card (`own_card`). What does not fit
waits in a queue there, and is dropped when that is full. Requests, and traffic of other ports, such as scrapes,
have all of the link.

A sender looks at its own card's queue, and keeps what it has in the socket while a few packets wait there (TCP small
queues), so that none is lost. It knows nothing of a queue elsewhere. There the kernel's congestion control decides: a
sender with CUBIC fills the queue until packets are lost, one with BBR soon keeps so few under way that hardly any are.
"""

from __future__ import annotations

import subprocess
from contextlib import ExitStack

from lab.network import BRIDGE, Switch, hold_namespace, run_network

_PORT = "port1"
LEAST_QUEUED_BYTES = 8_000
"""The shortest length of the queue: five full packets, as short as that of a slow modem without bloat."""
QUEUED_SECONDS = 0.05
"""The time that a fast line's queue takes to be sent."""
CARD_PACKETS = 1_000
"""The length of a card's own queue: what Linux gives it by default (txqueuelen)."""


class ThinLink:
    """A namespace with a thin link. It is removed when the context ends."""

    def __init__(self, cleanup: ExitStack, port: int, bits_per_s: int, own_card: bool = False) -> None:
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
        if own_card:
            tc, on = [*inside, "tc"], ["dev", "eth0"]
            queue = ["pfifo", "limit", str(CARD_PACKETS)]
        else:
            tc, on = [*switch, "tc"], ["dev", "host"]
            length = max(LEAST_QUEUED_BYTES, round(bits_per_s / 8 * QUEUED_SECONDS))
            queue = ["bfifo", "limit", str(length)]
            # A line carries single packets, and loses them singly.
            _run([*inside, "ip", "link", "set", "dev", "eth0", "gso_max_segs", "1"])
        of_class = ["parent", "1:", "classid", "1:10", "htb", "rate", f"{bits_per_s}bit"]
        which = ["u32", "match", "ip", "sport", str(port), "0xffff", "flowid", "1:10"]
        _run([*tc, "qdisc", "add", *on, "root", "handle", "1:", "htb"])
        _run([*tc, "class", "add", *on, *of_class])
        _run([*tc, "qdisc", "add", *on, "parent", "1:10", *queue])
        _run([*tc, "filter", "add", *on, "parent", "1:", "protocol", "ip", *which])


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.DEVNULL)


def _run(command: list[str]) -> None:
    run_network(command, "iproute2 and HTB, and to be allowed to use them (root)")
