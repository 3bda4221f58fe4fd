"""The first process of the lab's host of virtual machines: what runs there ends when this process does.

`nsenter --net=SWITCH unshare --mount --uts --ipc --pid --fork ... libvirt_host.py SPEC`: as process 1 of a new PID
namespace it names the host, gives it an address and file systems of its own, and runs dnsmasq and libvirtd. SIGHUP
starts libvirtd again when that has ended; virtual machines outlive it, as they do on a real host.

SPEC is JSON: `groups` (the directories of its control groups), `name`, `bridge` and `addresses` (with their prefix
lengths), `directory` (the host's own), `mounts` (a directory below that by the path where libvirt has it), `files` (by
their paths; `directory` has them by their names), `dnsmasq` and `libvirtd` (command lines).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_MS_BIND = 4096  # sys/mount.h
_MNT_DETACH = 2

_HEARD = {signal.SIGCHLD, signal.SIGHUP}

_libc = ctypes.CDLL(None, use_errno=True)


class _Daemons:
    """dnsmasq, and libvirtd as often as it is started."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec = spec
        self._libvirtd: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Run until dnsmasq ends, and return the exit code.

        Ends come before wishes: libvirtd may have ended a moment before it is to start, and nobody saw that yet.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        dnsmasq = self._start("dnsmasq")
        self._libvirtd = self._start("libvirtd")
        while True:
            heard = signal.sigwait(_HEARD)
            for pid, status in _ended():
                if pid == dnsmasq.pid:
                    return os.waitstatus_to_exitcode(status)
                if self._libvirtd is not None and pid == self._libvirtd.pid:
                    self._libvirtd = None
            if heard == signal.SIGHUP and self._libvirtd is None:
                self._libvirtd = self._start("libvirtd")

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        with Path(self._spec["directory"], f"{name}.out").open("ab") as output:
            return subprocess.Popen(
                self._spec[name],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD),
            )


def _ended() -> Iterator[tuple[int, int]]:
    """The id and status of each child that has ended: whatever loses its parent becomes a child of process 1."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            yield ended


def main(spec: dict[str, Any]) -> int:
    """Make the host and run it; returns its exit code."""
    for group in spec["groups"]:
        Path(group, "cgroup.procs").write_text("0")
    socket.sethostname(spec["name"])
    added = [f"addr add {address} dev {spec['bridge']} nodad" for address in spec["addresses"]]
    batch = "\n".join(["link set lo up", *added, ""])
    subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)
    _mount("proc", "/proc", "proc")
    _libc.umount2(b"/sys", _MNT_DETACH)
    _mount("sysfs", "/sys", "sysfs")  # a new mount shows the network cards of this namespace
    _mount("tmpfs", "/run", "tmpfs", "mode=755")
    for at, name in spec["mounts"].items():
        own = Path(spec["directory"], name)
        own.mkdir(parents=True, exist_ok=True)
        Path(at).mkdir(parents=True, exist_ok=True)
        _mount(str(own), at, "", flags=_MS_BIND)
    for at in spec["files"]:
        _mount(str(Path(spec["directory"], Path(at).name)), at, "", flags=_MS_BIND)
    return _Daemons(spec).run()


def _mount(source: str, target: str, kind: str, options: str = "", flags: int = 0) -> None:
    if _libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()) != 0:
        sys.exit(f"mount {kind or 'bind'} {target}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
