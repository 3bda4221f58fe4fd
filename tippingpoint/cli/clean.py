"""`tippingpoint clean`: remove what a run left in its target."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from pathlib import Path

from tippingpoint.errors import UserError
from tippingpoint.run.cleaning import clean_run
from tippingpoint.run.progress import ConsoleProgress
from tippingpoint.rundir.ledger import entries
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.util.exit_codes import MET

_PATIENCE = 1.0
"""Seconds that cleaning may take before a line says that it goes on."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments and options of the command."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the run's directory")


def do(options: argparse.Namespace) -> int:
    """Carry it out; returns the exit code."""
    manifest = Manifest.load(options.run)
    if manifest.status == "running":
        raise UserError(
            "run",
            str(options.run),
            f"one that has ended: it is still running (process {manifest.pid}); end it first",
        )
    removed = asyncio.run(_clean_patiently(options.run))
    print(f"removed {removed}")
    return MET


async def _clean_patiently(directory: Path) -> int:
    """Clean up a run. Where that takes a while, print what is being removed."""
    progress = ConsoleProgress()
    cleaning = asyncio.create_task(clean_run(directory, progress.removing))
    await asyncio.wait([cleaning], timeout=_PATIENCE)
    if not cleaning.done():
        made = [entry.described for entry in entries(directory)]
        with contextlib.suppress(OSError):  # cleaning goes on though standard error is closed
            print(f"tippingpoint: removing {', '.join(made)}, which may take minutes", file=sys.stderr)
    try:
        return await cleaning
    finally:
        progress.close()
