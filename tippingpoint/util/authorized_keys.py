"""Lets a public key of SSH reach libvirt on this machine and nothing else: a line of authorized_keys, until it is
removed again."""

from __future__ import annotations

import binascii
import errno
import fcntl
import os
import pwd
import re
import secrets
import stat
from base64 import b64decode
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tippingpoint.errors import UserError
from tippingpoint.util import timing

HELPER = "/usr/bin/virt-ssh-helper"
"""The program of libvirt's packages that serves `virsh -c qemu+ssh://...`. A client may name it or nc as the command;
sshd runs this program in any case."""
_LARGEST = 4 << 20
"""Bytes of a file of keys."""
_LOCKED_WITHIN = 5.0
"""Seconds to wait for another program that changes the same file."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPTIONS = f'restrict,command="{HELPER} qemu:///system"'
_KEY = re.compile(
    r"(ssh-(?:rsa|ed25519)|ecdsa-sha2-nistp(?:256|384|521)|sk-(?:ssh-ed25519|ecdsa-sha2-nistp256)@openssh[.]com) "
    r"([A-Za-z0-9+/]+=*)(?: [^\n]*)?"
)


def key_of(field: str, text: str) -> str:
    """Return the type and the body of a public key; raises UserError, which names the field, for anything else.

    Options before a key, and more than one line, are refused: they would grant more than a key does.
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
    """Let sshd connect whoever has the key with libvirt, unless the file allows that already.

    `key` is as `key_of` returns it, and `mark` is one line. Other lines, the mode and the owner stay. Libvirt does for
    its users what root may do. Raises OSError, also for a file that the user of these keys does not own.
    """
    line = f"{_OPTIONS} {key} {mark}".encode()
    with _Keys.locked(path, make=True) as keys:
        before = keys.read()
        if line in before.splitlines():
            return
        gap = b"" if not before or before.endswith(b"\n") else b"\n"
        keys.write(before + gap + line + b"\n")


def take_back(path: Path, mark: str) -> int:
    """Remove the lines with this mark that `lend` wrote, and the file if nothing is left; returns how many lines there
    were.

    Raises OSError, as lend does.
    """
    end = f" {mark}".encode()
    try:
        with _Keys.locked(path, make=False) as keys:
            before = keys.read().splitlines(keepends=True)
            others = [
                line
                for line in before
                if not (line.startswith(f"{_OPTIONS} ".encode()) and line.rstrip(b"\r\n").endswith(end))
            ]
            if len(others) < len(before):
                if others:
                    keys.write(b"".join(others))
                else:
                    keys.remove()
            return len(before) - len(others)
    except FileNotFoundError:
        return 0


class _Keys:
    """A file of keys in a directory that is open and locked.

    The directory is the user's, who may put anything there at any moment while we are root. So every step starts from
    an open directory and follows no link.
    """

    def __init__(self, directory: int, name: str) -> None:
        self._directory = directory
        self._name = name
        self._owner = os.fstat(directory)
        self._found: os.stat_result | None = None

    @classmethod
    @contextmanager
    def locked(cls, path: Path, *, make: bool) -> Generator[_Keys]:
        """Hold a lock on a file's directory, so that runs that end at once keep each other's lines."""
        with ExitStack() as held:
            directory = _opened(path.parent, make, held)
            found = os.fstat(directory)
            if found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & 0o022:
                # Only we can have made a link here: the link stays, and the file that it leads to is changed.
                with suppress(OSError):
                    path = path.parent / os.readlink(path.name, dir_fd=directory)
                    path = path.resolve()
                    directory = _opened(path.parent, False, held)
            _lock(directory)
            yield cls(directory, path.name)

    def read(self) -> bytes:
        """Return its content; empty if there is no such file."""
        try:
            file = os.open(self._name, _READ, dir_fd=self._directory)
        except FileNotFoundError:
            return b""
        with open(file, "rb") as opened:
            self._found = found = os.fstat(file)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise OSError(errno.EINVAL, "expected a file with one name", self._name)
            if found.st_uid not in (self._owner.st_uid, os.geteuid()):
                raise PermissionError(errno.EPERM, "expected a file of the user's own", self._name)
            content = opened.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), self._name)
        return content

    def write(self, content: bytes) -> None:
        """Replace it as a whole: sshd never sees half of it."""
        made = f".{self._name}.{secrets.token_hex(8)}"
        file = os.open(made, _NEW, 0o600, dir_fd=self._directory)
        try:
            with open(file, "wb") as opened:
                opened.write(content)
                opened.flush()
                was = self._found or self._owner
                if os.geteuid() == 0 or self._found:
                    os.fchown(file, was.st_uid, was.st_gid)
                if self._found:
                    os.fchmod(file, stat.S_IMODE(was.st_mode) & 0o777)
                os.fsync(file)
            os.replace(made, self._name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(made, dir_fd=self._directory)
            raise

    def remove(self) -> None:
        """Remove it."""
        os.unlink(self._name, dir_fd=self._directory)


def _opened(path: Path, make: bool, held: ExitStack) -> int:
    """Return an open directory; `make` makes it, for the owner of the directory above."""
    above = os.open(path.parent, _DIRECTORY)
    held.callback(os.close, above)
    made = False
    if make:
        with suppress(FileExistsError):
            os.mkdir(path.name, 0o700, dir_fd=above)
            made = True
    directory = os.open(path.name, _DIRECTORY, dir_fd=above)
    held.callback(os.close, directory)
    if made and os.geteuid() == 0:
        owner = os.fstat(above)
        # Its owner may have replaced it by another directory of ours, but not by one that is empty at this moment.
        if os.fstat(directory).st_uid == 0 and not os.listdir(directory):
            os.fchown(directory, owner.st_uid, owner.st_gid)
    return directory


def _lock(directory: int) -> None:
    """Lock a directory; raises OSError if its user keeps it locked."""
    deadline = timing.monotonic() + _LOCKED_WITHIN
    while True:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if timing.monotonic() > deadline:
                raise OSError(errno.EWOULDBLOCK, "another program keeps the directory locked") from None
            timing.sleep(0.01)
