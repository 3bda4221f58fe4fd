"""Raises the limit of open files, which bounds the connections of a process."""

from __future__ import annotations

import contextlib
import resource

_OTHER_FILES = 128
"""Files that a worker needs besides its connections: journals, pipes, timers, libraries, and a reserve."""


def allow_connections(wanted: int) -> int:
    """Let this process and those it starts open `wanted` connections each; returns how many they may open.

    The soft limit is raised up to the hard limit. The hard limit is raised too if we have the right to.
    """
    files = wanted + _OTHER_FILES
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
    return min(wanted, max(0, soft - _OTHER_FILES))
