"""What systemd says of unit files, where there is one to ask."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze"
)


def misunderstood(units: Mapping[str, str], place: Path) -> list[str]:
    """What systemd does not know in these unit files, by name, and would ignore; they are laid down in a new place."""
    place.mkdir()
    for name, text in units.items():
        # That the programs are there is another machine's matter.
        text = re.sub(r"^(ExecStart(Pre)?)=\S+", r"\1=/bin/true", text, flags=re.MULTILINE)
        (place / name).write_text(text)
    said = _analyze("verify", "--man=no", *sorted(place.iterdir())).stderr
    ours = (str(place), *(Path(name).stem for name in units))
    return [line for line in said.splitlines() if any(name in line for name in ours)]


def exposure(unit: Path) -> float:
    """How exposed systemd rates a service, from 0 to 10."""
    done = _analyze("security", "--offline=true", "--no-pager", unit)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stderr
    return float(found[1])


def _analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=600)
