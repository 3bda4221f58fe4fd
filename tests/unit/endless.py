"""A limit for what must end: a test of a hostile text would else take hours where a reader is quadratic."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

HANGS_AFTER = 120.0
"""Seconds. It judges no speed: a linear reader takes a fraction of one, a quadratic one hours."""


class Endless(Exception):
    """Raised in the code that does not end."""


@contextmanager
def ends() -> Iterator[None]:
    """End what hangs, by an exception in the main thread."""

    def hangs(number: int, frame: FrameType | None) -> None:
        raise Endless(f"no end within {HANGS_AFTER:g} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.setitimer(signal.ITIMER_REAL, HANGS_AFTER)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
