"""Opens an input that a user names: a file, a named pipe, `<(command)`, /dev/stdin, or a socket behind it.

A pipe yields its bytes only once. So an input is opened once, and a reader that has to examine its beginning peeks
ahead.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from tippingpoint.errors import UserError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/([0-9]{1,9})")
_STANDARD_INPUT = ("/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_BLANK = b"\xef\xbb\xbf \t\r\n"
"""The bytes that may stand before JSON: a byte order mark, and white space."""
_LONGEST_BLANK = 1 << 16
_AT_ONCE = 1 << 16
LARGEST_KEPT = 1 << 20
"""The most bytes of a pipe that are kept."""


def open_descriptor(path: Path, flags: int = 0) -> int:
    """Open an input for reading, and return its file descriptor; raises OSError.

    A socket cannot be opened by its path. A program that gets its standard input from another machine may have one.
    """
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    except OSError as problem:
        number = _descriptor(path)
        if problem.errno != errno.ENXIO or number is None:
            raise
        return os.dup(number)


def shown_name(path: Path) -> str:
    """Return an input's name as text, even if its bytes are no valid text; inputs that a shell numbers have a name
    too."""
    if str(path) in _STANDARD_INPUT:
        return "standard input"
    if _descriptor(path) is not None:
        return "a pipe"
    return path.name.encode(errors="replace").decode()


def kept_in_memory(path: Path) -> Path:
    """Return a path that can be read again and again, by child processes too, for a pipe; any other path unchanged.

    The contents of the pipe are kept in memory that no other user can read, for as long as this process lives: at most
    LARGEST_KEPT bytes and one more, so that whoever refuses a larger file refuses this one. Raises OSError.
    """
    if not path.is_fifo():
        return path
    with io.FileIO(open_descriptor(path)) as pipe:
        content = io.BufferedReader(pipe).read(LARGEST_KEPT + 1)
    kept = os.memfd_create("tippingpoint", os.MFD_CLOEXEC)
    os.fchmod(kept, 0o600)
    with open(kept, "wb", closefd=False) as memory:
        memory.write(content)
    return Path(f"/proc/{os.getpid()}/fd/{kept}")


class Input:
    """An input that is read once, from its beginning to its end. Its `file` is open until `close`."""

    def __init__(self, place: str, path: Path) -> None:
        """Open it; raises UserError, which begins with `place`, for anything but a file or a pipe."""
        self.place = place
        self.path = path
        self.name = shown_name(path)
        try:
            raw = io.FileIO(open_descriptor(path))
        except (OSError, ValueError) as problem:  # a NUL in the path
            raise self.unreadable(problem) from None
        mode = os.fstat(raw.fileno()).st_mode
        if stat.S_ISDIR(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
            raw.close()
            what = "directory" if stat.S_ISDIR(mode) else "device"  # such as /dev/zero, which never ends
            raise UserError(place, str(path), f"a file, not a {what}")
        self._begin = b""
        self._raw = raw
        self.file: BinaryIO = io.BufferedReader(_Rest(self._looked_ahead, raw), _AT_ONCE)

    def is_json(self) -> bool:
        """Return whether it begins like JSON; raises UserError if it cannot be read. Nothing of it is consumed."""
        try:
            while not self._begin.lstrip(_BLANK) and len(self._begin) < _LONGEST_BLANK:
                more = self._raw.read(_AT_ONCE)
                if not more:
                    break
                self._begin += more
        except OSError as problem:
            raise self.unreadable(problem) from None
        return self._begin.lstrip(_BLANK)[:1] in (b"{", b"[")

    def read(self, most: int, accepted: str) -> bytes:
        """Return all of it; raises UserError if it has more than `most` bytes, or cannot be read to its end."""
        try:
            content = self.file.read(most + 1)
        except OSError as problem:
            raise self.unreadable(problem) from None
        if len(content) > most:
            size = f"{most >> 20} MiB" if most >> 20 else f"{most >> 10} KiB"
            raise UserError(self.place, self.name, f"{accepted} of at most {size}")
        return content

    def unreadable(self, problem: Exception) -> UserError:
        """Return the error for an input that cannot be read, or not to its end."""
        why = problem.strerror if isinstance(problem, OSError) else str(problem)
        return UserError(self.place, str(self.path), f"a readable file ({why})")

    def close(self) -> None:
        """Close it."""
        self.file.close()

    def __enter__(self) -> Input:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _looked_ahead(self) -> bytes:
        begin, self._begin = self._begin, b""
        return begin


class _Rest(io.RawIOBase):
    """The bytes that were peeked at, and then the rest."""

    def __init__(self, begin: Callable[[], bytes], rest: io.FileIO) -> None:
        self._begin = begin
        self._kept = b""
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int | None:
        self._kept = self._kept or self._begin()
        if not self._kept:
            return self._rest.readinto(buffer)
        view = memoryview(buffer).cast("B")
        count = min(len(view), len(self._kept))
        view[:count] = self._kept[:count]
        self._kept = self._kept[count:]
        return count

    def close(self) -> None:
        self._rest.close()
        super().close()


def _descriptor(path: Path) -> int | None:
    if str(path) in _STANDARD_INPUT:
        return 0
    found = _DESCRIPTOR.fullmatch(str(path))
    return int(found[1]) if found else None
