"""The first process of a node of a Pacemaker lab: what runs on the node ends when this process does.

`unshare --net --mount --uts --ipc --pid --fork ... node.py SPEC`: as process 1 of a new PID namespace it names the
node, connects it, gives it file systems of its own, and runs corosync and pacemakerd. SIGTERM stops both in order, as
an administrator would. SIGKILL is a power cut: the kernel kills everything else in the namespace. A remote node becomes
pacemaker-remoted instead.

SPEC is JSON: `name`, `remote` (whether it is one), `groups` (the directories of its control groups), `switch` (the path
of the network namespace that has the bridge), `bridge`, `port` (the name of the node's plug there), `address` (with its
prefix length), `directory` (the node's own, which outlives its process), `shared` (the lab's, with corosync.conf,
cib.xml, authkey, shadow, pam.d, sbin and fence), `lower` (a release's file system; empty for this machine's), `program`
(of a remote node), `environment` (of pacemakerd).
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from json import loads
from pathlib import Path
from types import FrameType
from typing import Any

_READY_WITHIN_S = 600.0
_STOPPED_WITHIN_S = 300.0
_MS_BIND, _MS_REC = 4096, 16384  # sys/mount.h
_SPOOLS = ("cib", "pengine", "blackbox", "cores")
_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

_libc = ctypes.CDLL(None, use_errno=True)


class _Node:
    """A node that runs: its two daemons, in the order in which they are started."""

    def __init__(self, root: Path, directory: Path, environment: dict[str, str]) -> None:
        self._root = root
        self._directory = directory
        self._environment = {**os.environ, "PATH": _PATH, **environment}
        self._corosync: subprocess.Popen[bytes] | None = None
        self._pacemaker: subprocess.Popen[bytes] | None = None
        self._told_to_stop = False

    def run(self) -> int:
        """Run until told to stop, or until corosync ends; returns the exit code."""
        signal.signal(signal.SIGTERM, self._stop)
        self._corosync = self._start("corosync", "-f")
        if not self._await_corosync(self._corosync):
            return 1
        self._pacemaker = self._start("pacemakerd", "-f")
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

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self._directory / f"{command[0]}.out").open("ab") as output:
            return subprocess.Popen(
                ["chroot", str(self._root), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
            )

    def _await_corosync(self, corosync: subprocess.Popen[bytes]) -> bool:
        deadline = time.monotonic() + _READY_WITHIN_S
        asking = ["chroot", str(self._root), "corosync-cfgtool", "-s"]
        while time.monotonic() < deadline and corosync.poll() is None and not self._told_to_stop:
            if (
                subprocess.run(asking, capture_output=True, env=self._environment, check=False).returncode
                == 0
            ):
                return True
            time.sleep(0.05)
        return False


def main(spec: dict[str, Any]) -> int:
    """Make the node and run it; returns its exit code."""
    for group in spec["groups"]:
        Path(group, "cgroup.procs").write_text("0")
    socket.sethostname(spec["name"])
    _connect(spec["switch"], spec["bridge"], spec["port"], spec["address"])
    directory, shared = Path(spec["directory"]), Path(spec["shared"])
    _mount("proc", "/proc", "proc")  # of this PID namespace; exporters beside the daemons read it too
    root = _root(spec["lower"], directory)
    _mount_all(root, directory, shared)
    if spec["remote"]:
        return _become_remote(root, directory, spec["program"], spec["environment"])
    _configure(root, shared)
    return _Node(root, directory, spec["environment"]).run()


def _become_remote(root: Path, directory: Path, program: str, environment: dict[str, str]) -> int:
    """Become pacemaker-remoted, which as process 1 collects what loses its parent."""
    output = os.open(directory / "pacemaker-remoted.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chroot(root)
    os.chdir("/")
    os.execve(program, [program], {**os.environ, "PATH": _PATH, **environment})


def _connect(switch: str, bridge: str, port: str, address: str) -> None:
    # A machine keeps its MAC when it boots. With another one, its neighbours send to the old one for 45 s, or longer.
    mac = "02:00:" + ":".join(f"{int(part):02x}" for part in address.partition("/")[0].split("."))
    batch = f"""link set lo up
