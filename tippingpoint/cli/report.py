"""`tippingpoint report`: print a run's report."""

from __future__ import annotations

import argparse
import sys

from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.compare.named import load_named
from tippingpoint.errors import UserError
from tippingpoint.report import write_report
from tippingpoint.util.exit_codes import MET


def do(options: argparse.Namespace) -> int:
    """Run the command; returns the exit code."""
    run = load_named(options.run)
    if run is None:
        raise UserError(
            "run", options.run, "a run: this baseline has figures only (tippingpoint baselines NAME)"
        )
    analysis = analyse(run)
    asked = options.format or ("text" if sys.stdout.isatty() else "md")
    if asked == "text":
        _print_text(analysis)
    else:
        sys.stdout.write(write_report(analysis, asked))
    sys.stdout.flush()
    return MET


def _print_text(analysis: Analysis) -> None:
    from rich.console import Console

    from tippingpoint.cli.outcome import WIDE, print_lines
    from tippingpoint.report.document import build_document
    from tippingpoint.report.formats.terminal import render_report
    from tippingpoint.report.sections.totals import build_totals

    console = Console()
    width = console.width if console.is_terminal else WIDE
    print_lines(console, render_report(build_document(analysis), build_totals(analysis.run), width))
