"""Starts a program that cannot outlive the thread that started it.

As a program, `tether.py SIGNAL PARENT-PID COMMAND...`, it sets the parent-death signal, checks that the parent still
exists, and becomes the command. A preexec function would do this in a fork of a process with threads, which is unsafe.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def tethered(command: Sequence[str], when_orphaned: signal.Signals = signal.SIGKILL) -> list[str]:
    """Return the command line that runs `command` so that it gets a signal when the calling *thread* ends.

    The process keeps its id when it becomes the command.
    """
    return [sys.executable, "-I", "-S", __file__, str(int(when_orphaned)), str(os.getpid()), *command]


def _become(when_orphaned: int, parent: int, command: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, when_orphaned, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}: expected Linux")
    if os.getppid() != parent:
        sys.exit(f"{command[0]}: not started: whoever started it is gone")
    try:
        os.execvp(command[0], command)
    except OSError as problem:
        sys.exit(f"{command[0]}: {problem.strerror}: expected a program")


if __name__ == "__main__":
    _become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
