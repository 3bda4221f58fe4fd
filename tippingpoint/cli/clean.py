"""`tippingpoint clean`: remove what a run left in its target."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from tippingpoint.errors import UserError
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.util.exit_codes import MET

_PATIENCE = 1.0
"""Seconds of cleaning after which a line says that it is still going on."""


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    manifest = Manifest.load(options.run)
    if manifest.status == "running":
        raise UserError(
            "run",
            str(options.run),
            f"one that has ended: it is still running (process {manifest.pid}); end it first",
        )
    # A directory without a run is refused before anything large is imported.
    import asyncio

    removed = asyncio.run(_clean_patiently(options.run))
    print(f"removed {removed}")
    return MET


async def _clean_patiently(directory: Path) -> int:
    """Clean up a run. If that takes a while, print what is being removed."""
    import asyncio

    from tippingpoint.play.cleaning import clean_run
    from tippingpoint.play.progress import ConsoleProgress
    from tippingpoint.rundir.ledger import entries

    progress = ConsoleProgress()
    cleaning = asyncio.create_task(clean_run(directory, progress.removing))
    await asyncio.wait([cleaning], timeout=_PATIENCE)
    if not cleaning.done():
        made = [entry.described for entry in entries(directory)]
        with contextlib.suppress(OSError):  # cleaning goes on even if standard error is closed
            print(f"tippingpoint: removing {', '.join(made)}, which may take minutes", file=sys.stderr)
    try:
        return await cleaning
    finally:
        progress.close()
