"""Makes a directory that is removed with the process that made it, whatever ends that process."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

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
