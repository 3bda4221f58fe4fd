"""Makes control groups that are removed with their maker: one tree of the same name in every hierarchy.

As a program, `cgroups.py TREE...`, it is the janitor, which outlives its maker. When its standard input ends, it kills
all processes in the given trees and removes them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

_GONE_WITHIN_S = 120.0
_CPU_PERIOD_US = 100_000
"""The kernel's own default."""
LEAST_CPU = 0.01
"""The smallest share of a core that a group may be limited to: the kernel takes no quota under a millisecond."""
_DISK_LIMITS = {"blkio.throttle.write_iops_device": "0", "io.max": "wiops=max"}
"""Files of limits of a disk, and what ends one. A process that waits for a slow disk cannot be killed before."""


@dataclass(frozen=True)
class Hierarchy:
    """A mounted cgroup file system: `kind` is cgroup or cgroup2, `options` are its mount options."""

    kind: str
    options: str
    mount_point: Path
    own: Path
    """The directory of this process' control group."""


def hierarchies() -> list[Hierarchy]:
    """Return the hierarchies of this machine: one of version 2, several of version 1, or both kinds."""
    groups: dict[frozenset[str], str] = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _number, controllers, group = line.split(":", 2)
        groups[frozenset(controllers.split(",")) - {""}] = group
    found: list[Hierarchy] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, rest = line.partition(" - ")
        kind, _source, super_options = rest.split(" ")
        if kind not in ("cgroup", "cgroup2"):
            continue
        root, mount_point = mount.split(" ")[3:5]
        options = [
            option for option in super_options.split(",") if kind == "cgroup" and option not in _NOT_OURS
        ]
        group = groups.get(frozenset(options), "/")
        own = Path(mount_point) / os.path.relpath(group, root)
        found.append(Hierarchy(kind, ",".join(options), Path(mount_point), Path(os.path.normpath(own))))
    return found


_NOT_OURS = {"ro", "rw", "xattr", "clone_children", "noprefix"}


class VanishingCgroups:
    """A control group of one name in each hierarchy, below that of this process.

    They are removed, with all their processes, when the context or this process ends, even by SIGKILL.
    """

    def __init__(self, cleanup: ExitStack, name: str) -> None:
        self._trees = {hierarchy: _parent(hierarchy) / name for hierarchy in hierarchies()}
        trees = list(self._trees.values())
        command = [sys.executable, "-I", "-S", __file__, *map(str, trees)]
        janitor = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)

        def remove() -> None:
            _remove(trees)
            janitor.kill()
            janitor.communicate()

        cleanup.callback(remove)
        for hierarchy, tree in self._trees.items():
            _make(hierarchy, tree)

    def fresh(self, child: str, processors: Collection[int]) -> dict[Hierarchy, Path]:
        """Make a new, empty child group in each of these groups, whose processes run on these processors."""
        groups = {hierarchy: tree / child for hierarchy, tree in self._trees.items()}
        _remove(list(groups.values()))
        for hierarchy, group in groups.items():
            _make(hierarchy, group)
            # Before Linux 6.2, a process that joins a group forgets which processors it was given.
            if (group / "cpuset.cpus").exists():
                (group / "cpuset.cpus").write_text(",".join(map(str, processors)))
        return groups


def limit_cpu(groups: Mapping[Hierarchy, Path], pid: int, cores: float) -> bool:
    """Move a process into a group that may use so many cores, in every tenth part of a second.

    Returns False where no hierarchy of this machine limits CPU time.
    """
    quota = str(round(cores * _CPU_PERIOD_US))
    limits = {
        "cpu.max": f"{quota} {_CPU_PERIOD_US}",
        "cpu.cfs_period_us": str(_CPU_PERIOD_US),
        "cpu.cfs_quota_us": quota,
    }
    for group in groups.values():
        written = [name for name in limits if (group / name).exists()]
        for name in written:
            (group / name).write_text(limits[name])
        if written:
            (group / "cgroup.procs").write_text(str(pid))
            return True
    return False


def join(groups: Mapping[Hierarchy, Path], pid: int) -> None:
    """Move a process into its groups of all hierarchies."""
    for group in groups.values():
        (group / "cgroup.procs").write_text(str(pid))


def _make(hierarchy: Hierarchy, group: Path) -> None:
    group.mkdir()
    if hierarchy.kind == "cgroup2":
        for controller in (group.parent / "cgroup.controllers").read_text().split():
            with contextlib.suppress(
                OSError
            ):  # other processes in the parent may prevent it: then there are no limits, which does no harm
                (group.parent / "cgroup.subtree_control").write_text(f"+{controller}")
    elif "cpuset" in hierarchy.options:
        for setting in ("cpuset.cpus", "cpuset.mems"):  # a new group has none, and then no process may join
            (group / setting).write_text((group.parent / setting).read_text())


def _parent(hierarchy: Hierarchy) -> Path:
    """Return this process' group; in version 2 the nearest one with controllers for its children, if any."""
    if hierarchy.kind == "cgroup":
        return hierarchy.own
    for group in (hierarchy.own, *hierarchy.own.parents):
        if not group.is_relative_to(hierarchy.mount_point):
            break
        if (group / "cgroup.subtree_control").read_text().strip():
            return group
    return hierarchy.own


def _remove(trees: list[Path]) -> None:
    """Kill all processes in the trees and remove these. What cannot be removed in time stays."""
    deadline = time.monotonic() + _GONE_WITHIN_S
    while any(tree.exists() for tree in trees) and time.monotonic() < deadline:
        for tree in trees:
            for group in _leaves_first(tree):
                _free_disk(group)
                with contextlib.suppress(OSError):
                    for pid in (group / "cgroup.procs").read_text().split():
                        os.kill(int(pid), signal.SIGKILL)
                with contextlib.suppress(OSError):
                    group.rmdir()
        time.sleep(0.02)


def _free_disk(group: Path) -> None:
    for name, free in _DISK_LIMITS.items():
        with contextlib.suppress(OSError):
            for line in (group / name).read_text().splitlines():
                (group / name).write_text(f"{line.split()[0]} {free}")


def _leaves_first(tree: Path) -> Iterator[Path]:
    for directory, _directories, _files in os.walk(tree, topdown=False):
        yield Path(directory)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    _remove([Path(tree) for tree in sys.argv[1:]])
