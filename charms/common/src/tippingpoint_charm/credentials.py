"""Writes the files with secrets for the agent: mode 0600, owned by its user.

The agent's user owns the directory and must not become root by it. So no path is followed that this user could
redirect: every step starts from an open directory and follows no link.
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
    """Write these files into the credentials directory of a state directory. Raises OSError if that fails.

    Each file is replaced as a whole, unless its content is the same already.
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
    """Return the names of the files in that directory; empty if there is none. Raises OSError if it is unreadable."""
    with ExitStack() as held:
        folder = _open_there(state, held)
        return set() if folder is None else set(os.listdir(folder))


def remove_credentials(state: Path, names: Iterable[str]) -> None:
    """Remove these files from that directory. Raises OSError if that fails."""
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
