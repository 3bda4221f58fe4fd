"""How many connections a process may have: the limit of open files, raised where that is allowed."""

from __future__ import annotations

import contextlib
import resource

_OTHER_FILES = 128
"""Files a worker needs besides its connections: journals, pipes, timers, libraries, and some air."""


def allow_connections(wanted: int) -> int:
    """See to it that this process and those it starts may each open so many connections; returns how many they may.

    The soft limit goes up to the hard one, which goes up too where we have the right to raise it.
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
