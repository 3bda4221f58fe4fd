"""Stops a process, and waits until it is stopped."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from lab.patience import PATIENCE_S


def halt(pid: int) -> None:
    """SIGSTOP a process and wait until all of its threads are stopped, which takes a moment on a busy machine."""
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + PATIENCE_S
    while any(state not in "TZX" for state in _states(pid)) and time.monotonic() < deadline:
        time.sleep(0.001)


def _states(pid: int) -> str:
    """Return a letter for each thread's state (proc(5)): T stopped, Z and X ended."""
    states = ""
    with contextlib.suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                states += Path(f"/proc/{pid}/task/{thread}/stat").read_text().rpartition(")")[2].split()[0]
    return states
