"""One unit of a packed charm on a machine that is this one with nothing written to it: a mount namespace in which
/etc, /opt, /var and /run are overlays whose upper sides are in memory. Hook tools and systemctl are stand-ins; useradd
and the like are the machine's own. Needs root."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

_TOOLS = [
    "action-fail",
    "action-get",
    "action-log",
    "action-set",
    "application-version-set",
    "close-port",
    "config-get",
    "goal-state",
    "is-leader",
    "juju-log",
    "network-get",
    "open-port",
    "opened-ports",
    "relation-get",
    "relation-ids",
    "relation-list",
    "relation-set",
    "secret-get",
    "status-get",
    "status-set",
]

_MOUNTS = """
mount --make-rprivate /
mount -t tmpfs tmpfs {upper}
for each in etc opt var run; do
    mkdir -p {upper}/$each {upper}/.$each
    mount -t overlay overlay -o lowerdir=/$each,upperdir={upper}/$each,workdir={upper}/.$each /$each
done
mkdir -p {charm}
mount --bind {unpacked} {charm}
echo ready
exec sleep infinity
"""


@dataclass(frozen=True)
class Dispatched:
    """What one run of `dispatch` came to; `state` is what the hook tools know after it."""

    code: int
    said: str
    state: dict[str, Any]

    @property
    def errors(self) -> list[str]:
        """What it logged as an error, and any traceback wherever it is."""
        logged = [text for level, text in self.state["log"] if level in ("ERROR", "CRITICAL")]
        everything = [self.said, *(text for _, text in self.state["log"])]
        return [*logged, *(text for text in everything if "Traceback" in text)]


class CharmUnit:
    """A unit of the charm in `pack`, unpacked as Juju would and run by the Python `python`."""

    def __init__(self, pack: Path, python: Path, place: Path, leader: bool = True) -> None:
        """`place` is an empty directory."""
        self._place = place
        self._charm = place / "charm"
        unpack(pack, self._charm)
        self.name = yaml.safe_load((self._charm / "metadata.yaml").read_text())["name"]
        self.unit = f"{self.name}/0"
        self.directory = f"/var/lib/juju/agents/unit-{self.name}-0/charm"
        (packages,) = self._charm.glob("venv/lib/python3.*")
        self.python = packages.name
        self._make_programs(python)
        config = self._charm / "config.yaml"
        said = yaml.safe_load(config.read_text())["options"] if config.exists() else {}
        peers = yaml.safe_load((self._charm / "metadata.yaml").read_text()).get("peers", {})
        self.state: dict[str, Any] = {
            "unit": self.unit,
            "leader": leader,
            "config": {key: each["default"] for key, each in said.items() if "default" in each},
            "relations": {f"{name}:{number}": [] for number, name in enumerate(peers)},
            "bags": {},
            "secrets": {},
            "address": "10.0.0.7",
            "status": ["maintenance", ""],
        }

    def __enter__(self) -> CharmUnit:
        upper = self._place / "upper"
        upper.mkdir()
        mounts = _MOUNTS.format(upper=upper, charm=self.directory, unpacked=self._charm)
        command = ["unshare", "--mount", "sh", "-ec", mounts]
        self._namespace = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self._namespace.stdout is not None
        assert self._namespace.stderr is not None
        if self._namespace.stdout.readline() != "ready\n":
            raise AssertionError(f"no mount namespace: {self._namespace.stderr.read()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._namespace.kill()
        self._namespace.communicate()
        shutil.rmtree(self._charm)  # 100 MB

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program on the unit's machine, in the charm's directory."""
        return subprocess.run(self._entered(*command, **environment), capture_output=True, text=True)

    def _entered(self, *command: str, **environment: str) -> list[str]:
        entered = [
            "nsenter",
            "--mount",
            "--target",
            str(self._namespace.pid),
            "env",
            "-i",
            f"--chdir={self.directory}",
        ]
        path = f"{self._place}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        clean = {"PATH": path, "LANG": "C.UTF-8"} | environment
        return [*entered, *(f"{key}={value}" for key, value in clean.items()), *command]

    def dispatch(self, path: str, **action: object) -> Dispatched:
        """Run an event (hooks/install) or an action (actions/status, with its parameters)."""
        state = self.state | {"calls": [], "log": [], "results": {}, "failed": None, "action": action}
        file = self._place / "state.json"
        file.write_text(json.dumps(state))
        kind, _, name = path.partition("/")
        environment = {
            "JUJU_DISPATCH_PATH": path,
            "JUJU_UNIT_NAME": self.unit,
            "JUJU_CHARM_DIR": self.directory,
            "CHARM_DIR": self.directory,
            "JUJU_MODEL_NAME": "scale",
            "JUJU_MODEL_UUID": "6f4b27a5-6f8b-4a36-8f6c-1d2b3c4d5e6f",
            "JUJU_VERSION": "3.6.9",
            "JUJU_MACHINE_ID": "0",
            "JUJU_API_ADDRESSES": "10.0.0.1:17070",
            "JUJU_CONTEXT_ID": f"{self.unit}-{name}-1",
        }
        environment |= {"JUJU_ACTION_NAME": name, "JUJU_ACTION_UUID": "1"} if kind == "actions" else {}
        done = self.run("./dispatch", **environment)
        state = json.loads(file.read_text())
        self.state |= {key: state[key] for key in ("bags", "status")}
        return Dispatched(done.returncode, done.stdout + done.stderr, state)

    @contextmanager
    def started(self, service: str) -> Iterator[str]:
        """The service runs, as its unit file says but for user and sandbox; where its Python packages are."""
        file = self.read(f"/etc/systemd/system/{service}.service")
        (command,) = re.findall(r"^ExecStart=(.*)$", file, re.MULTILINE)
        pairs = " ".join(re.findall(r"^Environment=(.*)$", file, re.MULTILINE)).split()
        environment = dict(each.split("=", 1) for each in pairs)
        self.run("mkdir", "-p", *(f"/{each}/{service}" for each in ("var/lib", "var/cache", "run")))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
            told.bind(str(self._place / "notify"))
            told.settimeout(600)
            environment["NOTIFY_SOCKET"] = str(self._place / "notify")
            output = (self._place / "service").open("w+")
            with (
                output,
                subprocess.Popen(
                    self._entered(*command.split(), **environment), stdout=output, stderr=output
                ) as run,
            ):
                try:
                    while b"READY=1" not in told.recv(4096):
                        pass
                    yield environment["PYTHONPATH"]
                except TimeoutError:
                    raise AssertionError(
                        f"{service} was not ready: {(self._place / 'service').read_text()}"
                    ) from None
                finally:
                    run.terminate()

    def read(self, path: str) -> str:
        """The content of a file of the unit's machine; empty where it is not there."""
        return self.run("cat", path).stdout

    def refresh(self, path: str, text: str) -> None:
        """Have the charm be another from now on, by one file, as before upgrade-charm."""
        file = self._charm / path
        file.write_text(file.read_text() + text)

    def _make_programs(self, python: Path) -> None:
        programs = self._place / "bin"
        programs.mkdir()
        (programs / "python3").symlink_to(python)
        tools = Path(__file__).with_name("hook_tools.py")
        for name in _TOOLS:
            command = shlex.join([sys.executable, "-IS", str(tools), str(self._place / "state.json"), name])
            write_program(programs / name, f'exec {command} "$@"')
        said = shlex.quote(str(self._place / "systemctl"))
        states = "shift 3; for unit; do echo active; done"  # `systemctl show` of units' states: all run
        write_program(
            programs / "systemctl", f'if [ "$1" = show ]; then {states}; else echo "$*" >>{said}; fi'
        )

    @property
    def systemctl(self) -> list[str]:
        """What systemctl was told, so far."""
        file = self._place / "systemctl"
        return file.read_text().splitlines() if file.exists() else []


def write_program(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


def unpack(pack: Path, into: Path) -> None:
    """Unpack a charm with the modes it says, as Juju does and zipfile alone does not."""
    with zipfile.ZipFile(pack) as archive:
        archive.extractall(into)
        for entry in archive.infolist():
            os.chmod(into / entry.filename, entry.external_attr >> 16 & 0o777)
