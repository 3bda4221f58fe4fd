"""Finds the Pacemaker that a lab runs: this machine's, or another release's from the distribution's signed packages.

    unpacked("trixie"), unpacked("3.0.0")  # a root file system in .cache/releases

A root is unpacked, and nothing is installed: no maintainer script runs, and the machine's own packages, lists and
sources stay as they are. Nodes have it as the lower layer of their own root. It is kept under the version that was
found, as forky and sid move on; to follow them, delete it. The first time takes some 30 s.
`python -m lab.pacemaker.releases RELEASE...` fetches roots beforehand.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.control import LabError
from lab.releases.apt import Apt, run, unpack
from lab.releases.find import say
from lab.releases.room import in_mb

SUITES = {"2.0.5": "bullseye", "2.1.5": "bookworm", "3.0.0": "trixie", "3.0.1": "forky", "3.0.3": "sid"}
"""The release of Debian that has each version of Pacemaker. forky and sid had theirs in November 2026."""
PACKAGES = ("pacemaker", "corosync", "pacemaker-cli-utils", "resource-agents")
_PROGRAMS = ("corosync", "pacemakerd", "cibadmin", "crm_attribute")
_REMOTE = "pacemaker-remote"
"""Pacemaker's package of remote nodes. It conflicts with `pacemaker`, so that it is unpacked beside it."""
_REMOTED = "usr/sbin/pacemaker-remoted"
_ESSENTIAL = ("?essential", "mawk")
_ID = 499
"""The id of Pacemaker's user and group in a root; its package would make them."""
_CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Release:
    """A Pacemaker to run: `root` is its file system, None for this machine's own."""

    version: str
    root: Path | None
    remoted: str | None
    """The program of remote nodes, by its path in that file system."""

    @property
    def major(self) -> int:
        """The first number of the version."""
        return int(self.version.partition(".")[0])


def installed() -> Release:
    """Return this machine's Pacemaker. Raises LabError without one."""
    for program in _PROGRAMS:
        if shutil.which(program) is None:
            raise LabError(f"{program}: not found", "the packages that ./scripts/lab up pacemaker installs")
    beside = _CHECKOUT / ".cache" / "packages" / _REMOTE / _REMOTED
    remoted = str(beside) if beside.exists() else shutil.which("pacemaker-remoted")
    said = subprocess.run(["pacemakerd", "--version"], capture_output=True, text=True, check=False).stdout
    return Release(_version(said), None, remoted)


def unpacked(asked_for: str) -> Release:
    """Return the Pacemaker of a release of Debian, or of this version, which is fetched the first time.

    Raises LabError when there is no such release, when it cannot be fetched, or when it has another version by now.
    """
    suite = SUITES.get(asked_for, asked_for)
    if suite not in SUITES.values():
        known = [*SUITES.values(), *SUITES]
        raise LabError(f"release: {asked_for}", f"one of {', '.join(known)}")
    kept = _CHECKOUT / ".cache" / "releases"
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / f"{suite}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another lab may be fetching it
        wanted = asked_for if asked_for in SUITES else "*"
        found = sorted(kept.glob(f"{suite}-{wanted}")) or [_fetch(suite, kept)]
    root = found[-1]
    version = root.name.removeprefix(f"{suite}-")
    if asked_for in SUITES and version != asked_for:
        raise LabError(
            f"release: {asked_for}: {suite} has {version} now", f"{suite}, or a release that has it"
        )
    return Release(version, root, f"/opt/{_REMOTE}/{_REMOTED}")


def _fetch(suite: str, kept: Path) -> Path:
    with _work(kept, suite) as work:
        apt = Apt(suite, work)
        apt.update()
        wanted = (*_ESSENTIAL, *PACKAGES)
        say(f"pacemaker of {suite}: fetching {in_mb(apt.size_of(*wanted))} into {kept}")
        packages = apt.fetch(*wanted)
        root = work / "root"
        for path in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64"):
            (root / path).mkdir(parents=True)
            (root / Path(path).name).symlink_to(
                path
            )  # first, as the packages of some releases do not expect it
        for package in packages:
            unpack(package, root)
        (root / "opt" / _REMOTE).mkdir(parents=True)
        unpack(apt.fetch_alone(_REMOTE), root / "opt" / _REMOTE)
        _finish(root)
        said = run(["chroot", str(root), "/usr/sbin/pacemakerd", "--version"])
        return root.rename(kept / f"{suite}-{_version(said)}")


@contextmanager
def _work(kept: Path, suite: str) -> Generator[Path]:
    """A directory beside the roots, so that a root moves in one step. It is removed."""
    with tempfile.TemporaryDirectory(prefix=f"{suite}.", dir=kept, ignore_cleanup_errors=True) as work:
        yield Path(work)


def _finish(root: Path) -> None:
    """Make what maintainer scripts would have made, as far as Pacemaker needs it."""
    for name in ("passwd", "group"):
        shutil.copy(root / "usr/share/base-passwd" / f"{name}.master", root / "etc" / name)
    with (root / "etc/passwd").open("a") as users, (root / "etc/group").open("a") as groups:
        users.write(f"hacluster:x:{_ID}:{_ID}::/var/lib/pacemaker:/usr/sbin/nologin\n")
        groups.write(f"haclient:x:{_ID}:\n")
    (root / "etc/shadow").touch(0o640)
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    for name, to in (("awk", "mawk"), ("sh", "dash")):
        if not (root / "usr/bin" / name).exists():
            (root / "usr/bin" / name).symlink_to(to)
    for path in ("proc", "sys", "run", "tmp", "dev", "etc/corosync", "etc/pacemaker", "var/lib/pacemaker"):
        (root / path).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    run(["chroot", str(root), "/usr/sbin/ldconfig"])


def _version(said: str) -> str:
    found = re.search(r"Pacemaker (\d+(?:\.\d+)+)", said)
    if found is None:
        raise LabError(f"pacemakerd --version: {said!r}", "Pacemaker 2.0 or later")
    return found[1]


def main(releases: list[str]) -> int:
    """Fetch the roots of releases that are not there yet; returns the exit code."""
    try:
        for release in releases:
            unpacked(release)
    except LabError as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
