"""Makes a root file system of another suite: packages and all that they need are unpacked, and nothing is configured.

It is kept as one compressed file, which a lab mounts in namespaces of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from lab.releases.apt import Apt, run, unpack
from lab.releases.room import in_mb

ROOT_IMAGE = "root.squashfs"
"""The root file system within a release's directory."""
_ESSENTIAL = ("?essential", "mawk")
_LINKED = ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64")


def make_root(apt: Apt, packages: tuple[str, ...], root: Path, tell: Callable[[str], None]) -> None:
    """Unpack packages and those that they depend on into a directory. LabError when that fails."""
    wanted = (*_ESSENTIAL, *packages)
    tell(f"fetching {in_mb(apt.size_of(*wanted))}: {', '.join(packages)}, and what they depend on")
    fetched = apt.fetch(*wanted)
    for path in _LINKED:  # first, as the packages of some releases do not expect it
        (root / path).mkdir(parents=True)
        (root / Path(path).name).symlink_to(path)
    for package in fetched:
        unpack(package, root)
    _finish(root)


def compress(root: Path, into: Path) -> None:
    """Write a root file system into a directory as one file. LabError when that fails."""
    options = ["-comp", "zstd", "-Xcompression-level", "3", "-noappend", "-no-progress", "-quiet"]
    run(["mksquashfs", str(root), str(into / ROOT_IMAGE), *options])


def _finish(root: Path) -> None:
    """Make what maintainer scripts would have made, as far as programs need it."""
    for name in ("passwd", "group"):
        shutil.copy(root / "usr/share/base-passwd" / f"{name}.master", root / "etc" / name)
    (root / "etc/shadow").touch(0o640)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    for name, to in (("awk", "mawk"), ("sh", "dash")):
        if not (root / "usr/bin" / name).exists():
            (root / "usr/bin" / name).symlink_to(to)
    for path in ("proc", "sys", "run", "tmp", "dev", "old"):
        (root / path).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    run(["chroot", str(root), "/usr/sbin/ldconfig"])
