"""The program of etcd that a lab runs, and what differs between its releases."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.control import LabError
from lab.releases.find import find

_CHECKOUT = Path(__file__).resolve().parents[2]
_GATE = re.compile(r"^\s+(\w+)=true\|false", re.MULTILINE)


@dataclass(frozen=True)
class Flavor:
    """What a release has."""

    apis: tuple[str, ...]
    """The APIs by which the suite loads it; see `target.api`."""
    gateway: str
    """The path of the JSON gateway to the v3 API."""
    options: tuple[str, ...]
    """Options of its members: less is logged, and the v2 API is on where it has to be asked for."""
    gates: tuple[str, ...]
    """Its feature gates, from 3.6 on."""


def find_etcd(release: str | None = None) -> Path:
    """Find etcd: of a release (a suite or version), or $TIPPINGPOINT_ETCD, `etcd` on PATH, or the one in .cache/bin."""
    if release is not None:
        return find("etcd", release).program("usr/bin/etcd")
    named = os.environ.get("TIPPINGPOINT_ETCD")
    if named and not os.access(named, os.X_OK):
        raise LabError(f"TIPPINGPOINT_ETCD: {named}", "an executable etcd")
    cached = _CHECKOUT / ".cache" / "bin" / "etcd"
    found = named or shutil.which("etcd") or (cached if cached.exists() else None)
    if found is None:
        raise LabError(
            "etcd: not found",
            "etcd on PATH, $TIPPINGPOINT_ETCD, or the one ./scripts/lab or ./scripts/test fetches",
        )
    return Path(found).absolute()


@functools.cache
def flavor(binary: Path) -> Flavor:
    """What differs in this etcd, by its own help."""
    said = subprocess.run([binary, "--help"], capture_output=True, text=True, check=False)
    options = said.stdout + said.stderr  # 3.3 prints it as an error
    if "--log-level" not in options:
        return Flavor(("v2",), "/v3beta", (), ())  # 3.3, whose v2 API is on by itself
    if "--enable-v2" not in options:
        return Flavor(("v3",), "/v3", ("--log-level=error",), tuple(_GATE.findall(options)))  # 3.6 or later
    return Flavor(("v3", "v2"), "/v3", ("--log-level=error", "--enable-v2"), ())
