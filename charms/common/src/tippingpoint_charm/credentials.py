"""The files with secrets that the agent reads: mode 0600, its user's own.

The directory belongs to a user that must not become root through us. So nothing is opened by a path that this user
could lead somewhere else: every step is from a directory that is held open, and follows no link.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

DIRECTORY = "credentials"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_credentials(state: Path, files: Mapping[str, str], owner: tuple[int, int]) -> None:
    """Have these files, by name and content, in the credentials directory of a state directory; OSError if not.

    Each is replaced whole, and left alone where it is right already.
    """
    with ExitStack() as held:
        parent = os.open(state, _FOLDER)
        held.callback(os.close, parent)
        with suppress(FileExistsError):
            os.mkdir(DIRECTORY, 0o700, dir_fd=parent)
        folder = os.open(DIRECTORY, _FOLDER, dir_fd=parent)
        held.callback(os.close, folder)
        os.fchown(folder, *owner)
        os.fchmod(folder, 0o700)
        for name, text in files.items():
            if _text_of(name, folder) != text.encode():
                _write(name, text, folder, owner)


def names_of_credentials(state: Path) -> set[str]:
    """The files that are in that directory; none where there is no such directory. OSError where it cannot be read."""
    with ExitStack() as held:
        folder = _open_there(state, held)
        return set() if folder is None else set(os.listdir(folder))


def remove_credentials(state: Path, names: Iterable[str]) -> None:
    """Have none of these files in that directory any more; OSError if not."""
    with ExitStack() as held:
        folder = _open_there(state, held)
        for name in names if folder is not None else ():
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)


def _open_there(state: Path, held: ExitStack) -> int | None:
    try:
        parent = os.open(state, _FOLDER)
        held.callback(os.close, parent)
        folder = os.open(DIRECTORY, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        return None
    held.callback(os.close, folder)
    return folder


def _text_of(name: str, folder: int) -> bytes | None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    with open(fd, "rb") as file:
        return file.read(1 << 20)


def _write(name: str, text: str, folder: int, owner: tuple[int, int]) -> None:
    fresh = f".{name}.new"
    with suppress(FileNotFoundError):
        os.unlink(fresh, dir_fd=folder)
    fd = os.open(fresh, _FRESH, 0o600, dir_fd=folder)
    with open(fd, "w", encoding="utf-8") as file:
        os.fchmod(fd, 0o600)
        os.fchown(fd, *owner)
        file.write(text)
    os.replace(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
