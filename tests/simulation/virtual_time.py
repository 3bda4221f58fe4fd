"""Virtual time: an event loop that never sleeps, and the engine's clocks, which go by it.

Whatever is due next happens at once, and the clocks say that its moment has come. Nothing else takes time, except where
a simulation says so (`stand_still`), so a run of an hour takes as long as its work does, and is the same each time.
"""

from __future__ import annotations

import asyncio
import contextvars
import selectors
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.simulation.lives import LIFE, MACHINE, Life, Machine
from tippingpoint.util import timing
from tippingpoint.workloads import schedule

EPOCH = 1_790_000_000.0
"""What the wall clock shows at the beginning, in seconds."""
BOOTED = 1000.0
"""Seconds since the boot at the beginning."""
_A_TURN = 1e-9
"""Seconds that a turn of the loop takes, so that who waits for less than a float can add is not there for ever."""


class NothingDue(AssertionError):
    """Raised when all wait for each other: a run that would hang for ever."""


class _Skipping(selectors.DefaultSelector):
    """Moves the time on where others wait."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.loop.stand_still(_A_TURN)
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:
            raise NothingDue(f"after {self.loop.time() - BOOTED:.3f} s")
        if timeout > 0:
            self.loop.stand_still(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes only where nothing is left to do. What it runs in threads it runs at once."""

    def __init__(self) -> None:
        selector = _Skipping()
        self._virtual_now = BOOTED
        self._kept: list[asyncio.Task[Any]] = []
        """Tasks of the dead: to collect them would run their clean-up."""
        self._schedule = super().call_soon
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self._virtual_now

    def stand_still(self, seconds: float) -> None:
        """Let time pass in which nothing of the loop runs."""
        self._virtual_now += seconds

    def end(self, life: Life) -> None:
        """Kill a process: none of its code runs any more, whoever answers it."""
        life.dead = True
        self._kept += asyncio.all_tasks(self)
        for task in self._kept:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self.call_soon = self._call_soon_alive  # type: ignore[method-assign]  # at no cost before anybody is dead
        for handle in [*self._ready, *self._scheduled]:
            if _life_of(handle) is life:
                handle.cancel()
        for key in [*(self._selector.get_map() or {}).values()]:
            reader, _ = key.data
            if reader is not None and _life_of(reader) is life:
                self._remove_reader(key.fd)

    def _call_soon_alive(
        self, callback: Callable[..., Any], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = self._schedule(callback, *args, context=context)
        life = _life_of(handle)
        if life is not None and life.dead:
            handle.cancel()
        return handle

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as problem:
            future.set_exception(problem)
        return future


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
