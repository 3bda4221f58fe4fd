"""Room on the disk for what is fetched."""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.control import LabError

MB = 1_000_000


def check_room(what: str, directory: Path, needed: int) -> None:
    """Raise LabError unless there are so many bytes of room below a directory."""
    free = shutil.disk_usage(directory).free
    if free < needed:
        raise LabError(
            f"{what}: {in_mb(free)} of room in {directory.parent}", f"{in_mb(needed)} while it is fetched"
        )


def in_mb(size: int) -> str:
    """A size in megabytes."""
    return f"{size / MB:.0f} MB" if size >= 10 * MB else f"{size / MB:.1f} MB"
