"""Reads small files that a user names.

Files with passwords or keys are refused while other users can read them. Messages never show the content of a file.
"""

from __future__ import annotations

import errno
import json
import os
import select
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import yaml

from tippingpoint.errors import UserError
from tippingpoint.util.inputs import open_descriptor
from tippingpoint.util.secret_words import NOT_SHOWN, is_secret

LARGEST_FILE = 1 << 20
"""The most bytes of a file; a juju client's store of a thousand controllers is smaller."""
WRITTEN_WITHIN = 60.0
"""Seconds to wait for the first bytes of a named pipe: a program may ask its user for a password first."""
_PRIVATE = "a file that only its owner can read (mode 0600)"


def read_yaml(
    place: str,
    path: Path,
    accepted: str,
    *,
    private: bool | Callable[[dict[str, Any]], bool] = False,
    empty: bool = False,
) -> dict[str, Any]:
    """Return the mapping in a YAML file, or in a JSON file by its name; raises UserError as read_text does, and for a
    file that is no mapping.

    `private` may depend on the mapping. With `empty`, an empty file is an empty mapping.
    """
    text, others = _read(place, path, accepted, private=private is True)
    try:
        content: object = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):  # their messages would quote the file
        raise UserError(place, str(path), f"{accepted}, as YAML") from None
    if content is None and empty:
        content = {}
    if not isinstance(content, dict):
        raise UserError(place, str(path), f"{accepted}, as YAML")
    found = cast("dict[str, Any]", content)
    if others and callable(private) and private(found):
        raise UserError(place, str(path), _PRIVATE)
    return found


def read_text(place: str, path: Path, accepted: str, *, private: bool = False) -> str:
    """Return the text of a file; raises UserError, which begins with `place`, if it is unreadable, not UTF-8 or too
    large.

    A `private` file is also refused while its group or others may read, write or execute it.
    """
    return _read(place, path, accepted, private=private)[0]


def _read(place: str, path: Path, accepted: str, *, private: bool) -> tuple[str, bool]:
    """Return the text of a file, and whether its group or others may read, write or execute it."""
    try:
        # Without O_NONBLOCK, opening a pipe without a writer would block. A pipe made by a shell has a writer.
        with open(open_descriptor(path, os.O_NONBLOCK), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            # Nobody else can read a socket, and its mode means nothing.
            others = not stat.S_ISSOCK(mode) and bool(stat.S_IMODE(mode) & 0o077)
            if private and others:
                raise UserError(place, str(path), _PRIVATE)
            if stat.S_ISFIFO(mode):
                _await_writer(file.fileno())
            os.set_blocking(file.fileno(), True)  # a terminal may have nothing to read yet
            content = file.read(LARGEST_FILE + 1)
            if len(content) > LARGEST_FILE:
                raise UserError(place, str(path), f"{accepted}, at most {LARGEST_FILE >> 20} MiB")
            return content.decode(), others
    except OSError as problem:
        raise UserError(place, _shown(place, path), f"{accepted} ({problem.strerror})") from None
    except ValueError:  # not UTF-8, or a NUL in the path
        raise UserError(place, repr(_shown(place, path)), f"{accepted}, as UTF-8 text") from None


def _shown(place: str, path: Path) -> str:
    """Return a path for a message; a token or password that was given instead of its file is not shown."""
    with suppress(OSError, ValueError):
        if not is_secret(place) or os.path.lexists(path) or (path.is_absolute() and path.parent.is_dir()):
            return str(path)
    return NOT_SHOWN


def _await_writer(pipe: int) -> None:
    """Wait until a pipe has data or its writer closes it; raises OSError after WRITTEN_WITHIN seconds."""
    if not select.select([pipe], [], [], WRITTEN_WITHIN)[0]:
        raise OSError(errno.ETIMEDOUT, "nothing was written to this pipe")
