"""Measures the offset between the clocks of two machines: a server that sends its time, and a client.

A request is REQUEST bytes: a mark, a nonce and padding. The answer repeats the nonce and adds the time. It is shorter
than the request, so the server cannot be used to amplify traffic to a forged address. Everything else gets no answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import math
import secrets
import struct
from asyncio import DatagramProtocol, DatagramTransport
from collections.abc import Callable
from typing import Any, cast

from tippingpoint.errors import UserError
from tippingpoint.util import timing
from tippingpoint.util.network_errors import in_words

_ASK = b"tpc?"
_SAY = b"tpc!"
_NONCE = 16
_ANSWER = struct.Struct(f">4s{_NONCE}sd")
REQUEST = 32
"""Bytes of a request; an answer has 28."""
_PATIENCE = 1.0
"""Seconds that a probe waits for its answer; a slower answer would be too inexact to be of use."""
_PAUSE = 0.02
_GIVEN_UP = 2
"""Number of probes without an answer after which no more are sent."""
_LATEST = 1e11
"""Seconds since the epoch, later than any clock shows (the year 5138)."""


class ClockServer(DatagramProtocol):
    """Answers valid requests with the present time."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._transport: DatagramTransport | None = None
        self._busy = False
        self.address = ""
        """The address that it listens on: 10.0.0.5:41234 or [fd00::5]:41234."""

    @classmethod
    async def listen(cls, host: str, port: int = 0, *, now: Callable[[], float] | None = None) -> ClockServer:
        """Return a server on an address of this machine; port 0 is any free port. Raises UserError if it cannot
        listen.

        `now` is the clock that it serves, in seconds since the epoch; by default the wall clock.
        """
        try:
            transport, server = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: cls(now or timing.wall), local_addr=(host, port)
            )
        except (OSError, ValueError) as problem:
            accepted = f"an address of this machine ({in_words(problem)})"
            raise UserError("clock", f"{host}:{port}", accepted) from None
        shown, bound = transport.get_extra_info("sockname")[:2]
        server.address = f"[{shown}]:{bound}" if ":" in shown else f"{shown}:{bound}"
        return server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for answers."""
        self._transport = cast(DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        """Answer a request; drop everything else."""
        if self._transport is None or self._busy or len(data) != REQUEST or not data.startswith(_ASK):
            return
        self._transport.sendto(_ANSWER.pack(_SAY, data[4 : 4 + _NONCE], self._now()), addr)

    def pause_writing(self) -> None:
        """Stop answering while answers wait to be sent: their time would be old."""
        self._busy = True

    def resume_writing(self) -> None:
        """Resume answering."""
        self._busy = False

    def error_received(self, exc: Exception) -> None:
        """Ignore an answer that cannot be delivered: the client will ask again, or not."""

    def close(self) -> None:
        """Stop listening."""
        if self._transport is not None:
            self._transport.close()


class _Asking(DatagramProtocol):
    """The client's side of one measurement. Its socket is connected, so it only receives from the server."""

    def __init__(self) -> None:
        self.nonce = b""
        self.answer: asyncio.Future[tuple[float, float]] | None = None

    def datagram_received(self, data: bytes, addr: tuple[str | Any, int]) -> None:
        """Take the answer to the open request: when it arrived, and its time."""
        arrived = timing.monotonic()
        if self.answer is None or self.answer.done() or len(data) != _ANSWER.size:
            return
        mark, nonce, said = _ANSWER.unpack(data)
        if mark == _SAY and nonce == self.nonce and math.isfinite(said) and 0 <= said <= _LATEST:
            self.answer.set_result((arrived, said))

    def error_received(self, exc: Exception) -> None:
        """Ignore a closed port: the probe times out."""


async def measure_offset(
    address: str, probes: int = 8, *, now: Callable[[], float] | None = None
) -> tuple[float, float] | None:
    """Return how many seconds our clock is ahead of theirs (negative: behind), and the largest possible error.

    Returns None without an answer. `address` is that of a ClockServer. The probe with the shortest round trip counts,
    as in NTP (RFC 5905, section 10). Their clock was read at some moment in it, so the error is at most half of it.
    """
    host, _, port = address.rpartition(":")
    try:
        there = (str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))), int(port))
        transport, asking = await asyncio.get_running_loop().create_datagram_endpoint(
            _Asking, remote_addr=there
        )
    except (OSError, ValueError, OverflowError):
        return None
    try:
        found = await _measured(transport, asking, probes, now or timing.wall)
    finally:
        transport.close()
    return min(found, key=lambda offset: offset[1]) if found else None


async def _measured(
    transport: DatagramTransport, asking: _Asking, probes: int, now: Callable[[], float]
) -> list[tuple[float, float]]:
    found: list[tuple[float, float]] = []
    unanswered = 0
    for number in range(probes):
        if number:
            await asyncio.sleep(_PAUSE)
        asking.nonce = secrets.token_bytes(_NONCE)
        asking.answer = asyncio.get_running_loop().create_future()
        ours, sent = now(), timing.monotonic()
        transport.sendto((_ASK + asking.nonce).ljust(REQUEST, b"\0"))
        answer: tuple[float, float] | None = None
        with contextlib.suppress(TimeoutError):
            answer = await asyncio.wait_for(asking.answer, _PATIENCE)
        if answer is None:
            unanswered += 1
            if unanswered == _GIVEN_UP and not found:
                break
            continue
        half = (answer[0] - sent) / 2
        found.append((ours + half - answer[1], half))
    return found
