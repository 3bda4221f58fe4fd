"""Runs a program with another release's /usr in place of the machine's, which only that program and its children see.

Programs find their files where their packages would install them. Everything else, such as /tmp and the network, is the
machine's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from lab.control import LabError
from lab.releases.roots import ROOT_IMAGE

PATH = "/usr/sbin:/usr/bin"
"""Where the programs of an image are."""
_PROGRAMS = ("unshare", "mount", "nsenter")
_SCRIPT = 'mount -t squashfs -o loop,ro "$1" "$2" && mount --bind "$2/usr" /usr && shift 2 && exec "$@"'
_HOLD = ("sh", "-c", "echo mounted && exec cat")


def check_usr() -> None:
    """Raise LabError where no release's /usr can be put in place of the machine's."""
    if os.geteuid() != 0:
        raise LabError(f"user: uid {os.geteuid()}", "root: another release's programs need its mounts")
    for name in _PROGRAMS:
        if shutil.which(name) is None:
            raise LabError(f"{name}: not found", "the package util-linux or mount")
    if not Path("/lib").is_symlink():
        raise LabError("/lib: not a link to /usr/lib", "Debian 12 or later")


def with_usr_of(release: Path, empty: Path, command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command with the /usr of a release that is kept as an image.

    The process keeps its id. The mounts are private to it, and end with it; `empty` is a directory for them.
    """
    return ["unshare", "--mount", "sh", "-c", _SCRIPT, "sh", str(release / ROOT_IMAGE), str(empty), *command]


def holding_usr_of(release: Path, empty: Path) -> list[str]:
    """Return the command line of a process that holds the /usr of a release for many programs, which share its memory.

    It prints a line as soon as programs can enter (`in_usr_of`), and ends with its standard input.
    """
    return with_usr_of(release, empty, _HOLD)


def in_usr_of(holder: int, command: Sequence[str]) -> list[str]:
    """Return the command line that runs a command with the /usr that a process holds. The process keeps its id."""
    return ["nsenter", f"--mount=/proc/{holder}/ns/mnt", "--", *command]
