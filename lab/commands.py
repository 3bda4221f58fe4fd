"""Runs commands of tippingpoint as processes of their own, as if started by a user, on private targets."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab.control import LabError
from lab.prometheus import PrometheusLab
from lab.tether import tethered

MEASURED = (0, 1, 4)
"""Exit codes of a run that measured something: met, missed, withheld."""


def call(*arguments: str, into: int | None = None, lines: int | None = None) -> int:
    """Run a command of tippingpoint, and print at most the first `lines` of its output; returns its exit code."""
    command = tethered([str(Path(sys.executable).with_name("tippingpoint")), *arguments], signal.SIGINT)
    if lines is None:
        return subprocess.run(command, stdout=into, check=False).returncode
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print("\n".join(done.stdout.splitlines()[:lines]))
    return done.returncode


def run_on(prometheus: PrometheusLab, plan: str, out: Path, settings: Sequence[str]) -> Path:
    """Run a plan, collect the figures of the target, and return the run's directory.

    Raises LabError if nothing was measured.
    """
    before = set(_runs(out))
    code = call("run", plan, f"--out={out}", *(f"--set={one}" for one in settings))
    made = [run for run in _runs(out) if run not in before]
    if code not in MEASURED or not made:
        raise LabError(f"{plan}: exit code {code}", "a run that measured something")
    call("collect", str(made[-1]), f"--prometheus={prometheus.url}")
    return made[-1]


def write_page(page: Path, *arguments: str) -> int:
    """Compare runs, print the result, and write it as a page; returns 0, or the exit code of what failed."""
    with page.open("wb") as file:
        code = call("compare", *arguments, "--format=html", into=file.fileno())
    if code not in (0, 1):
        return code
    call("compare", *arguments, "--format=md", lines=3)
    print(f"the page is {page.resolve()}")
    return 0


def _runs(directory: Path) -> list[Path]:
    return sorted(manifest.parent for manifest in directory.glob("*/manifest.json"))
