"""Lets a public key of SSH reach libvirt on this machine and nothing else: a line of authorized_keys, until it is taken
back."""

from __future__ import annotations

import binascii
import fcntl
import os
import pwd
import re
from base64 import b64decode
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from tippingpoint.errors import UserError

HELPER = "/usr/bin/virt-ssh-helper"
"""The program of libvirt's packages that serves `virsh -c qemu+ssh://...`. A client names it, or nc, as the command;
sshd runs it in any case."""
_OPTIONS = f'restrict,command="{HELPER} qemu:///system"'
_KEY = re.compile(
    r"(ssh-(?:rsa|ed25519)|ecdsa-sha2-nistp(?:256|384|521)|sk-(?:ssh-ed25519|ecdsa-sha2-nistp256)@openssh[.]com) "
    r"([A-Za-z0-9+/]+=*)(?: [^\n]*)?"
)


def key_of(field: str, text: str) -> str:
    """Return the type and the body of a public key; raises UserError, which names the field, for anything else.

    Options before a key, and more than one line, are refused: they would be more than a key.
    """
    found = _KEY.fullmatch(text.strip())
    kind, body = (found[1], found[2]) if found else ("", "")
    with suppress(binascii.Error):
        if kind and b64decode(body, validate=True).startswith(len(kind).to_bytes(4, "big") + kind.encode()):
            return f"{kind} {body}"
    raise UserError(field, "unusable", "one public key, such as `ssh-ed25519 AAAA...`")


def keys_file(user: str) -> Path:
    """Return where sshd finds a user's keys; raises KeyError if there is no such user."""
    return Path(pwd.getpwnam(user).pw_dir, ".ssh", "authorized_keys")


def lend(path: Path, key: str, mark: str) -> None:
    """Have sshd connect whoever has the key with libvirt, unless the file says so already; raises OSError.

    `key` is as `key_of` returns it, and `mark` is one line. Other lines, the mode and the owner stay. Libvirt does for
    its users what root may do.
    """
    line = f"{_OPTIONS} {key} {mark}".encode()
    with _locked(path, make=True):
        before = _read(path)
        if line in before.splitlines():
            return
        gap = b"" if not before or before.endswith(b"\n") else b"\n"
        _write(path, before + gap + line + b"\n")


def take_back(path: Path, mark: str) -> int:
    """Remove the lines with this mark that `lend` wrote, and the file if nothing is left; returns how many there were.

    Raises OSError.
    """
    end = f" {mark}".encode()
    if not path.exists():
        return 0
    with _locked(path, make=False):
        before = _read(path).splitlines(keepends=True)
        others = [
            line
            for line in before
            if not (line.startswith(f"{_OPTIONS} ".encode()) and line.rstrip(b"\r\n").endswith(end))
        ]
        if len(others) < len(before):
            if others:
                _write(path, b"".join(others))
            else:
                path.unlink()
        return len(before) - len(others)


@contextmanager
def _locked(path: Path, *, make: bool) -> Generator[None]:
    """Hold a lock on a file's directory, so that runs that end at once keep each other's lines."""
    if make and not path.parent.exists():
        path.parent.mkdir(mode=0o700)
        _as_its_parent(path.parent)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


def _read(path: Path) -> bytes:
    with suppress(FileNotFoundError):
        return path.read_bytes()
    return b""


def _write(path: Path, content: bytes) -> None:
    """Replace a file as a whole: sshd never sees half of it."""
    path = path.resolve()  # a link stays one
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            was = path.stat()
            os.chown(made, was.st_uid, was.st_gid)
            os.chmod(made, was.st_mode & 0o7777)
        else:
            _as_its_parent(made)
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise


def _as_its_parent(path: Path) -> None:
    """Give a path the owner of its directory: root may make it for a user."""
    owner = path.parent.stat()
    if os.geteuid() == 0:
        os.chown(path, owner.st_uid, owner.st_gid)
