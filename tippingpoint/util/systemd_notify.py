"""What systemd is told of this service: sd_notify(3), datagrams to the socket that it names."""

from __future__ import annotations

import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Tell systemd, such as `READY=1`; nobody is told where no systemd started us."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as there:
        there.sendto(state.encode(), address.replace("@", "\0", 1))


def watchdog_every() -> float | None:
    """Seconds after which systemd is to hear from us, half of what it waits; None where it does not wait."""
    text = os.environ.get("WATCHDOG_USEC", "")
    return int(text) / 2e6 if text.isascii() and text.isdigit() and int(text) else None
