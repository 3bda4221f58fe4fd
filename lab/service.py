"""Runs a lab's programs with their workers; faults kill, freeze and start them again."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from lab.control import LabError
from lab.exporters import await_served
from lab.halt import halt
from lab.patience import PATIENCE_S
from lab.places import Places
from lab.tether import tethered

_POLL_S = 0.02


class Starter:
    """Starts programs that die with this process, even by SIGKILL, and end with the context.

    The kernel kills them with the thread that started them, so one thread lasts as long as the lab.
    """

    def __init__(self, cleanup: ExitStack, directory: Path, places: Places) -> None:
        """The programs run on the processors of the target. Their output goes into files of `directory` with their
        names."""
        self._directory = directory
        self._thread = cleanup.enter_context(starting_thread("starter", places))
        self._started: list[subprocess.Popen[bytes]] = []
        cleanup.callback(self._end)

    def start(
        self,
        name: str,
        line: Sequence[str],
        environment: Mapping[str, str] | None = None,
        piped: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Start a process in its own session; `piped` gives the caller its standard input and output."""

        def popen() -> subprocess.Popen[bytes]:
            with self.output(name).open("ab") as output:
                return subprocess.Popen(
                    tethered(line),
                    env=environment,
                    stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
                    stdout=subprocess.PIPE if piped else output,
                    stderr=output,
                    start_new_session=True,
                )

        process = self._thread.submit(popen).result()
        self._started.append(process)
        return process

    def forget(self, process: subprocess.Popen[bytes]) -> None:
        """Leave a group alone from now on, all of which has ended: its id may become another's."""
        self._started.remove(process)

    def output(self, name: str) -> Path:
        """Return the file with a program's output."""
        return self._directory / f"{name}.out"

    def last_words(self, name: str, lines: int = 4) -> str:
        """Return the last lines of a program's output."""
        with contextlib.suppress(OSError):
            return " | ".join(self.output(name).read_text(errors="replace").splitlines()[-lines:])
        return ""

    def _end(self) -> None:
        """Kill all of them at once, and then wait: some need a moment to free their memory."""
        for process in self._started:
            if process.poll() is None or group(process.pid):
                kill_group(process.pid)
        for process in self._started:
            process.wait(PATIENCE_S)
            await_gone(process.pid)


def starting_thread(name: str, places: Places) -> ThreadPoolExecutor:
    """Return the one thread that starts a lab's programs. They run where it does, on the target's processors."""
    return ThreadPoolExecutor(1, thread_name_prefix=name, initializer=places.occupy)


class Service:
    """A program with its workers, which are one process group: a fault affects all of them."""

    def __init__(
        self, starter: Starter, name: str, line: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self._starter = starter
        self._line = line
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self.stopped = False

    @property
    def pid(self) -> int | None:
        """The id of its first process; None while that is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start it. It serves a moment later."""
        self._process = self._starter.start(self.name, self._line, self._environment)
        self.stopped = False

    def kill(self) -> None:
        """SIGKILL the group; all processes are dead on return."""
        if self._process is not None:
            kill_group(self._process.pid)
            self._process.wait(PATIENCE_S)
            await_gone(self._process.pid)
            self._starter.forget(self._process)
            self._process = None

    def stop(self) -> None:
        """SIGSTOP the group; all processes are stopped on return."""
        if self._process is not None:
            halt_group(self._process.pid)
            self.stopped = True

    def resume(self) -> None:
        """SIGCONT the group."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGCONT)
            self.stopped = False

    def end(self) -> None:
        """SIGTERM it, and wait until it has saved its data and ended. Raises LabError if that takes too long."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                raise LabError(
                    f"{self.name}: no end in {PATIENCE_S:g} s", "a program that ends when told"
                ) from None

    def await_served(self, url: str) -> None:
        """Wait until it answers. Raises LabError if it ends, or takes too long."""
        assert self._process is not None, f"{self.name}: was never started"
        try:
            await_served(url, self._process)
        except LabError as problem:
            said = self._starter.last_words(self.name)
            raise LabError(f"{self.name}: {problem.problem}: {said}", problem.expected) from None

    def check(self) -> None:
        """Raise LabError, with its last output, if it has ended."""
        if self.pid is None:
            said = self._starter.last_words(self.name)
            raise LabError(f"{self.name}: ended: {said}", "a program that runs")


def kill_group(leader: int) -> None:
    """SIGKILL every process of a group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def halt_group(leader: int) -> None:
    """SIGSTOP every process of a group; all are stopped on return."""
    for pid in group(leader):
        with contextlib.suppress(ProcessLookupError):
            halt(pid)


def await_gone(leader: int) -> None:
    """Wait until no process of a killed group is left. Raises LabError if that takes too long."""
    deadline = time.monotonic() + PATIENCE_S
    while left := group(leader):
        if time.monotonic() > deadline:
            raise LabError(f"processes {left}: still there", "processes that end when killed")
        time.sleep(_POLL_S)


def group(leader: int) -> list[int]:
    """Return the processes of a group that have not ended.

    A process whose first thread has ended (Z) may have others. As long as one is left, so are its sockets.
    """
    found: list[int] = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit():
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                state, its_group, threads = fields[0], int(fields[2]), int(fields[17])  # proc(5)
                if its_group == leader and (state not in "ZX" or threads > 1):
                    found.append(int(process.name))
    return found


def has_ended(descriptor: int, within: float = 0.0) -> bool:
    """Tell whether the process of a pidfd, which need not be a child, has ended or ends within some seconds."""
    return bool(select.select([descriptor], [], [], within)[0])
