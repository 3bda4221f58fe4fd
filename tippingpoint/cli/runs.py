"""`tippingpoint runs`: list the runs in a directory."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from rich.console import Console
from rich.progress import track

from tippingpoint.analysis.analyse import analyse
from tippingpoint.cli.run_names import check_runs, run_ids
from tippingpoint.cli.tables import print_table
from tippingpoint.errors import UserError
from tippingpoint.report.figures import amount
from tippingpoint.rundir.manifest import Manifest
from tippingpoint.rundir.results import load_run
from tippingpoint.util.exit_codes import MET
from tippingpoint.util.text import show_size

_NEWEST = 20
"""How many runs are judged and listed. Each takes a fifth of a second."""


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    directory: Path = options.directory
    check_runs("DIR", directory)
    ids = run_ids(directory)
    if not ids:
        raise UserError("DIR", str(directory), "a directory with runs; this one has none")
    console = Console(stderr=True)
    newest = ids[-_NEWEST:]
    followed = track(newest, "reading runs", console=console, transient=True, disable=not console.is_terminal)
    print_table(
        ("run", "target", "began", "verdict", "tips at"), [_row(directory / name) for name in followed]
    )
    if len(ids) > len(newest):
        print(f"and {len(ids) - len(newest)} older ones")
    return MET


def _row(directory: Path) -> tuple[str, ...]:
    """Return the row of a run; for a running or unreadable one, it has what is known."""
    try:
        manifest = Manifest.load(directory)
    except UserError:
        return directory.name, "–", "–", "cannot be read", "–"
    target = f"{manifest.target.kind} {manifest.target.version}".strip()
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(manifest.started))
    if manifest.status == "running":
        return directory.name, target, began, "running", "–"
    try:
        analysis = analyse(load_run(directory))
    except UserError:
        return directory.name, target, began, "cannot be read", "–"
    point, tips = analysis.tipping.point, "–"
    if point is not None:
        first = amount(point.first_beyond, manifest.load_unit)
        tips = first if point.last_held is None else f"{show_size(point.last_held)} to {first}"
    return directory.name, target, began, analysis.verdict.label, tips
