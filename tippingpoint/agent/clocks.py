"""Serves this unit's clock to others, and measures its offset from the reference's clock."""

from __future__ import annotations

import contextlib
import socket

from tippingpoint.agent.clock_offset import ClockServer, measure_offset


class Clocks:
    """A clock server on this unit's address, and measurements against the reference's."""

    def __init__(self) -> None:
        self._server: ClockServer | None = None
        self._listens_on = ""

    @property
    def address(self) -> str:
        """Address and port of our clock server; empty without one."""
        return self._server.address if self._server is not None else ""

    async def listen(self, address: str) -> None:
        """Serve on this address of ours; an empty one means that of the default route. A failure leaves no server."""
        host = address or _own_address()
        if self._server is not None and host == self._listens_on:
            return
        await self.close()
        with contextlib.suppress(OSError):
            self._server = await ClockServer.listen(host, 0)
            self._listens_on = host

    async def measure(self, reference: str) -> tuple[float, float] | None:
        """Return how many seconds our clock is ahead of the reference's, and the possible error; None without an
        answer."""
        if reference == self.address:
            return 0.0, 0.0
        return await measure_offset(reference)

    async def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.close()
            self._server = None


def _own_address() -> str:
    """Return the address that others see us by; the kernel knows it without sending a packet."""
    for family, elsewhere in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as there:
            there.connect((elsewhere, 9))  # addresses for documentation (RFC 5737 and 3849)
            return str(there.getsockname()[0])
    return "127.0.0.1"
