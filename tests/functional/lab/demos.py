"""The demo as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.functional.program import CHECKOUT, WITHIN_S
from tippingpoint.rundir.results import RunData, load_run


def demo(target: str, out: Path, *settings: str, **environment: str) -> tuple[str, RunData]:
    """What it says, and the run that it made."""
    command = [sys.executable, "-m", "lab.demo", target, f"--out={out}"]
    command += [f"--set={setting}" for setting in settings]
    done = subprocess.run(
        command,
        cwd=CHECKOUT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (manifest,) = out.glob("*/manifest.json")
    return done.stdout + done.stderr, load_run(manifest.parent)
