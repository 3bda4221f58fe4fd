"""Makes the disk slow for the processes of a control group, by the kernel's own limit of writes a second.

Only the writes that a process waits for are slowed, as by fsync: the kernel writes the rest back on its own account. On
a disk of two writes a second an fsync of a new file took 1.5 s instead of 4 ms, for it is three writes.

Pacemaker's clients feel nothing of it. The CIB daemon answers, and lets a child write the file. On a disk of one write
a second the last of ten changes was on the disk after 28 s, and after 0.3 s on the other two nodes (2.1.5, 3 nodes).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.cgroups import Hierarchy
from lab.control import LabError

_SLOW = 2
_MOST_WRITES = 100_000


def writes_asked(fields: Mapping[str, Any]) -> int:
    """Return the writes a second that a request for a slow disk asks for; LabError if it is no such number."""
    writes = fields.get("writes_per_s", _SLOW)
    if type(writes) is not int or not 1 <= writes <= _MOST_WRITES:
        raise LabError(f"writes_per_s: {writes!r}", f"a whole number, 1 to {_MOST_WRITES}")
    return writes


def limit_writes(groups: Mapping[Hierarchy, Path], where: Path, per_second: int) -> None:
    """Allow the processes of a group so many writes a second to the disk of a directory; 0 ends the limit.

    Raises LabError when the directory is on no disk, or when the kernel has no such limit.
    """
    disk = _disk(where)
    for hierarchy, group in groups.items():
        if hierarchy.kind == "cgroup2":
            file, line = group / "io.max", f"{disk} wiops={per_second or 'max'}"
        elif "blkio" in hierarchy.options.split(","):
            file, line = group / "blkio.throttle.write_iops_device", f"{disk} {per_second}"
        else:
            continue
        if file.exists():
            with contextlib.suppress(OSError):
                file.write_text(line)
                return
    raise LabError("slow-disk: no limit of writes", "a kernel with io.max or blkio.throttle for this group")


def _disk(where: Path) -> str:
    """The whole disk of a directory, as MAJOR:MINOR: limits are not for partitions."""
    device = where.stat().st_dev
    path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if not path.exists():
        raise LabError(
            f"slow-disk: {where} is on no disk", "a directory for temporary files that is (TMPDIR)"
        )
    path = path.resolve()
    return (path.parent if (path / "partition").exists() else path).joinpath("dev").read_text().strip()
