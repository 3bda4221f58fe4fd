"""What a run that was killed leaves on a controller is removed, though its removal is killed as well.

    .venv/bin/python tests/benchmarks/bench_clean.py [--share 1/16]

The units of `juju-leases` at its own size, 16,000 leases of 3 units, are made in somebody else's model on a SIMULATED
controller. This is a figure about us, and never about Juju. The run is killed when its load begins. `tippingpoint
clean` is killed as soon as some of the units are gone, and a second one has to remove the rest. It prints a row of a
Markdown table: how many units there were, and were left by each. CPU-seconds and memory are of the second clean.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY))

from lab.juju.simulator import JujuLab  # noqa: E402
from tests.benchmarks.watched_run import program, used_by  # noqa: E402
from tests.functional.juju.juju_runs import make_theirs  # noqa: E402
from tippingpoint.rundir.results import load_run  # noqa: E402

THEIRS = "theirs"
PUBLISHED = 16_000
COLUMNS = (
    "share", "units", "run killed after", "left by the clean that was killed", "removed by the second", "left", "took",
    "CPU", "peak memory",
)  # fmt: skip


def units_in(lab: JujuLab) -> int:
    """How many units there are on the controller."""
    return lab.ask({"do": "counts"})["units"]


def start(command: list[str]) -> subprocess.Popen[bytes]:
    """Begin a command of ours, in a group of its own with its workers."""
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, stdin=quiet, stdout=quiet, cwd=REPOSITORY, start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a command of ours with its workers."""
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def has_begun(out: Path, process: subprocess.Popen[bytes]) -> Path:
    """Wait until a run's load begins; its directory."""
    while process.poll() is None:
        for directory in out.iterdir():
            if any('"phase":"begin"' in journal.read_text() for journal in directory.glob("worker-*.jsonl")):
                return directory
        time.sleep(0.5)
    raise SystemExit(f"the run ended with {process.returncode} before its load began")


def measure(share: Fraction, out: Path) -> list[str]:
    """Make, kill, clean, kill, and clean; the cells of a row."""
    with JujuLab() as lab:
        make_theirs(lab, THEIRS)
        others = units_in(lab)
        began = time.monotonic()
        settings = [f"target.credentials={lab.credentials}", f"target.model={THEIRS}", "workers=4"]
        settings.append(f"stages=[{{leases: {int(PUBLISHED * share)}, over: 10m, hold: 1s}}]")
        run = start(
            program(
                "run",
                "juju-leases",
                *(word for each in settings for word in ("--set", each)),
                "--out",
                str(out),
            )
        )
        directory = has_begun(out, run)
        kill(run)
        lasted = time.monotonic() - began
        made = units_in(lab) - others
        cleaning = start(program("clean", str(directory)))
        left = made
        while cleaning.poll() is None and left == made:
            left = units_in(lab) - others
        kill(cleaning)
        left = units_in(lab) - others
        again = used_by(program("clean", str(directory)))
        remain = units_in(lab) - others
    assert load_run(directory).manifest.status == "cut"
    return [
        str(share),
        f"{made:,}",
        f"{lasted:.0f} s",
        f"{left:,}",
        again.told.splitlines()[-1],
        f"{remain:,}",
        f"{again.seconds:.0f} s",
        f"{again.cpu_s:.1f} s",
        f"{again.peak_mib:.0f} MiB",
    ]


def main() -> None:
    """Print a row."""
    parser = argparse.ArgumentParser(description="What a killed clean leaves, and the next one removes.")
    parser.add_argument("--share", type=Fraction, default=Fraction(1, 16))
    with tempfile.TemporaryDirectory(prefix="bench-clean-") as out:
        cells = measure(parser.parse_args().share, Path(out))
    for line in (COLUMNS, ["---"] * len(COLUMNS), cells):
        print(f"| {' | '.join(line)} |")


if __name__ == "__main__":
    main()
