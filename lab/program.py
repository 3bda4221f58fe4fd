"""Runs a lab as a program, with a directory that is removed with it, and ends it when told to."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TypeVar

from lab.control import LabError
from tippingpoint.errors import UserError

L = TypeVar("L")

# This process may be killed without time to clean up. So another process holds the other end of a pipe.
_REMOVE_WHEN_INPUT_ENDS = """
import os, shutil, sys, time
sys.stdin.buffer.read()
for _ in range(100):
    shutil.rmtree(sys.argv[1], ignore_errors=True)
    if not os.path.exists(sys.argv[1]):
        break
    time.sleep(0.05)
"""


def vanishing_directory(cleanup: ExitStack) -> Path:
    """Make a private directory that is removed when the context or this process ends, even by SIGKILL."""
    directory = Path(tempfile.mkdtemp(prefix="tippingpoint-lab-"))
    command = [sys.executable, "-I", "-S", "-c", _REMOVE_WHEN_INPUT_ENDS, str(directory)]
    janitor = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

    def remove() -> None:
        shutil.rmtree(directory, ignore_errors=True)
        janitor.kill()
        janitor.communicate()

    cleanup.callback(remove)
    return directory


def add_cpus(parser: argparse.ArgumentParser) -> None:
    """Add the option by which a user splits the processors; `take_places` reads its value."""
    parser.add_argument(
        "--cpus",
        metavar="N-M",
        help="the processors of the target, such as 1-3: all but one in four; the others are for what loads it",
    )


def serve(make: Callable[[], AbstractContextManager[L]], describe: Callable[[L], str]) -> int:
    """Run a lab, print its addresses, and end it with SIGINT, SIGTERM or standard input. Return the exit code."""
    told = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: told.set())
    try:
        with make() as lab:
            print(describe(lab), flush=True)
            if _input_can_end():
                threading.Thread(target=_tell_at_end_of_input, args=(told,), daemon=True).start()
            told.wait()
    except (LabError, UserError) as problem:
        print(problem, file=sys.stderr)
        return 2
    with contextlib.suppress(OSError):  # nobody may be reading any more
        print("the lab has ended, and its data is removed", file=sys.stderr)
    return 0


def _input_can_end() -> bool:
    """Tell whether standard input can end later. /dev/null or a file is at its end at once."""
    mode = os.fstat(0).st_mode
    return os.isatty(0) or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


def _tell_at_end_of_input(told: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    told.set()
