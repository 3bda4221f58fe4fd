"""The agent as a systemd service: its user, the copy of the pack that it runs from, and its unit files.

A unit's service runs from a copy of the charm's Python packages, /opt/tippingpoint/<digest>, which root owns. A refresh
puts another copy beside it, and the unit file names that one as soon as no run goes on. Beside the service there are a
.path unit, which sees the file that the agent wakes its charm by, and the oneshot service that then dispatches the
charm's `agent_changed` event; that one is root's.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tippingpoint_charm.machine import Machine, MachineProblem

USER = "tippingpoint"
COPIES = "/opt/tippingpoint"
UNITS = "/etc/systemd/system"
PREFIX = "tippingpoint-"
_NOT_COPIED = "__pycache__"
_COPY = re.compile(rf"{COPIES}/([0-9a-f]{{16}})")

# UMask lets `juju scp`, which comes as another user, read reports; what is secret is in a directory of mode 0700.
# A worker that the kernel kills for want of memory is a line in the report, and not the end of the agent (OOMPolicy).
# Python cannot write beside a copy, so it keeps its bytecode in the cache directory.
_SERVICE = """\
[Unit]
Description=Tipping Point agent of {unit}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={python} -P -s -m tippingpoint agent --state /var/lib/{name} --socket /run/{name}/agent.sock \
--wake /run/{name}/wake --unit {unit} --metrics 0.0.0.0:{port}
Environment=PYTHONPATH={copies}/{copy} PYTHONPYCACHEPREFIX=/var/cache/{name}
WorkingDirectory=/var/lib/{name}
User={user}
Group={user}
StateDirectory={name}
StateDirectoryMode=0755
RuntimeDirectory={name}
RuntimeDirectoryMode=0755
CacheDirectory={name}
CacheDirectoryMode=0700
UMask=0022
LimitNOFILE=1048576
Restart=on-failure
RestartSec=5
WatchdogSec=180
KillMode=mixed
TimeoutStopSec=30
OOMPolicy=continue
NoNewPrivileges=yes
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

[Install]
WantedBy=multi-user.target
"""

# PathExists and the removal before the hook, rather than PathChanged: what is said while a hook runs wakes again.
# A juju-exec that comes as Juju begins a refresh may never be answered (seen with 4.0.15). It is given up and tried
# again before the unit would be taken for silent (together.silent_after).
_WAKE_PATH = """\
[Unit]
Description=Tipping Point agent of {unit} has news

[Path]
PathExists=/run/{name}/wake
Unit={name}-wake.service