link add eth0 address {mac} type veth peer name {port} netns {switch}
addr add {address} dev eth0
link set eth0 up
"""
    subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)
    plug = ["ip", "link", "set", port, "master", bridge, "up"]
    subprocess.run(["nsenter", f"--net={switch}", *plug], check=True)


def _root(lower: str, directory: Path) -> Path:
    """The node's root: this machine's, or a release's below a layer of the node's own."""
    if not lower:
        return Path("/")
    root, upper, work = (directory / name for name in ("root", "upper", "work"))
    for path in (root, upper, work):
        path.mkdir(exist_ok=True)
    _mount("overlay", root, "overlay", f"lowerdir={lower},upperdir={upper},workdir={work}")
    _mount("proc", root / "proc", "proc")
    _mount("/dev", root / "dev", "", flags=_MS_BIND | _MS_REC)
    return root


def _mount_all(root: Path, directory: Path, shared: Path) -> None:
    """File systems of the node's own; what it keeps over a restart is in its directory."""
    user, group = _user(root)
    _mount("tmpfs", root / "run", "tmpfs", "mode=755,size=64m")
    for path, mode in (("lock", 0o1777), ("crm", 0o750), ("resource-agents", 0o755), ("corosync", 0o755)):
        (root / "run" / path).mkdir()
        (root / "run" / path).chmod(mode)
    os.chown(root / "run/crm", user, group)
    _mount("tmpfs", root / "dev/shm", "tmpfs", "mode=1777,size=256m")
    kept = {
        "etc": "etc/corosync",
        "keys": "etc/pacemaker",
        "pacemaker": "var/lib/pacemaker",
        "corosync": "var/lib/corosync",
        "log": "var/log",
    }
    for name, at in kept.items():
        own = directory / name
        own.mkdir(mode=0o755, exist_ok=True)
        (root / at).mkdir(exist_ok=True)  # only Pacemaker's own packages have them
        _bind(own, root / at)
    state = root / "var/lib/pacemaker"
    for path in (*(state / name for name in _SPOOLS), root / "var/log/pacemaker"):
        path.mkdir(mode=0o750, exist_ok=True)
        os.chown(path, user, group)
    os.chown(state, user, group)
    shutil.copy(shared / "authkey", root / "etc/pacemaker/authkey")
    os.chown(root / "etc/pacemaker/authkey", 0, group)
    for name in ("ca.pem", "server.pem", "server-key.pem"):
        if (shared / name).exists():
            shutil.copy(shared / name, root / "etc/pacemaker")
            os.chown(root / "etc/pacemaker" / name, user, group)


def _configure(root: Path, shared: Path) -> None:
    """What a full node has besides: its configuration, first CIB, password, and the fencing device."""
    user, group = _user(root)
    shutil.copy(shared / "corosync.conf", root / "etc/corosync/corosync.conf")
    cib = root / "var/lib/pacemaker/cib/cib.xml"
    if not cib.exists():
        shutil.copy(shared / "cib.xml", cib)
        cib.chmod(0o600)
        os.chown(cib, user, group)
    _bind(shared / "shadow", root / "etc/shadow")
    _bind(shared / "pam.d", root / "etc/pam.d")
    (root / "run/fence").mkdir()
    _bind(shared / "fence", root / "run/fence")
    sbin = root / "usr/sbin"
    _mount("overlay", sbin, "overlay", f"lowerdir={shared / 'sbin'}:{sbin}")


def _user(root: Path) -> tuple[int, int]:
    """The ids of Pacemaker's user, as the node's own files have them."""
    for line in (root / "etc/passwd").read_text().splitlines():
        name, _, user, group = line.split(":")[:4]
        if name == "hacluster":
            return int(user), int(group)
    sys.exit(f"{root}/etc/passwd: no hacluster: expected the user that Pacemaker's packages make")


def _bind(source: Path, target: Path) -> None:
    _mount(str(source), target, "", flags=_MS_BIND)


def _mount(source: str, target: Path | str, kind: str, options: str = "", flags: int = 0) -> None:
    if _libc.mount(source.encode(), str(target).encode(), kind.encode(), flags, options.encode()) != 0:
        sys.exit(f"mount {kind or 'bind'} {target}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    sys.exit(main(loads(sys.argv[1])))
