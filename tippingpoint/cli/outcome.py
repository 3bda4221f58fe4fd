"""The outcome of a run: its verdict and its report, once it has ended."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.cli.page import keep_report
from tippingpoint.cli.run_names import LAST, RUNS
from tippingpoint.errors import UserError
from tippingpoint.report import render_report
from tippingpoint.report.document import build_document
from tippingpoint.report.formats.terminal import render_end
from tippingpoint.report.sections.totals import build_totals
from tippingpoint.rundir.held import HeldDirectory
from tippingpoint.rundir.results import load_run

WIDE = 120
"""Columns of output that does not go to a terminal."""


class Outcome:
    """The outcome of the run in a directory. Creating it writes the report."""

    def __init__(self, directory: Path, *, as_json: bool) -> None:
        """Write the report; raises UserError if the directory is gone."""
        try:
            held = HeldDirectory.open(directory)
        except OSError as problem:
            accepted = f"the run's directory, as the run left it ({problem.strerror})"
            raise UserError("--out", str(directory), accepted) from None
        self._analysis = analyse(load_run(directory))
        self._document = build_document(self._analysis)
        self._page = keep_report(self._analysis.run, render_report(self._document, "html"), held)
        self._as_json = as_json
        held.close()

    @property
    def exit_code(self) -> int:
        """The verdict's exit code."""
        return self._analysis.verdict.exit_code

    def show(self) -> None:
        """Print the result. The exit code is the run's even if printing fails."""
        with contextlib.suppress(OSError):
            if self._as_json:
                sys.stdout.write(render_report(self._document, "json"))
            else:
                console = Console()
                width = console.width if console.is_terminal else WIDE
                lines = render_end(self._document, build_totals(self._analysis.run), width)
                print_lines(console, [*lines, Text(""), *_last_lines(self._analysis, self._page)])
            sys.stdout.flush()


def print_lines(console: Console, lines: Sequence[Text]) -> None:
    """Print lines on standard output: wrapped between words on a terminal, unchanged elsewhere."""
    with console.capture() as captured:
        for line in lines:
            copied = line.plain.startswith(("report: ", "next: "))  # a path or a command: not wrapped
            console.print(line, highlight=False, soft_wrap=copied or not console.is_terminal)
    sys.stdout.write(captured.get())


def _last_lines(analysis: Analysis, page: Path | None) -> list[Text]:
    """How the run ended if it ended early, where its report is, and which command comes next."""
    run = analysis.run
    manifest = run.manifest
    where = page or f"no room for it; make one with tippingpoint report {run.directory}"
    early = [Text(f"{manifest.status}: {manifest.reason}")] if manifest.reason else []
    command, why = _next_command(analysis)
    said = [Text(f"        ({why})")] if why else []
    return [*early, Text(f"report: {where}"), Text(f"next:   {command}"), *said]


def _next_command(analysis: Analysis) -> tuple[str, str]:
    """The command that follows this run, to clean up, to continue, or to open its report; and what it does, if its name
    does not say that."""
    run = analysis.run
    left = next((event["remedy"] for event in reversed(run.events) if event["event"] == "left-behind"), None)
    if left is not None:
        return left, "removes what the run left"
    plan = analysis.findings.plan
    if run.manifest.status in ("interrupted", "cut") and plan is not None and plan.find is not None:
        return f"tippingpoint resume {run.directory}", "continues the search"
    is_last = run.directory == RUNS / run.manifest.id
    return f"tippingpoint open {LAST if is_last else run.directory}", ""
