"""Stops a process so that it does nothing any more on return."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

_STOPPED_WITHIN_S = 10.0


def halt(pid: int) -> None:
    """SIGSTOP a process and wait until all of its threads stand still, which takes a busy machine a moment."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _STOPPED_WITHIN_S
    while any(state not in "TZX" for state in _states(pid)) and time.monotonic() < deadline:
        time.sleep(0.001)


def _states(pid: int) -> str:
    """A letter for each thread (proc(5)): T stopped, Z and X ended."""
    states = ""
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            states += thread.read_text().rpartition(")")[2].split()[0]
        except OSError:  # it has ended
            continue
    return states
