"""The clocks that the engine reads.

Nothing in the engine reads the machine's time in another way (a ruff rule enforces that), so tests can substitute
virtual time by setting these names. They are called through the module, as in `timing.monotonic()`: a name that was
imported by itself would stay the machine's clock. Sleeps and timeouts of asyncio follow the event loop's time, which is
that of `monotonic`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

monotonic: Callable[[], float] = time.monotonic
"""Return seconds that never go back, the same for all processes of this machine; suspended time is left out."""
wall: Callable[[], float] = time.time
"""Return seconds since the epoch, by a clock that may be set."""
cpu: Callable[[], float] = time.process_time
"""Return the seconds of CPU time that this process has used."""
sleep: Callable[[float], None] = time.sleep
"""Sleep for some seconds, in a program without an event loop."""


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


since_boot: Callable[[], float] = _since_boot
"""Return seconds since the machine's boot, including those during which it was suspended."""
