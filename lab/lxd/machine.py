"""The first process of a machine of an LXD lab. The machine ends with this process.

`unshare --net --mount --pid --fork ... machine.py SPEC COMMAND...` runs it as process 1 of a new PID namespace. It
makes the rest of the machine (control groups, file systems, network card), runs the command, and ends with it. The
kernel then kills all other processes, containers included, and removes mounts and links.

SPEC is JSON with these keys. `cgroups` is [[kind, options, mount point, directory of the machine's group], ...].
`switch` is the path of the network namespace with the bridge, whose name is `bridge`. `port` is the name of the
machine's port there. `address` has a prefix length. `small` is the size in bytes of the file system at SMALL.
`image` is a root file system for the machine, or null for that of the host; `shared` is a directory of the host in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

SMALL = "/run/small"
"""A small file system of the machine that is soon full."""

PATH = "/usr/libexec/incus:/usr/sbin:/usr/bin"
"""Where the programs of an image are. Debian's incusd is none for users."""
_ROOTS = "/run/roots"
_RUN_OF_LXC = "/run/lxc"
"""liblxc keeps locks there."""
_MS_BIND, _MS_REC = 4096, 16384  # sys/mount.h
_CLONE_NEWCGROUP = 0x02000000  # linux/sched.h
_MNT_DETACH = 2  # sys/mount.h

_libc = ctypes.CDLL(None, use_errno=True)


def main(spec: dict[str, Any], command: list[str]) -> int:
    """Make the machine, run the command in it, and return its exit code."""
    _enter_cgroups(spec["cgroups"])
    _connect(spec["switch"], spec["bridge"], spec["port"], spec["address"])
    _mount_all(spec["cgroups"], spec["small"])
    _soft, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    environment = dict(os.environ)
    if spec["image"] is not None:
        _change_root(spec["image"], spec["shared"])
        environment["PATH"] = PATH
    daemon = subprocess.Popen(command, env=environment)
    while True:  # orphans become children of process 1
        pid, status = os.wait()
        if pid == daemon.pid:
            return os.waitstatus_to_exitcode(status)


def _enter_cgroups(cgroups: list[list[str]]) -> None:
    """Make the machine's groups the roots that are visible in it."""
    for *_mount, group in cgroups:
        Path(group, "cgroup.procs").write_text("0")
    if _libc.unshare(_CLONE_NEWCGROUP) != 0:
        _fail("unshare")
    for kind, *_mount, group in cgroups:
        if kind == "cgroup2":  # children of a group that has processes get no controllers
            below = Path(group, "init.scope")  # systemd's name: liblxc puts containers beside it, not below
            below.mkdir()
            (below / "cgroup.procs").write_text("0")


def _connect(switch: str, bridge: str, port: str, address: str) -> None:
    batch = f"""link set lo up
link add eth0 type veth peer name {port} netns {switch}
addr add {address} dev eth0
link set eth0 up
"""
    subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=True)
    plug = ["ip", "link", "set", port, "master", bridge, "up"]
    subprocess.run(["nsenter", f"--net={switch}", *plug], check=True)


def _mount_all(cgroups: list[list[str]], small: int) -> None:
    _mount("proc", "/proc", "proc")
    _libc.umount2(b"/sys", _MNT_DETACH)
    _mount("sysfs", "/sys", "sysfs")  # a new mount shows the network cards of this namespace
    if cgroups and all(mount_point != "/sys/fs/cgroup" for _kind, _options, mount_point, _group in cgroups):
        _mount("tmpfs", "/sys/fs/cgroup", "tmpfs", "mode=755")
    for kind, options, mount_point, _group in sorted(cgroups, key=lambda cgroup: cgroup[2]):
        Path(mount_point).mkdir(exist_ok=True)
        named = options.startswith("name=")
        _mount("cgroup", mount_point, kind, f"none,{options}" if named else options)
    _mount("tmpfs", "/run", "tmpfs", "mode=755")  # liblxc keeps locks there
    Path(SMALL).mkdir()
    _mount("tmpfs", SMALL, "tmpfs", f"mode=711,size={small}")


def _change_root(image: str, shared: str) -> None:
    """Make an image the root, below a layer that keeps what is written. /run and its mounts are new already."""
    for name in ("image", "written", "work", "root"):
        Path(_ROOTS, name).mkdir(parents=True)
    lower, root = f"{_ROOTS}/image", f"{_ROOTS}/root"
    subprocess.run(["mount", "-t", "squashfs", "-o", "loop,ro", image, lower], check=True)
    _mount("overlay", root, "overlay", f"lowerdir={lower},upperdir={_ROOTS}/written,workdir={_ROOTS}/work")
    for name in ("subuid", "subgid"):
        Path(root, "etc", name).write_text("root:1000000:1000000000\n")
    for path in (shared, "var/lib/incus", "var/log/incus", "var/lib/lxd", "var/log/lxd"):
        Path(root, path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for path in ("/proc", "/sys", "/dev", shared):
        _mount(path, root + path, "none", flags=_MS_BIND | _MS_REC)
    _mount("tmpfs", f"{root}/run", "tmpfs", "mode=755")
    for path in (SMALL, _RUN_OF_LXC):
        Path(root + path).mkdir()
    _mount(SMALL, root + SMALL, "none", flags=_MS_BIND)
    subprocess.run(["pivot_root", ".", "old"], cwd=root, check=True)
    os.chdir("/")
    if _libc.umount2(b"/old", _MNT_DETACH) != 0:
        _fail("umount /old")


def _mount(source: str, target: str, kind: str, options: str = "", flags: int = 0) -> None:
    if _libc.mount(source.encode(), target.encode(), kind.encode(), flags, options.encode()) != 0:
        _fail(f"mount {kind} {target}")


def _fail(what: str) -> None:
    sys.exit(f"{what}: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main(json.loads(sys.argv[1]), sys.argv[2:]))
