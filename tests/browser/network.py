"""A network of the tests' own. Chromium drops its requests (ERR_NETWORK_CHANGED) whenever an interface appears on its
network, and labs of tests beside these make some."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

_NET = 0x40000000  # CLONE_NEWNET of linux/sched.h
_SET_FLAGS = 0x8914  # SIOCSIFFLAGS of linux/sockios.h
_UP = 0x1  # IFF_UP of linux/if.h


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """Have this thread, and all threads and programs that it starts, on a network with nothing but loopback.

    Only root can make one.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    shared = os.open(Path("/proc/thread-self/ns/net"), os.O_RDONLY)
    try:
        _expect(libc.unshare(_NET), "unshare")
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
                fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sH14x", b"lo", _UP))
            yield
        finally:
            _expect(libc.setns(shared, _NET), "setns")
    finally:
        os.close(shared)


def _expect(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
