"""Forks one process for each given name, under Debian's Python: `forks.py ROLE.py ARGUMENTS...`.

It reads names from standard input, one per line, and answers each with the id of its process. The role's file does the
imports once, which take memory and time. Each process then runs the role's `be(name, arguments)`. They end with this
process.
"""

import ctypes
import gc
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15  # linux/prctl.h


def main(role_file, arguments):
    """Fork until the input ends."""
    role = runpy.run_path(role_file)
    gc.collect()
    gc.freeze()  # so that unused memory stays shared between processes
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    pid = os.getpid()
    for name in _lines(role["read"]):
        child = os.fork()
        if child == 0:
            _become_one(pid, role["NAME"])
            role["be"](name, arguments)
            os._exit(0)
        os.write(1, b"%d\n" % child)


def _become_one(parent, called):
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(_PR_SET_NAME, called.encode(), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)
    os.setsid()  # its own group, so that it can be killed or stopped alone
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # standard output is for process ids


def _lines(read):
    rest = b""
    while chunk := read(0, 4096):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
