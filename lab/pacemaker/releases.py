"""Finds the Pacemaker that a lab runs: this machine's, or another release's (see lab/releases/).

Nodes have the root file system of a release as the lower layer of their own root.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.control import LabError
from lab.releases.find import find

_PROGRAMS = ("corosync", "pacemakerd", "cibadmin", "crm_attribute")
_REMOTE = "pacemaker-remote"
"""Pacemaker's package of remote nodes. It conflicts with `pacemaker`, so that it is unpacked beside it."""
_REMOTED = "usr/sbin/pacemaker-remoted"
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
    """Return the Pacemaker of a suite or a version, which is fetched the first time. LabError as `find` raises it."""
    found = find("pacemaker", asked_for)
    return Release(found.version, found.path, f"/opt/{_REMOTE}/{_REMOTED}")


def _version(said: str) -> str:
    found = re.search(r"Pacemaker (\d+(?:\.\d+)+)", said)
    if found is None:
        raise LabError(f"pacemakerd --version: {said!r}", "Pacemaker 2.0 or later")
    return found[1]
