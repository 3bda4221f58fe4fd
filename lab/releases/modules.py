"""Builds the etcd of a version from its Go modules, for versions that no suite has."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from lab.control import LabError
from lab.releases.room import MB, check_room

_SERVER = "go.etcd.io/etcd/server/v3"
_ROOM = 1500 * MB
"""Bytes of modules and of Go's caches while etcd is built. They are removed afterwards."""
BUILT = 30 * MB
"""Bytes of the program that is built, at most."""
_PATCH = re.compile(r"v(\d+)\.(\d+)\.(\d+)")


def build(asked_for: str, work: Path) -> Path:
    """Build etcd 3.5 or later in a directory, and return the program. A short version means its latest patch.

    LabError without `go`, without room, or when Go's proxy does not have the version.
    """
    if shutil.which("go") is None:
        raise LabError(f"release: etcd {asked_for}: built from Go modules: go: not found", "`go` on PATH")
    check_room(f"release: etcd {asked_for}", work, _ROOM)
    go = _Go(work, asked_for)
    version = asked_for if asked_for.count(".") > 1 else go.latest()
    # etcd's modules have replace directives, for which `go install` refuses them. They do not count for a dependency.
    go.run("mod", "init", "release")
    go.run("get", f"{_SERVER}@v{version}")
    program = work / "etcd"
    go.run("build", "-trimpath", "-ldflags=-s -w", "-o", str(program), _SERVER)
    return program


class _Go:
    """Go, with a module and caches of its own below a directory."""

    def __init__(self, work: Path, asked_for: str) -> None:
        self._asked_for = asked_for
        self._module = work / "module"
        self._module.mkdir()
        self._environment = {
            **os.environ,
            "CGO_ENABLED": "0",
            "GOCACHE": str(work / "go-cache"),
            "GOFLAGS": "-mod=mod -modcacherw",
            "GOPATH": str(work / "go"),
            "GOTOOLCHAIN": "local",
        }

    def latest(self) -> str:
        """The latest patch of the version, such as 3.6.16 for 3.6."""
        listed = self.run("list", "-m", "-versions", _SERVER).split()
        numbers = [tuple(map(int, found.groups())) for one in listed if (found := _PATCH.fullmatch(one))]
        meant = [one for one in numbers if ".".join(map(str, one)).startswith(f"{self._asked_for}.")]
        if not meant:
            raise self._problem("Go's proxy has no such version")
        return ".".join(map(str, max(meant)))

    def run(self, *arguments: str) -> str:
        """Run it. Raises LabError with its last line when it fails."""
        ran = subprocess.run(
            ["go", *arguments],
            cwd=self._module,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode != 0:
            raise self._problem(" ".join(ran.stderr.strip().splitlines()[-1:]))
        return ran.stdout

    def _problem(self, problem: str) -> LabError:
        return LabError(f"release: etcd {self._asked_for}: {problem}", "a version that Go's proxy has")
