"""What every process of ours begins with: private modes, no core dumps, and enough files and memory."""

from __future__ import annotations

import contextlib
import errno
import os
import resource

from tippingpoint.errors import UserError

LEAST_FILES = 64
"""Open files that a command needs, besides the connections of a load: a run without any takes 32."""
LEAST_MEMORY = 256 << 20
"""Bytes of address space that a command needs: a report maps 140 MB."""
_MEMORY = {"ulimit -v": resource.RLIMIT_AS, "ulimit -d": resource.RLIMIT_DATA}


def protect() -> None:
    """Let nobody else write what this process and its children make, and nobody find its secrets in a core.

    If the user's umask is stricter, it stays.
    """
    os.umask(os.umask(0o077) | 0o022)
    leave_no_core()


def leave_no_core() -> None:
    """Leave no core of this process and its children: it would hold passwords and keys."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def check_limits() -> None:
    """Raise the limit of open files if it is too low; raises UserError for limits under which none of our programs
    work."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < LEAST_FILES:
        highest = hard if hard == resource.RLIM_INFINITY else max(hard, LEAST_FILES)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (LEAST_FILES, highest))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < LEAST_FILES:
            raise UserError("ulimit -n", soft, f"at least {LEAST_FILES} open files")
    for name, kind in _MEMORY.items():
        limit, _ = resource.getrlimit(kind)
        if limit != resource.RLIM_INFINITY and limit < LEAST_MEMORY:
            raise UserError(name, f"{limit >> 10} KiB", f"at least {LEAST_MEMORY >> 10} KiB of memory")


def lack_of(problem: BaseException) -> UserError | None:
    """Return the refusal for an error that means that a limit of this process is too low; None for any other error."""
    number = problem.errno if isinstance(problem, OSError) else None
    said = str(problem)
    if isinstance(problem, MemoryError) or number == errno.ENOMEM or "failed to map segment" in said:
        return UserError("memory", "too little", "more free memory, or a higher limit of it (ulimit -v)")
    if number in (errno.EMFILE, errno.ENFILE) or (
        isinstance(problem, ImportError) and os.strerror(errno.EMFILE) in said
    ):
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return UserError("ulimit -n", soft, "a higher limit of open files")
    if isinstance(problem, RuntimeError) and said == "can't start new thread":
        return UserError("ulimit -u", "too low", "a limit of processes that leaves room for another thread")
    return None
