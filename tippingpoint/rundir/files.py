"""Files of a run's directory, which anybody may have made: they are read where they are regular files, of bounded size
and no links, and replaced whole."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


def open_file(path: Path) -> BinaryIO:
    """A regular file, to be read; OSError where it is a link, a directory, a pipe or a device, or cannot be opened."""
    # Without O_NONBLOCK a pipe would be waited for until somebody writes into it.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        why = os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "not a regular file"
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, why, str(path))
    return open(fd, "rb")


def read_file(path: Path, most: int | None = None) -> bytes:
    """What is in a regular file; OSError as of open_file, and where there are more than `most` bytes."""
    try:
        with open_file(path) as file:
            content = file.read(-1 if most is None else most + 1)
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a link, not a file", str(path)) from None
        raise
    if most is not None and len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20} MiB", str(path))
    return content


def replace_file(path: Path, text: str) -> None:
    """Put a file there, whole or not at all, in the place of what was there: a link is replaced, not followed. OSError
    where there is no room."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w", encoding="utf-8") as file:
            file.write(text)
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise
