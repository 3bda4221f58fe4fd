"""apt-get of another suite of Debian, with lists and packages of its own, and how its packages are unpacked.

apt verifies what it fetches by the keyring of Debian's archive.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from lab.control import LabError
from lab.releases.room import MB, check_room

LISTS = 150 * MB
"""Bytes that the lists of a suite take while they are read; 20 MB of them are fetched."""
_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_UNUSED = (
    *(f"./usr/share/{name}/*" for name in ("doc", "man", "locale", "info", "lintian")),
    "./usr/lib/locale/[a-z]*",  # of locales-all: over 200 MB; C.UTF-8 stays
)
_GROWTH = 8
"""How many times its size a package takes at most, while it is unpacked, compiled and compressed. Measured were 3.9 to
7.6."""


class Apt:
    """The packages of a suite, with all of apt's files below a directory."""

    def __init__(self, suite: str, work: Path) -> None:
        if not _KEYRING.exists():
            raise LabError(
                f"release: {suite}: {_KEYRING}: not there", "Debian, with its package debian-archive-keyring"
            )
        self.archives = work / "cache" / "archives"
        for path in (self.archives / "partial", work / "lists" / "partial", work / "state"):
            path.mkdir(parents=True)
        (work / "state" / "status").touch()
        sources = work / "sources.list"
        sources.write_text(f"deb [signed-by={_KEYRING}] {_mirror()} {suite} main\n")
        settings = {
            "APT::Sandbox::User": "root",
            "APT::Install-Recommends": "false",
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "Dir::Etc::SourceList": sources,
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::Etc::Preferences": "/dev/null",
            "Dir::Etc::PreferencesParts": "/dev/null",
            "Dir::State": work / "state",
            "Dir::State::Lists": work / "lists",
            "Dir::State::Status": work / "state" / "status",
            "Dir::Cache": work / "cache",
            "Dir::Cache::pkgcache": "",
            "Dir::Cache::srcpkgcache": "",
        }
        self.suite = suite
        self._work = work
        self._options = [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]

    def update(self) -> None:
        """Read the suite's lists."""
        check_room(f"release: {self.suite}", self._work, LISTS)
        self._run("update")

    def size_of(self, *packages: str, alone: bool = False) -> int:
        """The bytes to be fetched for packages, with those that they depend on unless `alone`. Checks for room."""
        listed = self._run("--print-uris", *(["download"] if alone else ["--yes", "install"]), *packages)
        size = sum(int(found) for found in re.findall(r"^'\S+' \S+ (\d+)", listed, re.MULTILINE))
        check_room(f"release: {self.suite}", self._work, _GROWTH * size)
        return size

    def fetch(self, *packages: str) -> list[Path]:
        """Fetch packages and all that they depend on."""
        self._run("install", "--yes", "--download-only", *packages)
        return sorted(self.archives.glob("*.deb"))

    def fetch_alone(self, package: str) -> Path:
        """Fetch one package."""
        self._run("download", package)
        return next(self._work.glob(f"{package}_*.deb"))

    def version_of(self, package: str) -> str:
        """The upstream version of a package that was fetched, such as 6.0.4 of 6.0.4-2+deb13u12."""
        (archive,) = self.archives.glob(f"{package}_*.deb")
        told = run(["dpkg-deb", "-f", str(archive), "Version"]).strip()
        return told.rpartition(":")[2].rpartition("-")[0] or told

    def _run(self, *arguments: str) -> str:
        """Run apt-get. Raises LabError with its last line when it fails."""
        return run(["apt-get", "-qq", *self._options, *arguments], self._work)


def unpack(package: Path, root: Path) -> None:
    """Unpack one package. Only tar keeps links to directories as they are; dpkg-deb -x replaces them."""
    command = ["tar", "-x", "-C", str(root), "--keep-directory-symlink", "--numeric-owner"]
    command += [f"--exclude={path}" for path in _UNUSED]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as reading:
        unpacking = subprocess.run(command, stdin=reading.stdout, capture_output=True, text=True, check=False)
    if reading.returncode != 0 or unpacking.returncode != 0:
        raise LabError(f"{package.name}: {unpacking.stderr or 'not a package'}", "room to unpack it")


def run(command: list[str], work: Path | None = None) -> str:
    """Run a program, and return what it prints. Raises LabError with its last line when it fails."""
    try:
        ran = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise LabError(f"{command[0]}: not found", "Debian") from None
    if ran.returncode != 0:
        said = (ran.stderr or ran.stdout).strip().splitlines()[-1:]
        raise LabError(f"{command[0]}: {' '.join(said)}", "a mirror of Debian within reach")
    return ran.stdout


def _mirror() -> str:
    """The mirror of Debian in the machine's own sources."""
    uris = run(["apt-get", "--print-uris", "update"])
    found = re.search(r"^'(\S+/debian/)dists/", uris, re.MULTILINE)
    if found is None:
        raise LabError("release: no mirror of Debian", "one in the machine's sources of packages")
    return found[1]
