"""Notifies systemd of this service's state: sd_notify(3), datagrams to the socket in NOTIFY_SOCKET."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress


def notify(state: str) -> None:
    """Send systemd a state such as `READY=1`; does nothing unless systemd started this process."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address[:1] not in ("/", "@"):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as there:
        there.sendto(state.encode(), address.replace("@", "\0", 1))


async def serve_until(ending: asyncio.Event) -> None:
    """Report readiness to systemd, then feed its watchdog until `ending` is set, then report the stop."""
    notify("READY=1")
    every = watchdog_every()
    while not ending.is_set():
        notify("WATCHDOG=1")
        with suppress(TimeoutError):
            async with asyncio.timeout(every):
                await ending.wait()
    notify("STOPPING=1")


def watchdog_every() -> float | None:
    """Return the seconds between watchdog notifications, half of systemd's limit; None without a watchdog."""
    text = os.environ.get("WATCHDOG_USEC", "")
    return int(text) / 2e6 if text.isascii() and text.isdigit() and int(text) else None
