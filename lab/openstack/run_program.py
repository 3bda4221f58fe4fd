"""Runs a program of OpenStack by its own name under Debian's Python `run_program.py NAME MODULE FUNCTION ARGUMENTS...`.

The packages with these programs would also configure and start them. NAME is also the kernel's name of the process, by
which query packs group processes. Workers end with the process that forked them. Otherwise they would first try to
close their connection to a broker that is gone, too.
"""

import ctypes
import importlib
import os
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15  # linux/prctl.h
_libc = ctypes.CDLL(None)


def _end_with(parent):
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    _, name, module, function, *arguments = sys.argv
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
    forking = []
    os.register_at_fork(
        before=lambda: forking.append(os.getpid()),
        after_in_parent=forking.pop,
        after_in_child=lambda: _end_with(forking.pop()),
    )
    sys.argv = [name, *arguments]
    sys.exit(getattr(importlib.import_module(module), function)())
