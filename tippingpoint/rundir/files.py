"""Reads and replaces files of a run's directory, which anybody may have made.

Only regular files of bounded size are read, no links. Files are replaced as a whole.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading; raises OSError for a link, a directory, a pipe, a device or an unreadable
    file."""
    # Without O_NONBLOCK, opening a pipe would block until it has a writer.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        why = os.strerror(errno.EISDIR) if stat.S_ISDIR(mode) else "not a regular file"
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, why, str(path))
    return open(fd, "rb")


def read_file(path: Path, most: int | None = None, *, since: int = 0) -> bytes:
    """Return the content of a regular file from the byte `since` on.

    Raises OSError as open_file does, and for more than `most` bytes.
    """
    try:
        with open_file(path) as file:
            file.seek(since)
            content = file.read(-1 if most is None else most + 1)
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a link, not a file", str(path)) from None
        raise
    if most is not None and len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 10:,} KiB", str(path))
    return content


def create_file(path: Path, content: bytes = b"", mode: int = 0o644) -> None:
    """Write a new file; raises OSError if anything of that name exists already, even a link."""
    with open(new_file(path, mode), "wb") as file:
        file.write(content)


def new_file(path: Path, mode: int = 0o644, flags: int = os.O_WRONLY) -> int:
    """Return the descriptor of a new file; raises OSError if anything of that name exists already, even a link."""
    return os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)


def replace_file(path: Path, content: str | bytes, *, mode: int = 0o644, sync: bool = False) -> None:
    """Replace a file, or create it, as a whole or not at all. A link is replaced, not followed.

    Everything is done in the directory to which the path leads at first, whatever takes its place meanwhile. With
    `sync`, the content is on disk before the file appears. Raises OSError, which names the file, if there is no disk
    space.
    """
    fresh = f"{path.name}.new"
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=directory)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with open(os.open(fresh, flags, mode, dir_fd=directory), "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(fresh, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError as problem:
            with suppress(OSError):
                os.unlink(fresh, dir_fd=directory)
            problem.filename = str(path)  # a write does not say where
            raise
    finally:
        os.close(directory)
