"""Running a plan from the command line, from its first stage or the stage it was cut in, to its report."""

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

_COLOURS = {"met": "green", "missed": "red", "withheld": "yellow", "failed": "red"}


def run_to_report(plan: Plan, options: argparse.Namespace, taken_up: TakenUp | None) -> int:
    """Run a plan, or go on with a run that was cut, and print the result; returns the verdict's exit code."""
    directory = uvloop.run(_run_plan(plan, options, taken_up))
    analysis = analyse(load_run(directory))
    document = build_document(analysis)
    page = keep_report(analysis.run, render_report(document, "html"))
    said = render_report(document, "json") if options.json else _said(analysis, page)
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
