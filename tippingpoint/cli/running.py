"""Running a plan from the command line, from its first stage or the one it was cut in, to its report."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import uvloop
from rich.console import Console
from rich.markup import escape

from tippingpoint.analysis.analyse import Analysis, analyse
from tippingpoint.cli.page import keep_report
from tippingpoint.plan.read import Plan
from tippingpoint.report import render_report
from tippingpoint.report.document import build_document
from tippingpoint.run.progress import ConsoleProgress
from tippingpoint.run.resume import TakenUp
from tippingpoint.run.runner import Runner
from tippingpoint.rundir.results import load_run

RUNS = Path("runs")
"""Where runs are kept unless it is said."""
_COLOURS = {"met": "green", "missed": "red", "withheld": "yellow", "failed": "red"}


def add_run_options(command: argparse.ArgumentParser) -> None:
    """The options that all have which run a plan."""
    command.add_argument("--out", type=Path, default=RUNS, metavar="DIR", help="where runs are kept (./runs)")
    command.add_argument("--json", action="store_true", help="print the report as JSON on standard output")
    command.add_argument("--force", action="store_true", help="try what the target says it has no room for")


def run_to_report(plan: Plan, options: argparse.Namespace, taken_up: TakenUp | None) -> int:
    """Run it, or go on with what was taken up, and print what it came to; returns the verdict's exit code."""
    directory = uvloop.run(_run_plan(plan, options, taken_up))
    analysis = analyse(load_run(directory))
    document = build_document(analysis)
    page = keep_report(analysis.run, render_report(document, "html"))
    said = render_report(document, "json") if options.json else _said(analysis, page)
    with contextlib.suppress(OSError):  # whatever became of our output, the exit code is the run's
        sys.stdout.write(said)
        sys.stdout.flush()
    return analysis.verdict.exit_code


def _said(analysis: Analysis, page: Path | None) -> str:
    """What a run came to, in the lines a person reads; coloured on a terminal."""
    run, verdict = analysis.run, analysis.verdict
    colour = _COLOURS[verdict.outcome]
    where = page or f"no room for it; make one with tippingpoint report {run.directory}"
    lines = [
        f"[bold {colour}]{verdict.outcome}[/]  {escape(verdict.sentence)}",
        escape(analysis.tipping.sentence),
        *([escape(f"{run.manifest.status}: {run.manifest.reason}")] if run.manifest.reason else []),
        escape(f"report: {where}"),
    ]
    console = Console()
    with console.capture() as captured:
        console.print("\n".join(lines), highlight=False, soft_wrap=True)
    return captured.get()


async def _run_plan(plan: Plan, options: argparse.Namespace, taken_up: TakenUp | None) -> Path:
    progress = ConsoleProgress()
    runner = Runner(plan, options.out, progress, force=options.force, takes_up=taken_up)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, runner.interrupt)
    try:
        return await runner.run()
    finally:
        progress.close()
