"""Running a plan from the command line, from its first stage or the stage it was cut in, to its report."""

from __future__ import annotations

import argparse
import asyncio
import signal
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop
from rich.console import Console

from tippingpoint.errors import UserError
from tippingpoint.plan.defaults import prometheus_url
from tippingpoint.plan.figures import figures_of
from tippingpoint.plan.read import Plan
from tippingpoint.play.progress import ConsoleProgress, Detail
from tippingpoint.play.resume import ResumedRun
from tippingpoint.play.runner import Runner
from tippingpoint.util.importing import importing
from tippingpoint.util.secret_words import NOT_SHOWN, is_secret

if TYPE_CHECKING:  # only a run with figures of Prometheus needs its client
    from tippingpoint.monitoring.prometheus import Prometheus
    from tippingpoint.play.run_figures import RunFigures


def run_to_report(plan: Plan, options: argparse.Namespace, taken_up: ResumedRun | None) -> int:
    """Run a plan, or continue a run that was cut, and print the result; returns the verdict's exit code."""
    directory = uvloop.run(_run_plan(plan, options, taken_up, _figures(plan, options)))
    with _writing(options):
        # Imported once the workers are gone: until then the machine has no memory to spare for a report.
        with importing():
            from tippingpoint.cli.outcome import Outcome

        outcome = Outcome(directory, as_json=options.json)
    outcome.show()
    return outcome.exit_code


def _writing(options: argparse.Namespace) -> AbstractContextManager[object]:
    """Show on a terminal that the report is being written, which takes seconds."""
    console = Console(stderr=True)
    if options.quiet or not console.is_terminal:
        return nullcontext()
    return console.status("writing the report")


def _figures(plan: Plan, options: argparse.Namespace) -> tuple[RunFigures, Prometheus] | None:
    """Return the figures of Prometheus in the plan's thresholds; None for a plan without any."""
    of_login = {
        "--ca": options.ca,
        "--username": options.username,
        "--password-file": options.password_file,
        "--token-file": options.token_file,
        "--only": options.only,
    }
    if not options.prometheus:
        for option, value in of_login.items():
            if value:
                shown = (
                    NOT_SHOWN if is_secret(option) else str(value)
                )  # --password is short for --password-file
                raise UserError(option, shown, "--prometheus too")
        return None
    if not figures_of(plan):
        if options.prometheus == prometheus_url():  # the default, which no option named
            return None
        raise UserError(
            "--prometheus",
            options.prometheus,
            "a plan with a threshold on a figure (tippingpoint collect adds the resources of a run that has ended)",
        )
    with importing():
        from tippingpoint.cli.prometheus import prometheus_of
        from tippingpoint.monitoring.selecting import read_matchers
        from tippingpoint.play.run_figures import RunFigures

    prometheus = prometheus_of(options)
    return RunFigures(plan, prometheus, read_matchers("--only", options.only)), prometheus


async def _run_plan(
    plan: Plan,
    options: argparse.Namespace,
    taken_up: ResumedRun | None,
    asked: tuple[RunFigures, Prometheus] | None,
) -> Path:
    if asked is None:
        return await _run(plan, options, taken_up, None)
    figures, prometheus = asked
    async with prometheus:
        return await _run(plan, options, taken_up, figures)


async def _run(
    plan: Plan, options: argparse.Namespace, taken_up: ResumedRun | None, figures: RunFigures | None
) -> Path:
    progress = ConsoleProgress(title=plan.name, limits=_p99_limits(plan), detail=_detail(options))
    runner = Runner(plan, options.out, progress, force=options.force, takes_up=taken_up, figures=figures)

    def interrupt() -> None:
        progress.interrupted()
        runner.interrupt()

    if options.open:
        _open_page(options.out, runner.directory.name)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, interrupt)
    try:
        progress.doing(f"reaching {plan.target.kind}")
        return await runner.run()
    finally:
        progress.close()


def _open_page(runs: Path, run: str) -> None:
    """Start a page that shows the run in a browser, and ends once no browser follows it."""
    asked = ["serve", str(runs), "--open", "--run", run, "--until-unread"]
    subprocess.Popen(
        [sys.executable, "-m", "tippingpoint", *asked],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the run
    )


def _p99_limits(plan: Plan) -> dict[str, float]:
    """The limits of the plan for the p99 of operations, in microseconds; the lowest of several."""
    limits: dict[str, float] = {}
    for threshold in plan.thresholds:
        if threshold.p99 is not None and threshold.operation:
            limits[threshold.operation] = min(
                threshold.p99 * 1e6, limits.get(threshold.operation, float("inf"))
            )
    return limits


def _detail(options: argparse.Namespace) -> Detail:
    return "quiet" if options.quiet else "verbose" if options.verbose else "normal"
