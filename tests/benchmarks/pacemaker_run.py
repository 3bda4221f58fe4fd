"""A whole run of ours on a lab of Pacemaker, for benchmarks."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from lab.pacemaker.cluster import PacemakerLab
from tests.benchmarks.sides import REPOSITORY
from tippingpoint.rundir.results import RunData, load_run


def whole_run(lab: PacemakerLab, plan: str | Path) -> RunData:
    """A plan's whole run on a lab, as it was measured."""
    with tempfile.TemporaryDirectory() as out:
        settings = [word for setting in lab.settings() for word in ("--set", setting)]
        command = [sys.executable, "-m", "tippingpoint", "run", str(plan), *settings, "--out", out]
        subprocess.run(
            command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=REPOSITORY
        )
        (directory,) = Path(out).iterdir()
        return load_run(directory)
