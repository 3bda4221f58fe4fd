"""libvirtd in the lab's host of virtual machines, for faults: from outside of the host's namespaces."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from lab.control import LabError
from lab.halt import halt
from lab.patience import PATIENCE_S

T = TypeVar("T")
NAME = "libvirtd"
TLS_PORT = 16514


class Libvirtd:
    """The daemon of a host, by the id of the host's process 1, for faults. Virtual machines outlive it."""

    def __init__(self, host: int, directory: Path) -> None:
        self.host = host
        self.socket = directory / "run" / "libvirt-sock"
        self._log = directory / f"{NAME}.out"

    @property
    def pid(self) -> int | None:
        """The id of its process; None while it does not run."""
        for child in children(self.host):
            with contextlib.suppress(OSError):
                status = Path(f"/proc/{child}/stat").read_text()
                if status.partition("(")[2].startswith(f"{NAME})") and not _has_ended(child, status):
                    return child
        return None

    @property
    def stopped(self) -> bool:
        """Whether it is frozen."""
        pid = self.pid
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
        return False

    def kill(self) -> None:
        """Kill it: it is dead on return, and its virtual machines run on."""
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGKILL)
            awaited(f"{NAME}'s end", lambda: self.pid is None or None)

    def start(self) -> None:
        """Start it again. It serves on return, with the virtual machines that run."""
        if self.pid is not None:
            raise LabError(f"{NAME}: is running", "a member that is dead")
        os.kill(self.host, signal.SIGHUP)
        self.await_serving()

    def stop(self) -> None:
        """Freeze it."""
        if (pid := self.pid) is None:
            raise LabError(f"{NAME}: is dead", "a member that is running")
        halt(pid)

    def resume(self) -> None:
        """Undo `stop`."""
        if (pid := self.pid) is not None:
            os.kill(pid, signal.SIGCONT)

    def await_serving(self) -> None:
        """Wait until its socket and its port take connections. Raises LabError if it ends before."""
        seen = False

        def serves() -> bool | None:
            nonlocal seen
            if not Path(f"/proc/{self.host}").exists() or (self.pid is None and seen):
                raise LabError(f"{NAME}: ended: {self.last_words()}", "a libvirtd that serves")
            seen = seen or self.pid is not None
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as client:
                client.connect(str(self.socket))
                return self._listens() or None
            return None

        awaited(NAME, serves)

    def _listens(self) -> bool:
        """Whether its port for TLS is open, which it opens a moment after its socket."""
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{self.host}/net/tcp").read_text().splitlines()[1:]
            listening = (fields[1] for fields in map(str.split, lines) if fields[3] == "0A")
            return any(int(address.rpartition(":")[2], 16) == TLS_PORT for address in listening)
        return False

    def last_words(self) -> str:
        """Return the end of its log."""
        with contextlib.suppress(OSError):
            return " | ".join(self._log.read_text(errors="replace").splitlines()[-4:])
        return ""


def awaited(what: str, look: Callable[[], T | None]) -> T:
    """Wait until `look` returns something, and return that."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise LabError(f"{what}: nothing within {PATIENCE_S:g} s", "a host that works")
        time.sleep(0.02)
    return found


def _has_ended(pid: int, status: str) -> bool:
    """Whether a process is a zombie as a whole. While another of its threads still dies, its sockets take connections,
    and nobody can reap it."""
    return status.rpartition(")")[2].split()[0] == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1


def children(pid: int) -> list[int]:
    """Return the ids of a process's children."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []
