"""Room for what is fetched: on the disk, and in the cache, which keeps below a limit.

A release is in use while a process holds its directory by a lock (flock). Its time says when it was last used.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from lab.control import LabError

MB = 1_000_000
LIMIT = 1500 * MB
"""Bytes that all releases may take in the cache."""
_held: dict[tuple[int, int], int] = {}
"""Directories that this process uses, by device and inode: the open file with the lock."""


def check_room(what: str, directory: Path, needed: int) -> None:
    """Raise LabError unless there are so many bytes of room below a directory."""
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise LabError(
            f"{what}: {in_mb(free)} of room in {directory.parent}", f"{in_mb(needed)} while it is fetched"
        )


def make_room(what: str, cache: Path, needed: int, tell: Callable[[str], None]) -> None:
    """Remove the releases used least recently, until so many more bytes are within LIMIT.

    A release that a process holds stays. LabError, and nothing is removed, when those leave too little. What killed
    fetches left is removed always. `tell` is called before a release is removed.
    """
    with _alone(cache):
        there = [path for path in cache.iterdir() if path.is_dir()]
        for path in there:
            if "-" not in path.name and _is_free(path):
                shutil.rmtree(path, ignore_errors=True)
        releases = {path: _size(path) for path in there if "-" in path.name}
        over = sum(releases.values()) + needed - LIMIT
        unneeded: list[Path] = []
        for path in sorted(releases, key=lambda path: path.stat().st_mtime):
            if over > 0 and _is_free(path):
                unneeded.append(path)
                over -= releases[path]
        if over > 0:
            raise LabError(
                f"{what}: {in_mb(needed)} more would be {in_mb(over)} beyond the limit of {cache}",
                f"{in_mb(LIMIT)} with the releases that labs use now",
            )
        if unneeded:
            tell(
                f"removing {', '.join(path.name for path in unneeded)}, used least recently: "
                f"{cache} keeps {in_mb(LIMIT)} of releases"
            )
        for path in unneeded:
            _remove(path, cache)


def hold(directory: Path) -> bool:
    """Say that this process uses a directory now, and until it ends. False when the directory is gone."""
    try:
        opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return False
    fcntl.flock(opened, fcntl.LOCK_SH)
    about = os.fstat(opened)
    if not directory.exists():  # removed while the lock was waited for
        os.close(opened)
        return False
    os.utime(opened)
    key = (about.st_dev, about.st_ino)
    if key in _held:
        os.close(opened)
    else:
        _held[key] = opened
    return True


@contextmanager
def held_directory(cache: Path, prefix: str) -> Generator[Path]:
    """A directory in the cache, for work in progress. It is removed."""
    with _alone(cache):
        made = tempfile.TemporaryDirectory(prefix=prefix, dir=cache, ignore_cleanup_errors=True)
        hold(Path(made.name))
    with made as work:
        yield Path(work)


def in_mb(size: int) -> str:
    """A size in megabytes."""
    return f"{size / MB:.0f} MB" if size >= 10 * MB else f"{size / MB:.1f} MB"


@contextmanager
def _alone(cache: Path) -> Generator[None]:
    """One process at a time makes and removes directories of the cache."""
    with _opened(cache) as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def _remove(path: Path, cache: Path) -> None:
    """Remove a release if it is free. It is gone in one step for those who look for it."""
    with _opened(path) as opened, tempfile.TemporaryDirectory(prefix="removed.", dir=cache) as beside:
        if _locks(opened):
            path.rename(Path(beside) / path.name)


def _is_free(directory: Path) -> bool:
    # (a fetch that ends removes its own directory meanwhile)
    with suppress(FileNotFoundError), _opened(directory) as opened:
        return _locks(opened)
    return False


def _locks(opened: int) -> bool:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _opened(directory: Path) -> Generator[int]:
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield opened
    finally:
        os.close(opened)


def _size(directory: Path) -> int:
    """The bytes that a directory takes on the disk (a block of stat is 512 bytes)."""
    total = 0
    # (os.walk bears directories that another process removes or renames meanwhile)
    for parent, directories, files in os.walk(directory):
        for name in (*directories, *files):
            with suppress(FileNotFoundError):
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512
    return total
