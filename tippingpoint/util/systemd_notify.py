"""What systemd is told of this service: sd_notify(3), datagrams to the socket that it names."""

from __future__ import annotations

import asyncio
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


async def serve_until(ending: asyncio.Event) -> None:
    """Tell systemd that we are ready, that we live, as often as it asks to hear that, and at the end that we stop."""
    notify("READY=1")
    every = watchdog_every()
    while not ending.is_set():
        notify("WATCHDOG=1")
        with suppress(TimeoutError):
            async with asyncio.timeout(every):
                await ending.wait()
    notify("STOPPING=1")


def watchdog_every() -> float | None:
    """Seconds after which systemd is to hear from us, half of what it waits; None where it does not wait."""
    text = os.environ.get("WATCHDOG_USEC", "")
    return int(text) / 2e6 if text.isascii() and text.isdigit() and int(text) else None
