"""Running a plan from the command line, from its first stage or the stage it was cut in, to its report."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

import uvloop

from tippingpoint.plan.read import Plan
from tippingpoint.run.progress import ConsoleProgress
from tippingpoint.run.resume import TakenUp
from tippingpoint.run.runner import Runner
from tippingpoint.util.importing import importing


def run_to_report(plan: Plan, options: argparse.Namespace, taken_up: TakenUp | None) -> int:
    """Run a plan, or go on with a run that was cut, and print the result; returns the verdict's exit code."""
    directory = uvloop.run(_run_plan(plan, options, taken_up))
    # Imported once the workers are gone: until then the machine has no memory to spare for what only a report needs.
    with importing():
        from tippingpoint.cli.outcome import print_outcome

    return print_outcome(directory, as_json=options.json)


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
