"""Makes a root file system of another suite: packages and all that they need are unpacked, and nothing is configured.

It is kept as files, or as one compressed file, which a lab mounts in namespaces of its own.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from lab.releases.apt import Apt, run, unpack
from lab.releases.recipes import Recipe

ROOT_IMAGE = "root.squashfs"
"""The root file system within a release's directory."""
_ESSENTIAL = ("?essential", "mawk")
_LINKED = ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64")


def packages_of(recipe: Recipe) -> tuple[str, ...]:
    """The packages that are fetched for a recipe: a root file system has those of every Debian, too."""
    return recipe.packages if recipe.form == "program" else (*_ESSENTIAL, *recipe.packages)


def make_root(apt: Apt, recipe: Recipe, root: Path) -> None:
    """Unpack a recipe's packages and those that they depend on into a directory. LabError when that fails."""
    fetched = apt.fetch(*packages_of(recipe))
    for path in _LINKED:  # first, as the packages of some releases do not expect it
        (root / path).mkdir(parents=True)
        (root / Path(path).name).symlink_to(path)
    for package in [*fetched, *map(apt.fetch_alone, recipe.alone)]:
        unpack(package, root)
    if recipe.beside:
        (root / "opt" / recipe.beside).mkdir(parents=True)
        unpack(apt.fetch_alone(recipe.beside), root / "opt" / recipe.beside)
    _finish(root)
    if recipe.compiled:
        run(["chroot", str(root), "python3", "-m", "compileall", "-q", "-x", "/tests?/", "/usr/lib"])
    if recipe.user:
        _add_user(root, recipe.user)


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
    for name, to in (("awk", "mawk"), ("sh", "dash"), ("uwsgi", "uwsgi-core")):
        if not (root / "usr/bin" / name).exists() and (root / "usr/bin" / to).exists():
            (root / "usr/bin" / name).symlink_to(to)
    for path in (
        "proc",
        "sys",
        "run",
        "tmp",
        "dev",
        "old",
        "etc/corosync",
        "etc/pacemaker",
        "var/lib/pacemaker",
    ):
        (root / path).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    run(["chroot", str(root), "/usr/sbin/ldconfig"])


def _add_user(root: Path, described: str) -> None:
    user, group, number, home = described.split(":")
    with (root / "etc/passwd").open("a") as users, (root / "etc/group").open("a") as groups:
        users.write(f"{user}:x:{number}:{number}::{home}:/usr/sbin/nologin\n")
        groups.write(f"{group}:x:{number}:\n")
