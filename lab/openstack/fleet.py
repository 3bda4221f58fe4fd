"""Runs many processes of one kind that share memory: the computes of an OpenStack lab, and its agents."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from lab.control import LabError
from lab.openstack.places import Site, environment
from lab.openstack.programs import PYTHON
from lab.patience import PATIENCE_S
from lab.service import Starter, halt_group, has_ended, kill_group

_FORKS = Path(__file__).with_name("forks.py")


class Fleet:
    """One process with a role's imports, which is forked for each member (see forks.py)."""

    def __init__(self, site: Site, starter: Starter, role: str, arguments: Sequence[object]) -> None:
        """`role` is the name of the role's module in this directory."""
        self.role = role
        self._starter = starter
        file = str(Path(__file__).with_name(f"{role}.py"))
        line = site.programs.line(PYTHON, "-I", str(_FORKS), file, *map(str, arguments))
        self._process = starter.start(role, line, environment(site), piped=True)
        self._asking = threading.Lock()

    def fork(self, name: str) -> int:
        """Fork a process for the member `name` and return its id. Raises LabError if that fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._asking:
            try:
                self._process.stdin.write(f"{name}\n".encode())
                self._process.stdin.flush()
                return int(self._process.stdout.readline())
            except (OSError, ValueError):
                said = self._starter.last_words(self.role)
                raise LabError(f"{self.role}: ended: {said}", "a program that runs") from None


class Forked:
    """A member of a fleet, which faults kill, freeze and start again like a Service."""

    def __init__(self, name: str, host: str, fleet: Fleet) -> None:
        self.name = name
        self._host = host
        self._fleet = fleet
        self._pid = 0
        self._descriptor: int | None = None
        self.stopped = False

    @property
    def pid(self) -> int | None:
        """Its process id; None while it is not running."""
        if self._descriptor is None or has_ended(self._descriptor):
            return None
        return self._pid

    def start(self) -> None:
        """Start it. It serves a moment later."""
        self._pid = self._fleet.fork(self._host)
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = os.pidfd_open(self._pid)
        self.stopped = False

    def kill(self) -> None:
        """SIGKILL it. It is dead on return."""
        if self._descriptor is not None and not has_ended(self._descriptor):  # its id may be another's by now
            kill_group(self._pid)
            if not has_ended(self._descriptor, PATIENCE_S):
                raise LabError(f"{self.name}: still there", "a process that ends when killed")

    def stop(self) -> None:
        """SIGSTOP it. It is stopped on return."""
        halt_group(self._pid)
        self.stopped = True

    def resume(self) -> None:
        """SIGCONT it."""
        os.killpg(self._pid, signal.SIGCONT)
        self.stopped = False

    def close(self) -> None:
        """Kill it permanently."""
        self.kill()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
