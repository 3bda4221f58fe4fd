"""Finds a release of a target by its name, and fetches it the first time.

    find("etcd", "bookworm"), find("etcd", "3.4"), find("etcd", "3.6.16")

A release is kept in .cache/releases under the version that was found, as forky and sid move on. To follow them, delete
it. All of them together stay below a limit (see room.py): the one used least recently is removed for another.
"""

from __future__ import annotations

import fcntl
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.control import LabError
from lab.releases.apt import Apt, run, unpack
from lab.releases.known import GO_MODULES, Origin, expected, is_meant, origins
from lab.releases.modules import BUILT, build
from lab.releases.recipes import RECIPES, Recipe
from lab.releases.room import held_directory, hold, in_mb, make_room
from lab.releases.roots import compress, make_root, packages_of

KEPT = Path(__file__).resolve().parents[2] / ".cache" / "releases"
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Release:
    """A target to run: `version`, where it comes from (a suite, or `go`), and the directory with its files."""

    target: str
    version: str
    origin: str
    path: Path

    @property
    def label(self) -> str:
        """Its name for people, such as `etcd 3.4.23 (bookworm)`."""
        return f"{self.target} {self.version} ({self.origin})"

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of its version, to compare it with others."""
        return _numbers(self.version)

    def program(self, path: str) -> Path:
        """One of its programs, by its path in a file system."""
        return self.path / path.removeprefix("/")


def say(line: str) -> None:
    """Print a line about what is fetched."""
    print(f"lab: {line}", file=sys.stderr, flush=True)


def find(target: str, asked_for: str, tell: Tell = say) -> Release:
    """Return a target's release by its suite or version. `tell` is called before anything is fetched or removed.

    The release stays in the cache until this process ends.

    LabError when there is no such release, no room for it, or when it cannot be fetched.
    """
    problem: LabError | None = None
    for origin in origins(target, asked_for):
        KEPT.mkdir(parents=True, exist_ok=True)
        with (KEPT / f"{target}-{origin.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # another lab may be fetching it
            found = _kept(target, origin, asked_for)
            if found is None or not hold(found.path):
                found = _fetch(target, origin, tell)
        if asked_for == origin.name or is_meant(asked_for, found.version):
            return found
        problem = LabError(
            f"release: {target} {asked_for}: {origin.name} has {found.version} now", expected(target)
        )
    assert problem is not None
    raise problem


def kept(target: str) -> list[Release]:
    """Return the releases that have been fetched."""
    found: list[Release] = []
    for path in sorted(KEPT.glob(f"{target}-*-*")):
        _, version, origin = path.name.split("-", 2)
        found.append(Release(target, version, origin, path))
    return found


def _kept(target: str, origin: Origin, asked_for: str) -> Release | None:
    there = [release for release in kept(target) if release.origin == origin.name]
    if asked_for != origin.name:
        there = [release for release in there if is_meant(asked_for, release.version)]
    return max(there, key=lambda release: release.numbers, default=None)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _fetch(target: str, origin: Origin, tell: Tell) -> Release:
    with held_directory(KEPT, f"{target}.") as work:
        made = work / "made"
        made.mkdir()
        if origin.name == GO_MODULES:
            make_room(f"release: {target} {origin.version}", KEPT, BUILT, tell)
            tell(f"{target} {origin.version}: building it from Go modules, which fetches some 100 MB")
            (made / "usr" / "bin").mkdir(parents=True)
            build(origin.version, work).rename(made / "usr" / "bin" / target)
            version = _version_of_etcd(made)
        else:
            tell(
                f"{target} of {origin.name} (had {origin.version} in November 2026): "
                "fetching package lists, some 20 MB"
            )
            apt = Apt(origin.name, work)
            apt.update()
            version = _cook(RECIPES[target], apt, work, made, tell)
        hold(made)
        path = made.rename(KEPT / f"{target}-{version}-{origin.name}")
    return Release(target, version, origin.name, path)


def _cook(recipe: Recipe, apt: Apt, work: Path, made: Path, tell: Tell) -> str:
    """Unpack what a recipe says into a directory, and return the version."""
    first = recipe.packages[0]
    size = apt.size_of(*packages_of(recipe), alone=recipe.form == "program")
    make_room(f"release: {first} of {apt.suite}", KEPT, int(recipe.growth * size), tell)
    if recipe.form == "program":
        tell(f"{first}: fetching {in_mb(size)} into {KEPT}")
        unpack(apt.fetch_alone(first), made)
        return _version_of_etcd(made)
    root = made
    if recipe.form == "image":
        root = work / "root"
        root.mkdir()
    tell(f"fetching {in_mb(size)}: {', '.join(recipe.packages)}, and what they depend on")
    make_root(apt, recipe, root)
    if recipe.form == "image":
        compress(root, made)
    return apt.version_of(first)


def _version_of_etcd(root: Path) -> str:
    said = run([str(root / "usr" / "bin" / "etcd"), "--version"])
    found = re.search(r"etcd Version: (\d+(?:\.\d+)+)", said)
    if found is None:
        raise LabError(f"etcd --version: {said!r}", "etcd")
    return found[1]
