"""The outcome of a run: its verdict and its report, once it has ended."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.cli.page import keep_report
from tippingpoint.errors import UserError
from tippingpoint.report import render_report
from tippingpoint.report.document import build_document
from tippingpoint.rundir.held import HeldDirectory
from tippingpoint.rundir.results import load_run

_COLOURS = {"met": "green", "missed": "red", "withheld": "yellow", "failed": "red"}


def print_outcome(directory: Path, *, as_json: bool) -> int:
    """Write the report of the run in a directory and print the result; returns the verdict's exit code."""
    try:
        held = HeldDirectory.open(directory)
    except OSError as problem:
        accepted = f"the run's directory, as the run left it ({problem.strerror})"
        raise UserError("--out", str(directory), accepted) from None
    analysis = analyse(load_run(directory))
    document = build_document(analysis)
    page = keep_report(analysis.run, render_report(document, "html"), held)
    held.close()
    said = render_report(document, "json") if as_json else _said(analysis, page)
    with contextlib.suppress(OSError):  # the exit code is the run's even where the output failed
        sys.stdout.write(said)
        sys.stdout.flush()
    return analysis.verdict.exit_code


def _said(analysis: Analysis, page: Path | None) -> str:
    """The result of a run in a few lines for people; coloured on a terminal."""
    run, verdict = analysis.run, analysis.verdict
    colour = _COLOURS[verdict.outcome]
    where = page or f"no room for it; make one with tippingpoint report {run.directory}"
    lines = [
        f"[bold {colour}]{verdict.outcome}[/]  {escape(verdict.sentence)}",
        escape(analysis.tipping.sentence),
        *(escape(cause.sentence) for cause in analysis.causes if cause.load is not None),
        *map(escape, analysis.profiled.sentences if analysis.profiled is not None else ()),
        *([escape(f"{run.manifest.status}: {run.manifest.reason}")] if run.manifest.reason else []),
        escape(f"report: {where}"),
    ]
    console = Console()
    with console.capture() as captured:
        console.print("\n".join(lines), highlight=False, soft_wrap=True)
    return captured.get()
