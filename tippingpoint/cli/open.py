"""`tippingpoint open`: show a run's report in a browser."""

from __future__ import annotations

import argparse
import webbrowser
from pathlib import Path

from tippingpoint.cli.page import FILE, keep_report
from tippingpoint.errors import UserError
from tippingpoint.util.exit_codes import MET


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    page = options.run / FILE
    if not page.is_file():
        page = _made(options.run)
    print(f"report: {page}")
    webbrowser.open(page.resolve().as_uri())
    return MET


def _made(directory: Path) -> Path:
    """Write the report of a run that has none because its runner was killed."""
    from tippingpoint.analysis.analyse import analyse
    from tippingpoint.report import write_report
    from tippingpoint.rundir.held import HeldDirectory
    from tippingpoint.rundir.results import load_run

    run = load_run(directory)
    held = HeldDirectory.open(directory, follow=True)
    page = keep_report(run, write_report(analyse(run), "html"), held)
    held.close()
    if page is None:
        raise UserError("run", str(directory), "a directory with free disk space for its report")
    return page
