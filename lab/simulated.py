"""What simulated targets have in common: one process, which has its setup from a file, and answers at a socket."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.ask import ask
from lab.control import LabError, Member
from lab.patience import PATIENCE_S
from lab.places import Places
from lab.service import starting_thread
from lab.tether import tethered

_CHECKOUT = Path(__file__).resolve().parents[1]


class SimulatedLab:
    """A simulated target, which serves while the context lasts.

    `module` is the program that serves: it reads setup.json in the directory that is its argument, prints one JSON line
    once it serves, and answers at the control socket `socket` (lab.sock in that directory). It is called `title` in
    errors. A subclass fills the directory in `_prepare`, and takes up what the program printed in `_take_up`.
    """

    def __init__(self, module: str, title: str, places: Places | None) -> None:
        self._module, self._title = module, title
        self.places = places or Places.everywhere()
        self._process: subprocess.Popen[bytes] | None = None
        self._cleanup = ExitStack()

    def _directory(self, cleanup: ExitStack) -> Path:
        """Return the lab's directory; the lab removes what `cleanup` says, at its end."""
        raise NotImplementedError

    def _prepare(self, cleanup: ExitStack) -> dict[str, Any]:
        """Write the files that the program needs, and return its setup."""
        raise NotImplementedError

    def _take_up(self, serving: dict[str, Any]) -> None:
        """Take up what the program printed when it began to serve."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        with ExitStack() as cleanup:
            self.directory = self._directory(cleanup)
            self.socket = self.directory / "lab.sock"
            # The process gets a signal when the thread that started it ends, so this thread lasts as long as the lab.
            starter = cleanup.enter_context(starting_thread(f"{self._title}-lab", self.places))
            setup = self._prepare(cleanup)
            write_private(self.directory / "setup.json", json.dumps(setup))
            cleanup.callback(self._end)
            self._process = starter.submit(self._popen).result()
            self._take_up(self._await_serving())
            self._cleanup = cleanup.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    @property
    def pid(self) -> int:
        """The id of the process, which all members share."""
        assert self._process is not None
        return self._process.pid

    def members(self) -> list[Member]:
        """Return every member's present state."""
        return self.ask({"do": "members"})["members"]

    def kill(self, name: str) -> None:
        """Close a member's port and every connection to it, as the kernel does for a killed process."""
        self.ask({"do": "kill", "member": name})

    def stop(self, name: str) -> None:
        """Stop a member from answering; the kernel still accepts connections for it."""
        self.ask({"do": "stop", "member": name})

    def resume(self, name: str) -> None:
        """Undo `stop`."""
        self.ask({"do": "continue", "member": name})

    def start(self, name: str) -> None:
        """Undo `kill`, with the former data. The member serves on return."""
        self.ask({"do": "start", "member": name})

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send any request of the target's control.py. Raises LabError if it is refused."""
        answer = ask(self.socket, request)
        if "error" in answer:
            raise LabError(answer["error"], answer["expected"])
        return answer

    @property
    def _log(self) -> Path:
        return self.directory / f"{self._title}.log"

    def _popen(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                tethered([sys.executable, "-m", self._module, str(self.directory)]),
                cwd=_CHECKOUT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C at the terminal must end the run, not its target
            )

    def _await_serving(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            log = self._log.read_text(errors="replace").strip().splitlines()
            said = log[-1] if log else "its log is empty"
            raise LabError(f"{self._title}: did not start: {said}", f"a {self._title} that serves")
        return json.loads(line)

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
            assert self._process.stdout is not None
            self._process.stdout.close()


def write_private(path: Path, content: str) -> None:
    """Write a file that only its owner may read."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(content)
