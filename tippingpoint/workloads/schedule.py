"""Open-loop pacing: calls are made when they are due, whatever the target does meanwhile."""

from __future__ import annotations

import asyncio
import ctypes
import heapq
import os
import struct
from collections.abc import Callable, Iterator

from tippingpoint.util import timing

_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_ITIMERSPEC = struct.Struct("qqqq")

_libc = ctypes.CDLL(None, use_errno=True)


class Timer:
    """A kernel timer on an event loop, exact to microseconds.

    The loops' own timers have a resolution of a millisecond, which is as long as a fast target takes to answer.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop = loop
        self._wake = wake
        self._fd = int(_libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC))
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        loop.add_reader(self._fd, self._expired)

    def set(self, when: float) -> None:
        """Wake at a moment on the monotonic clock, in seconds; at once if it has passed."""
        nanoseconds = max(1, round((when - timing.monotonic()) * 1e9))
        value = _ITIMERSPEC.pack(0, 0, nanoseconds // 1_000_000_000, nanoseconds % 1_000_000_000)
        if _libc.timerfd_settime(self._fd, 0, value, None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def _expired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # it was set again meanwhile, and the new moment has not come
        self._wake()

    def close(self) -> None:
        """Stop the timer for good."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)


class Schedule:
    """Calls due at moments on the monotonic clock; they are made in order, each with its intended moment.

    One kernel timer serves any number of calls, so an idle unit costs one entry in a heap and no task.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = Timer(loop, self._run_due)
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._number = 0
        self._armed = float("inf")

    def at(self, when: float, call: Callable[[float], None]) -> None:
        """Call `call(when)` at `when` seconds on the monotonic clock, or as soon as possible after it."""
        self._number += 1
        heapq.heappush(self._heap, (when, self._number, call))
        if when < self._armed:
            self._armed = when
            self._timer.set(when)

    def clear(self) -> None:
        """Forget all calls that have not been made."""
        self._heap.clear()

    def close(self) -> None:
        """Forget all calls and stop the timer."""
        self.clear()
        self._timer.close()

    def _run_due(self) -> None:
        self._armed = float("inf")
        # At most as many as there were when we woke, so that calls that schedule further ones cannot starve the loop.
        try:
            for _ in range(len(self._heap)):
                if not self._heap or self._heap[0][0] > timing.monotonic():
                    break
                when, _, call = heapq.heappop(self._heap)
                call(when)
        finally:  # a call that raises must not prevent the others
            if self._heap and self._heap[0][0] < self._armed:
                self._armed = self._heap[0][0]
                self._timer.set(self._armed)


def spread(count: int, begin: float, over: float) -> Iterator[float]:
    """Return the moments of `count` things spread evenly over a time, the first at its begin; all at once over 0
    s."""
    step = over / count if count else 0.0
    return (begin + number * step for number in range(count))
