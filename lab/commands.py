"""Runs commands of tippingpoint as processes of their own, as if started by a user, on private targets."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from lab.control import LabError
from lab.prometheus import PrometheusLab
from lab.tether import tethered
from tippingpoint.rundir.manifest import FILE

MEASURED = (0, 1, 4)
"""Exit codes of a run that measured something: met, missed, withheld."""


def call(*arguments: str, into: int | None = None, lines: int | None = None) -> int:
    """Run a command of tippingpoint, and print at most the first `lines` of its output; returns its exit code."""
    command = _command(*arguments)
    if lines is None:
        return subprocess.run(command, stdout=into, check=False).returncode
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print("\n".join(done.stdout.splitlines()[:lines]))
    return done.returncode


def _command(*arguments: str) -> list[str]:
    return tethered([str(Path(sys.executable).with_name("tippingpoint")), *arguments], signal.SIGINT)


def run_on(prometheus: PrometheusLab, plan: str, out: Path, settings: Sequence[str]) -> Path:
    """Run a plan, collect the figures of the target, and return the directory that the run says is its own.

    Others may begin runs in `out` meanwhile. Raises LabError if nothing was measured.
    """
    command = _command("run", plan, f"--out={out}", *(f"--set={one}" for one in settings))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            made = directory_said(process.stdout or (), out)
        except BaseException:
            process.send_signal(signal.SIGINT)  # whoever ends this, ends the run
            raise
    if process.returncode not in MEASURED or made is None:
        raise LabError(f"{plan}: exit code {process.returncode}", "a run that measured something")
    call("collect", str(made), f"--prometheus={prometheus.url}")
    return made


def directory_said(lines: Iterable[str], out: Path) -> Path | None:
    """Return the directory of a run in `out`, by the lines that the run writes; None if they do not say it.

    All lines are read, and printed as they come. The last one names the report: beside the run's journals, by the run's
    id in another directory if there was no room, or with the command that makes one.
    """
    made = None
    for line in lines:
        print(line, end="", flush=True)
        head, _, where = line.rstrip("\n").partition("report: ")
        if head or not where:
            continue
        page = Path(where)
        beside = Path(where.rpartition("tippingpoint report ")[2]) if page.suffix != ".html" else page.parent
        made = next((path for path in (beside, out / page.stem) if (path / FILE).exists()), None)
    return made


def write_page(page: Path, *arguments: str) -> int:
    """Compare runs, print the result, and write it as a page; returns 0, or the exit code of what failed.

    A page that is there already is replaced by a whole one, or stays. Where the comparison fails, the command that
    compares the runs is printed.
    """
    beside = page.with_name(f".{page.name}.{os.getpid()}.new")
    try:
        with beside.open("wb") as file:
            code = call("compare", *arguments, "--format=html", into=file.fileno())
        if code not in (0, 1):
            print(f"{page.name} is not written. The runs are kept, and this compares them:")
            print(f"  {compare_words(arguments)}")
            return code
        beside.replace(page)
    finally:
        beside.unlink(missing_ok=True)
    call("compare", *arguments, "--format=md", lines=3)
    print(f"the page is {page.resolve()}")
    return 0


def compare_words(arguments: Sequence[str]) -> str:
    """Return the command line that compares runs, as a user would type it."""
    return shlex.join([".venv/bin/tippingpoint", "compare", *arguments])
