"""The first process of a node of a Pacemaker lab: what runs on the node ends when this process does.

`unshare --net --mount --uts --ipc --pid --fork ... node.py SPEC`: as process 1 of a new PID namespace it names the
node, connects it, gives it file systems of its own, and runs corosync and pacemakerd. SIGTERM stops both in order, as
an administrator would. SIGKILL is a power cut: the kernel kills everything else in the namespace.

SPEC is JSON: `name`, `switch` (the path of the network namespace that has the bridge), `port` (the name of the node's
plug there), `address` (with its prefix length), `directory` (the node's own, which outlives its process), `shared` (the
lab's, with corosync.conf, cib.xml, shadow, pam.d and sbin), `environment` (of pacemakerd).
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

BRIDGE = "br0"
"""The bridge in the switch's network namespace."""
_READY_WITHIN_S = 120.0
_STOPPED_WITHIN_S = 300.0
_MS_BIND = 4096
_USER, _GROUP = "hacluster", "haclient"

_libc = ctypes.CDLL(None, use_errno=True)


class _Node:
    """A node that runs: its two daemons, in the order in which they are started."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._directory = Path(spec["directory"])
        self._environment: dict[str, str] = spec["environment"]
        self._corosync: subprocess.Popen[bytes] | None = None
        self._pacemaker: subprocess.Popen[bytes] | None = None
        self._told_to_stop = False

    def run(self) -> int:
        """Run until told to stop, or until corosync ends; returns the exit code."""
        signal.signal(signal.SIGTERM, self._stop)
        self._corosync = self._start("corosync", ["corosync", "-f"])
        if not self._await_corosync(self._corosync):
            return 1
        self._pacemaker = self._start("pacemakerd", ["pacemakerd", "-f"])
        while not self._told_to_stop:
            try:
                pid, _status = os.wait()  # whatever loses its parent becomes a child of process 1
            except InterruptedError:
                continue
            except ChildProcessError:
                break
            if pid == self._corosync.pid:
                break
        return self._end()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._told_to_stop = True
        if self._pacemaker is not None:
            os.kill(self._pacemaker.pid, signal.SIGTERM)
        elif self._corosync is not None:
            os.kill(self._corosync.pid, signal.SIGTERM)

    def _end(self) -> int:
        for daemon in (self._pacemaker, self._corosync):
            if daemon is None:
                continue
            try:
                daemon.terminate()
                daemon.wait(_STOPPED_WITHIN_S)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                pass
        return 0

    def _start(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._directory / f"{name}.out").open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **self._environment},
            )

    def _await_corosync(self, corosync: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + _READY_WITHIN_S
        while time.monotonic() < deadline and corosync.poll() is None and not self._told_to_stop:
            ready = subprocess.run(["corosync-cfgtool", "-s"], capture_output=True, check=False)
            if ready.returncode == 0:
                return True
            time.sleep(0.05)
        return False


def main(spec: dict[str, Any]) -> int:
    """Make the node and run it; returns its exit code."""
    socket.sethostname(spec["name"])
    _connect(spec["switch"], spec["port"], spec["address"])
    _mount_all(Path(spec["directory"]), Path(spec["shared"]))
    return _Node(spec).run()


def _connect(switch: str, port: str, address: str) -> None:
    batch = f"""link set lo up
link add eth0 type veth peer name {port} netns {switch}
addr add {address} dev eth0
link set eth0 up
"""
    subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)
    plug = ["ip", "link", "set", port, "master", BRIDGE, "up"]
    subprocess.run(["nsenter", f"--net={switch}", *plug], check=True)


def _mount_all(directory: Path, shared: Path) -> None:
    """File systems of the node's own; what it keeps over a restart is in its directory."""
    _mount("proc", "/proc", "proc")
    _mount("tmpfs", "/run", "tmpfs", "mode=755,size=64m")
    for path, mode in (("lock", 0o1777), ("crm", 0o750), ("resource-agents", 0o755), ("corosync", 0o755)):
        Path("/run", path).mkdir()
        Path("/run", path).chmod(mode)
    shutil.chown("/run/crm", _USER, _GROUP)
    _mount("tmpfs", "/dev/shm", "tmpfs", "mode=1777,size=256m")
    kept = {
        "etc": "/etc/corosync",
        "pacemaker": "/var/lib/pacemaker",
        "corosync": "/var/lib/corosync",
        "log": "/var/log",
    }
    for name, at in kept.items():
        own = directory / name
        own.mkdir(mode=0o755, exist_ok=True)
        _bind(own, at)
    for path in (
        "/var/lib/pacemaker/cib",
        "/var/lib/pacemaker/pengine",
        "/var/lib/pacemaker/blackbox",
        "/var/lib/pacemaker/cores",
        "/var/log/pacemaker",
    ):
        Path(path).mkdir(mode=0o750, exist_ok=True)
        shutil.chown(path, _USER, _GROUP)
    shutil.chown("/var/lib/pacemaker", _USER, _GROUP)
    shutil.copy(shared / "corosync.conf", "/etc/corosync/corosync.conf")
    cib = Path("/var/lib/pacemaker/cib/cib.xml")
    if not cib.exists():
        shutil.copy(shared / "cib.xml", cib)
        cib.chmod(0o600)
        shutil.chown(cib, _USER, _GROUP)
    _bind(shared / "shadow", "/etc/shadow")
    _bind(shared / "pam.d", "/etc/pam.d")
    _mount("overlay", "/usr/sbin", "overlay", f"lowerdir={shared / 'sbin'}:/usr/sbin")


def _bind(source: Path, target: str) -> None:
    _mount(str(source), target, "", flags=_MS_BIND)


def _mount(source: str, target: str, kind: str, options: str = "", flags: int = 0) -> None:
    if _libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()) != 0:
        sys.exit(f"mount {kind or 'bind'} {target}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
