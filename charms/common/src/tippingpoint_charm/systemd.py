"""Manages the charms' systemd services: the copies of packs that they run from, unit files, and restrictions.

A copy of a charm's Python packages is /opt/tippingpoint/<digest>, owned by root. A refresh of the charm adds another
copy. Copies that no unit file names any more are removed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from tippingpoint_charm.machine import Machine, MachineProblem

COPIES = "/opt/tippingpoint"
UNITS = "/etc/systemd/system"
PREFIX = "tippingpoint-"
"""The prefix of the charms' systemd units, state directories and caches."""
PYTHON = os.path.realpath(sys.executable)
"""The Python that runs the charm, for which the pack's wheels are. A refresh removes the charm's own link to it."""
_NOT_COPIED = "__pycache__"
_COPY = re.compile(rf"{COPIES}/([0-9a-f]{{16}})")

HARDENED = """\
NoNewPrivileges=yes
LimitCORE=0
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RemoveIPC=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
"""
"""Lines of a [Service] section that restrict it to the network and its own directories."""


def own_pack() -> Path:
    """Return the directory of this charm's Python packages, which include the engine."""
    found = importlib.util.find_spec("tippingpoint")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent.parent


class Copies:
    """The copies of packs on a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def keep(self, pack: Path) -> str:
        """Copy a pack, completely or not at all, and return the copy's name, which is its digest."""
        digest = digest_of(pack)
        copies = self._machine.path(COPIES)
        kept = copies / digest
        if not kept.is_dir():
            copies.mkdir(mode=0o755, parents=True, exist_ok=True)
            fresh = copies / f".{digest}"
            shutil.rmtree(fresh, ignore_errors=True)
            shutil.copytree(
                pack, fresh, ignore=shutil.ignore_patterns(_NOT_COPIED), copy_function=_copy_readable
            )
            for folder in (fresh, *(path for path in fresh.rglob("*") if path.is_dir())):
                folder.chmod(0o755)
            fresh.rename(kept)
        return digest

    def prune(self, *keep: str) -> None:
        """Remove the copies that no service on this machine uses, except these."""
        used = {*keep}
        for path in self._machine.path(UNITS).glob(f"{PREFIX}*.service"):
            used.update(copies_in(text_of(path)))
        for copy in _entries(self._machine.path(COPIES)):
            if copy.name not in used:
                shutil.rmtree(copy, ignore_errors=True)
                for cache in self._machine.path("/var/cache").glob(f"{PREFIX}*"):
                    shutil.rmtree(cache / COPIES.lstrip("/") / copy.name, ignore_errors=True)

    def remove_with_the_last(self) -> bool:
        """Remove all copies if no service and no state is left on the machine. Return whether that was so."""
        self.prune()
        units = self._machine.path(UNITS).glob(f"{PREFIX}*.service")
        states = self._machine.path("/var/lib").glob(f"{PREFIX}*")
        if any(units) or any(states):
            return False
        shutil.rmtree(self._machine.path(COPIES), ignore_errors=True)
        return True


class UnitFiles:
    """The wanted unit files of systemd, by name."""

    def __init__(self, machine: Machine, texts: Mapping[str, str]) -> None:
        self._machine = machine
        self._texts = {machine.path(f"{UNITS}/{name}"): text for name, text in texts.items()}

    @property
    def are_right(self) -> bool:
        """Whether the files exist with the wanted content."""
        return all(text_of(path) == text for path, text in self._texts.items())

    def write(self) -> None:
        """Write the files, and make systemd read them. Raises MachineProblem or OSError."""
        for path, text in self._texts.items():
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            fresh = path.with_name(f".{path.name}.new")
            fresh.write_text(text, encoding="utf-8")
            fresh.chmod(0o644)
            fresh.replace(path)
        self._machine.run("systemctl", "daemon-reload")

    def run(self, service: str, *, anew: str = "") -> None:
        """Have a service of theirs run as they say; one that does already is told `anew`, such as restart, if given.

        MachineProblem or OSError; all of it is then done again the next time.
        """
        try:
            if not self.are_right:
                self.write()
                self._machine.run("systemctl", "enable", service)
                self._machine.run("systemctl", "restart", service)
            elif anew:
                self._machine.run("systemctl", anew, service)
        except MachineProblem:
            for path in self._texts:
                path.unlink(missing_ok=True)
            raise

    def remove(self, service: str) -> None:
        """Stop one of their services and remove the files."""
        if not any(path.exists() for path in self._texts):
            return
        with suppress(MachineProblem):  # not there, or systemd is not
            self._machine.run("systemctl", "disable", "--now", service)
        for path in self._texts:
            path.unlink(missing_ok=True)
        with suppress(MachineProblem):
            self._machine.run("systemctl", "daemon-reload")


def copies_in(text: str) -> list[str]:
    """Return the names of the copies in a unit file's text."""
    return _COPY.findall(text)


def text_of(path: Path) -> str:
    """Return a file's text; empty if there is no file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def make_user(machine: Machine, name: str) -> None:
    """Create a user who owns nothing and cannot log in. Raises MachineProblem if that fails."""
    if machine.user(name) is None:
        machine.run(
            "useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent",
            "--shell", "/usr/sbin/nologin", name,
        )  # fmt: skip


def digest_of(pack: Path) -> str:
    """Return a pack's digest: the first 16 hexadecimal digits of a SHA-256 over the names and contents of its files."""
    found = hashlib.sha256()
    for path in sorted(_files_of(pack)):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256")
        found.update(f"{path.relative_to(pack)}\0{content.hexdigest()}\n".encode())
    return found.hexdigest()[:16]


def _files_of(pack: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(pack):
        if _NOT_COPIED in folders:
            folders.remove(_NOT_COPIED)
        yield from (Path(folder, name) for name in names)


def _copy_readable(source: str, target: str) -> None:
    """Copy a file so that the agent's user can read it, with any mode in the pack."""
    shutil.copyfile(source, target)
    os.chmod(target, 0o755 if os.stat(source).st_mode & 0o100 else 0o644)


def _entries(directory: Path) -> list[Path]:
    try:
        return [*directory.iterdir()]
    except OSError:
        return []
