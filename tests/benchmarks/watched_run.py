"""A command of ours with its worker processes: the CPU-seconds that they took, and the most memory that they had."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.sides import REPOSITORY

FEW_FILES = 1024
"""The open files that a login shell allows; the program raises that itself."""
_LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class Used:
    """What a command took, with all of its processes."""

    exit_code: int
    told: str
    """What it printed, on both streams."""
    seconds: float
    cpu_s: float
    peak_mib: float
    """The sum of each process's greatest resident memory. Pages that processes share count once for each."""


def program(*arguments: str) -> list[str]:
    """The command line of our program."""
    return [sys.executable, "-m", "tippingpoint", *arguments]


def used_by(command: list[str], environment: dict[str, str] | None = None) -> Used:
    """Run a command of ours to its end."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=REPOSITORY,
            env={**os.environ, **(environment or {})},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FEW_FILES, hard)),
        )
        peaks: dict[int, float] = {}
        ended = threading.Event()
        watch = threading.Thread(target=_watch, args=(process.pid, peaks, ended))
        watch.start()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        ended.set()
        watch.join()
        output.seek(0)
        told = output.read()
    return Used(
        process.returncode,
        told,
        time.monotonic() - began,
        used.ru_utime + used.ru_stime,
        sum(peaks.values()) or used.ru_maxrss / 1024,
    )


def _watch(root: int, peaks: dict[int, float], ended: threading.Event) -> None:
    """Keep the greatest resident MiB of a process and of its descendants, until it has ended."""
    while True:
        for pid in _family(root):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            if "VmHWM:" in status:
                peaks[pid] = int(status.split("VmHWM:")[1].split()[0]) / 1024
        if ended.wait(_LOOK_EVERY_S):
            return


def _family(root: int) -> list[int]:
    found = [root]
    for pid in found:
        try:
            children = Path(f"/proc/{pid}/task").glob("*/children")
            found += [int(child) for each in children for child in each.read_text().split()]
        except OSError:
            continue
    return found
