"""The program without the second that Python needs to import it: a process forked from a nursery, which has imported it
before. It has its own streams, environment, signals, working directory and exit code, and is a child of the tests'
process. The rest is the nursery's: its command line and its environment in /proc, umask and limits, and what is read
from an environment only as a program starts or is imported (TZ, a locale, PYTHONPATH, LD_PRELOAD). What is about one of
these executes the program."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36


class Forked(subprocess.Popen[str]):
    """`tippingpoint ARGUMENT...` with pipes for its output, or what else is named for it."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str] = os.environ,
        output: int = subprocess.PIPE,
    ) -> None:
        super().__init__(
            ["tippingpoint", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
            env=environment,
        )

    def _execute_child(self, args: list[str], *rest: Any) -> None:
        """Have the nursery fork where Popen would execute a program. The arguments are those of subprocess.Popen."""
        environment: Mapping[str, str] = rest[5]
        pipes: tuple[int, ...] = rest[9:15]
        stdin, _, _, stdout, _, stderr = pipes
        self.pid = _nursery().fork(args, environment, (stdin, stdout, stderr))
        self._child_created = True
        self._close_pipe_fds(*pipes)


class _Nursery:
    """The tests' side of nursery.py."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._asking = threading.Lock()
        with theirs:
            number = theirs.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.functional.nursery", str(number)], pass_fds=[number]
            )

    def fork(self, args: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]) -> int:
        """Have a process forked, which becomes a child of this one; returns its pid."""
        asked = json.dumps({"args": [*args], "environment": {**environment}, "at": os.getcwd()}).encode()
        with self._asking:
            # Whom its parent leaves behind goes to the next subreaper above.
            _set_subreaper(True)
            try:
                socket.send_fds(self._ours, [len(asked).to_bytes(4, "big")], [*streams])
                self._ours.sendall(asked)
                return int.from_bytes(self._ours.recv(4, socket.MSG_WAITALL), "big")
            finally:
                _set_subreaper(False)

    def end(self) -> None:
        """End it. What it forked goes on."""
        self._ours.close()
        self._process.wait()


_there: list[_Nursery] = []


def _nursery() -> _Nursery:
    if not _there:
        _there.append(_Nursery())
        atexit.register(end_nursery)
    return _there[0]


def end_nursery() -> None:
    """End the nursery, if there is one."""
    while _there:
        _there.pop().end()


def _set_subreaper(on: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
