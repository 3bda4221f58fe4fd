"""Raises the limit of open files, which bounds the connections of a process."""

from __future__ import annotations

import contextlib
import errno
import resource

_exhausted: list[str] = []

OTHER_FILES = 128
"""Files that a worker needs besides its connections: journals, pipes, timers, libraries, and a reserve."""


def note_exhausted(problem: BaseException) -> None:
    """Note if an error means that this process, or its machine, is out of files.

    The target is not the reason then, and no call to it can be judged afterwards.
    """
    number = problem.errno if isinstance(problem, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE) and not _exhausted:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        whole = f"this machine has no open files left: a higher limit (fs.file-max) than {_most()}"
        _exhausted.append(
            f"out of open files: a higher limit (ulimit -n) than {soft}" if number == errno.EMFILE else whole
        )


def exhausted() -> str:
    """Return why this process cannot open files any more, and what would help; empty if it has been able to so far."""
    return _exhausted[0] if _exhausted else ""


def _most() -> str:
    with contextlib.suppress(OSError), open("/proc/sys/fs/file-max") as file:
        return file.read().strip()
    return "this"


def allow_connections(wanted: int) -> int:
    """Let this process and those it starts open `wanted` connections each; returns how many they may open.

    The soft limit is raised up to the hard limit. The hard limit is raised too if we have the right to.
    """
    files = wanted + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= files:
        return wanted
    # More than the kernel's fs.nr_open is refused even to root.
    if hard != resource.RLIM_INFINITY and hard < files:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
            return wanted
    highest = files if hard == resource.RLIM_INFINITY else min(files, hard)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(wanted, max(0, soft - OTHER_FILES))
