"""A directory that stays the same, whatever its path leads to later.

Anybody who can write beside a run's directory can put a link in its place while the run goes on. So the run keeps its
directory open, and reaches the files in it by that descriptor.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

_DESCRIPTORS = "/proc/self/fd"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class HeldDirectory:
    """A directory that is kept open. `inside` is a path to it that no other program can redirect."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """Take over the descriptor of a directory, whose path is `path`."""
        self.path = path
        """Its path when it was opened."""
        self.descriptor = descriptor
        """The open directory. A process that inherits it, under the same number, can use `inside` too."""
        self._closing = weakref.finalize(self, os.close, descriptor)

    @classmethod
    def make(cls, path: Path) -> HeldDirectory:
        """Make a directory, and those above it; raises OSError if it exists already, or is replaced meanwhile."""
        make_directories(path.parent)
        parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.mkdir(path.name, 0o755, dir_fd=parent)
            held = cls(path, os.open(path.name, _OPEN, dir_fd=parent))
        finally:
            os.close(parent)
        if os.listdir(held.descriptor):  # it is not the one that we made
            held.close()
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        return held

    @classmethod
    def open(cls, path: Path, *, follow: bool = False) -> HeldDirectory:
        """Open a directory; raises OSError, also for a link unless it is to be followed."""
        return cls(path, os.open(path, _OPEN & ~os.O_NOFOLLOW if follow else _OPEN))

    @classmethod
    def make_temporary(cls, prefix: str, parent: Path) -> HeldDirectory:
        """Make a directory of mode 0700 with an unpredictable name; raises OSError."""
        return cls.open_own(Path(tempfile.mkdtemp(prefix=prefix, dir=parent)))

    @classmethod
    def open_own(cls, path: Path, *, make: bool = False) -> HeldDirectory:
        """Open a directory that is ours and that only we can write to; `make` makes it, of mode 0700, if it is missing.

        Raises OSError for a link, and for a directory that another user made or can write to.
        """
        if make:
            make_directories(path.parent)
            with suppress(FileExistsError):
                path.mkdir(mode=0o700)
        held = cls.open(path)
        found = os.fstat(held.descriptor)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
            held.close()
            raise PermissionError(errno.EPERM, "a directory that other users can write to", str(path))
        return held

    @property
    def inside(self) -> Path:
        """A path to the directory itself, wherever it is now; once it is closed, its path."""
        return Path(_DESCRIPTORS, str(self.descriptor)) if self._closing.alive else self.path

    @property
    def is_there(self) -> bool:
        """Whether its path still leads to it, and not to another directory or to a link."""
        if not self._closing.alive:
            return False
        try:
            found = os.lstat(self.path)
        except OSError:
            return False
        return os.path.samestat(found, os.fstat(self.descriptor))

    def close(self) -> None:
        """Close it, unless it is closed already."""
        self._closing()


def make_directories(path: Path) -> None:
    """Make a directory and its missing parents, which only we can write to; raises OSError."""
    for each in (*reversed(path.parents), path):
        if not each.is_dir():
            each.mkdir(mode=0o755, exist_ok=True)


def by_name(path: Path) -> Path:
    """Return a path below a held directory in the form that other processes can use; other paths unchanged."""
    if path.parts[:4] != ("/", "proc", "self", "fd") or len(path.parts) < 5:
        return path
    try:
        return Path(os.readlink(Path(*path.parts[:5])), *path.parts[5:])
    except OSError:
        return path
