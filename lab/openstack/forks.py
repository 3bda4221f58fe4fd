"""Forks one process for each name that it is given, under Debian's Python: `forks.py ROLE.py ARGUMENTS...`.

Reads names from standard input, one a line, and answers each with the pid of a process that is it. What takes memory
and time, the imports, is done once, by the role's file; its `be(name, arguments)` is then what each process does. They
end with this one.
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
    gc.freeze()  # what is never looked at again stays shared between processes
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
    os.setsid()  # a group of its own, by which it is killed or stopped alone
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # standard output is for pids


def _lines(read):
    rest = b""
    while chunk := read(0, 4096):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
