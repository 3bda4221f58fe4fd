"""Virtual time: an event loop that never sleeps, and the engine's clocks, which go by it.

Whatever is due next happens at once, and the clocks say that its moment has come. Nothing else takes time, except where
a simulation says so (`stand_still`), so a run of an hour takes as long as its work does, and is the same each time.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.simulation.lives import LIFE, MACHINE, Life, Machine, is_dead
from tippingpoint.util import timing
from tippingpoint.workloads import schedule

EPOCH = 1_790_000_000.0
"""What the wall clock shows at the beginning, in seconds."""
BOOTED = 1000.0
"""Seconds since the boot at the beginning."""
_A_TURN = 1e-9
"""Seconds that a turn of the loop takes, so that who waits for less than a float can add is not there for ever."""


_ON_THE_WAY = 0.0003
"""Seconds that a datagram takes."""
Address = tuple[str, int]


class NothingDue(AssertionError):
    """Raised when all wait for each other: a run that would hang for ever."""


class NeverEnds(AssertionError):
    """Raised when a run goes on for longer than any may."""


class Crashed(Exception):
    """Raised when code of a simulation ended with an exception that nobody handled."""


class _DatagramEnd(asyncio.DatagramTransport):
    """One end of the network that sends datagrams."""

    def __init__(
        self, loop: VirtualLoop, protocol: asyncio.DatagramProtocol, host: str, peer: Address | None
    ) -> None:
        super().__init__()
        self.protocol = protocol
        self._loop = loop
        self._address = (host, 1024 + len(loop.ends))
        self._peer = peer
        self._context = contextvars.copy_context()
        loop.ends[self._address] = self

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._address if name == "sockname" else default

    def sendto(self, data: Any, addr: Any = None) -> None:
        to = self._loop.ends.get(addr or self._peer)
        if to is not None:
            self._loop.call_later(_ON_THE_WAY, to._receive, bytes(data), self._address)

    def _receive(self, data: bytes, sender: Address) -> None:
        if not self._context.run(is_dead):
            self._context.run(self.protocol.datagram_received, data, sender)

    def close(self) -> None:
        self._peer = None
        self._loop.ends[self._address] = None


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only where nothing is left to do. What it runs in threads it runs at once.

    It waits for no files: all that is simulated is in memory. What is due at one moment is done in the order in which
    it was asked for.
    """

    def __init__(self) -> None:
        self._virtual_now = BOOTED
        self._due: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._asked = 0
        self.disk_full_until = 0.0
        """The moment until which nothing can be written."""
        self.work_takes = 0.0
        """How many seconds it takes when something is done on another thread; nothing else runs meanwhile."""
        self.ends: dict[Address, _DatagramEnd | None] = {}
        """Who receives datagrams, by address; None for who has closed."""
        self.dead: set[int] = set()
        """The processes that were killed."""
        self._kept: list[asyncio.Task[Any]] = []
        """Tasks of the dead: to collect them would run their clean-up."""
        self._schedule = super().call_soon
        self._crash: Crashed | None = None
        super().__init__()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """End the simulation: what nobody handles would be a traceback on somebody's terminal."""
        problem = context.get("exception")
        if self._crash is None:
            self._crash = Crashed(f"{context['message']}: {problem!r}")
            self._crash.__cause__ = problem

    def start(self, work: Coroutine[Any, Any, Any], context: contextvars.Context) -> asyncio.Task[Any]:
        """Start a task that nobody waits for; the simulation ends with its exception."""
        task = self.create_task(work, context=context)
        task.add_done_callback(_raise_again)
        return task

    def time(self) -> float:
        return self._virtual_now

    def stand_still(self, seconds: float) -> None:
        """Let time pass in which nothing of the loop runs."""
        self._virtual_now += seconds

    def call_at(
        self,
        when: float,
        callback: Callable[..., Any],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._asked += 1
        heapq.heappush(self._due, (when, self._asked, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave it where it is until it would be due."""

    def _run_once(self) -> None:
        due, ready = self._due, self._ready
        self._virtual_now += _A_TURN
        while due and due[0][2]._cancelled:
            heapq.heappop(due)
        if not ready and not self._stopping:
            if not due:
                raise NothingDue(f"after {self._virtual_now - BOOTED:.3f} s")
            self._virtual_now = max(self._virtual_now, due[0][0])
        now = self._virtual_now + _A_TURN
        while due and due[0][0] < now:
            timer = heapq.heappop(due)[2]
            if not timer._cancelled:
                ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()
        if self._crash is not None:
            crash, self._crash = self._crash, None
            raise crash

    def end(self, life: Life) -> None:
        """Kill a process: none of its code runs any more, whoever answers it."""
        life.dead = True
        self.dead.add(life.pid)
        self._kept += asyncio.all_tasks(self)
        for task in self._kept:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.call_soon = self._call_soon_alive  # type: ignore[method-assign]  # at no cost before anybody is dead
        for handle in [*self._ready, *(timer for _, _, timer in self._due)]:
            if _life_of(handle) is life:
                handle.cancel()

    def _call_soon_alive(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = self._schedule(callback, *args, context=context)
        life = _life_of(handle)
        if life is not None and life.dead:
            handle.cancel()
        return handle

    async def create_datagram_endpoint(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.DatagramProtocol],
        local_addr: Address | None = None,
        remote_addr: Address | None = None,
        **_: Any,
    ) -> tuple[asyncio.DatagramTransport, asyncio.DatagramProtocol]:
        """Return an end of a network that is in memory, as a real one answers by another clock."""
        end = _DatagramEnd(self, protocol_factory(), (local_addr or ("127.0.0.1", 0))[0], remote_addr)
        end.protocol.connection_made(end)
        return end, end.protocol

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()
        try:
            future.set_result(func(*args))
            self.stand_still(self.work_takes)
        except Exception as problem:
            future.set_exception(problem)
        return future


def _raise_again(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.result()


def _life_of(handle: asyncio.Handle) -> Life | None:
    return handle._context.get(LIFE)


class LoopTimer:
    """A timer of virtual time, as schedule.Timer is one of the kernel's."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop = loop
        self._wake = wake
        self._handle: asyncio.TimerHandle | None = None

    def set(self, when: float) -> None:
        self.close()
        self._handle = self._loop.call_at(when, self._wake)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


@contextmanager
def virtual_time() -> Generator[VirtualLoop]:
    """Put the engine on virtual time; yields the loop that it goes by."""
    loop = VirtualLoop()
    MACHINE.set(Machine())
    clocks: Mapping[str, Callable[[], float]] = {
        "monotonic": loop.time,
        "wall": lambda: loop.time() + EPOCH - BOOTED + MACHINE.get().clock_ahead,
        "cpu": lambda: 0.02 * loop.time(),
        "since_boot": loop.time,
    }
    with pytest.MonkeyPatch.context() as patched:
        for name, clock in clocks.items():
            patched.setattr(timing, name, clock)
        patched.setattr(schedule, "Timer", LoopTimer)
        try:
            yield loop
        finally:
            loop.close()