[Install]
WantedBy=multi-user.target
"""

_WAKE_SERVICE = """\
[Unit]
Description=Wake the charm of {unit}
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStartPre=/bin/rm -f /run/{name}/wake
ExecStart=/usr/bin/juju-exec -u {unit} 'JUJU_DISPATCH_PATH=hooks/agent_changed ./dispatch'
TimeoutStartSec=60
"""


class Service:
    """The service of one unit. MachineProblem or OSError where the machine does not do what is needed."""

    def __init__(self, machine: Machine, unit: str, port: int) -> None:
        """`unit` is the Juju unit, `port` that of the exporter."""
        self._machine = machine
        self._unit = unit
        self._port = port
        self.name = PREFIX + unit.replace("/", "-")
        self.state = machine.path(f"/var/lib/{self.name}")
        self.socket = machine.path(f"/run/{self.name}/agent.sock")

    @property
    def state_path(self) -> str:
        """Where the agent's state is, as the machine itself calls it."""
        return f"/var/lib/{self.name}"

    @property
    def copy_path(self) -> str:
        """Where the copy is that the service runs from; empty where there is no service."""
        found = _COPY.search(_text_of(self._path(".service")))
        return "" if found is None else found[0]

    def copy(self, pack: Path) -> str:
        """Keep a copy of the pack, whole or not at all; its digest, which is its name, is returned."""
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

    def is_installed(self, copy: str) -> bool:
        """Whether the unit files are there, and say what they are to say of this copy."""
        return all(_text_of(path) == text for path, text in self._files(copy).items())

    def install(self, copy: str) -> None:
        """Have the service run from a copy, from now on; a service that runs is restarted."""
        if self._machine.user(USER) is None:
            self._machine.run(
                "useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent",
                "--shell", "/usr/sbin/nologin", USER,
            )  # fmt: skip
        for path, text in self._files(copy).items():
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            fresh = path.with_name(f".{path.name}.new")
            fresh.write_text(text, encoding="utf-8")
            fresh.chmod(0o644)
            fresh.replace(path)
        self._machine.run("systemctl", "daemon-reload")
        self._machine.run("systemctl", "enable", f"{self.name}.service", f"{self.name}-wake.path")
        self._machine.run("systemctl", "restart", f"{self.name}.service", f"{self.name}-wake.path")
        self.prune(copy)

    def start(self) -> None:
        """Start what is not running."""
        self._machine.run("systemctl", "start", f"{self.name}.service", f"{self.name}-wake.path")

    def prune(self, *keep: str) -> None:
        """Remove the copies that no service on this machine uses, but for these."""
        used = {*keep}
        for path in self._machine.path(UNITS).glob(f"{PREFIX}*.service"):
            used.update(_COPY.findall(_text_of(path)))
        for copy in _entries(self._machine.path(COPIES)):
            if copy.name not in used:
                shutil.rmtree(copy, ignore_errors=True)
                for cache in self._machine.path("/var/cache").glob(f"{PREFIX}*"):
                    shutil.rmtree(cache / COPIES.lstrip("/") / copy.name, ignore_errors=True)

    def remove(self, *, keep_state: bool) -> None:
        """Stop it and take everything of it away, with the last such service the user too.

        With `keep_state` its state, its copy and the user stay, for whoever removes by hand what is left in a target.
        """
        copies = _COPY.findall(_text_of(self._path(".service")))
        with suppress(MachineProblem):  # not there, or systemd is not
            self._machine.run(
                "systemctl", "disable", "--now",
                f"{self.name}-wake.path", f"{self.name}-wake.service", f"{self.name}.service",
            )  # fmt: skip
        for path in self._files(""):
            path.unlink(missing_ok=True)
        with suppress(MachineProblem):
            self._machine.run("systemctl", "daemon-reload")
        shutil.rmtree(self._machine.path(f"/var/cache/{self.name}"), ignore_errors=True)
        if keep_state:
            self.prune(*copies)
            return
        shutil.rmtree(self.state, ignore_errors=True)
        self.prune()
        others = [*self._machine.path(UNITS).glob(f"{PREFIX}*.service")]
        states = [*self._machine.path("/var/lib").glob(f"{PREFIX}*")]
        if not others and not states:
            shutil.rmtree(self._machine.path(COPIES), ignore_errors=True)
            if self._machine.user(USER) is not None:
                with suppress(MachineProblem):  # a user that cannot log in and owns nothing does no harm
                    self._machine.run("userdel", USER)

    def _files(self, copy: str) -> dict[Path, str]:
        fields = {
            "unit": self._unit,
            "name": self.name,
            "user": USER,
            "port": self._port,
            "copies": COPIES,
            "copy": copy,
            # The pack's wheels are for the Python that runs the charm; the charm's own link to it goes with a refresh.
            "python": os.path.realpath(sys.executable),
        }
        texts = {".service": _SERVICE, "-wake.path": _WAKE_PATH, "-wake.service": _WAKE_SERVICE}
        return {self._path(suffix): text.format_map(fields) for suffix, text in texts.items()}

    def _path(self, suffix: str) -> Path:
        return self._machine.path(f"{UNITS}/{self.name}{suffix}")


def digest_of(pack: Path) -> str:
    """What tells packs apart: the first 16 hexadecimal digits of a SHA-256 over the names and contents of all files."""
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
    """Copy a file so that the agent's user can read it, whatever the pack's modes."""
    shutil.copyfile(source, target)
    os.chmod(target, 0o755 if os.stat(source).st_mode & 0o100 else 0o644)


def _entries(directory: Path) -> list[Path]:
    try:
        return [*directory.iterdir()]
    except OSError:
        return []


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
